"""`kafkalog dump`: what is in a file of a log, or in a whole directory, damage included."""
