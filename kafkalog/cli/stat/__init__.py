"""View of `kafkalog stat`: a survey of logs as tables, as JSON, and as a picture."""
