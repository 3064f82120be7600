"""`kafkalog demo`: a log with real data, a survived kill, a broker's own directory."""
