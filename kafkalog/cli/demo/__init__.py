"""`kafkalog demo`: a log at work on real data, a kill survived, a broker's own directory read."""
