"""View of `kafkalog doctor`: problems of a data directory and their remedies."""
