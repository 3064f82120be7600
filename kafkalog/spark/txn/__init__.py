"""The sink's transactions: staged files become records of logs, all of them exactly once.

Imports neither pyspark nor pyarrow. `transaction.SinkTransaction` is the entry point.
"""
