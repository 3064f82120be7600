"""The verb `kafkalog ls`."""
