"""Views of `kafkalog compact`, `plan` and `explain`: library calls and their output."""
