"""The verb `kafkalog cat`."""
