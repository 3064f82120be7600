"""The verb `kafkalog grep`."""
