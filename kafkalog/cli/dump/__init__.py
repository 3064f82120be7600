"""`kafkalog dump`: the content of a file of a log, or of a whole directory, damage included."""
