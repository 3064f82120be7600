"""Metrics of a manager: definitions, what is counted, and the snapshot."""
