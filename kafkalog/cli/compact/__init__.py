"""The views of `kafkalog compact`, `plan` and `explain`: library calls, and what they say then."""
