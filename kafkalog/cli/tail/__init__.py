"""The verb `kafkalog tail`."""
