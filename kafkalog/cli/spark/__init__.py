"""The verbs of `kafkalog spark`: jobs over directories that outgrow one machine."""
