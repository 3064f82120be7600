"""Live tails of logs that another process writes: `kafkalog.follow`."""
