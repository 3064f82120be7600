"""`kafkalog doctor`: what ails a data directory, and what to change."""
