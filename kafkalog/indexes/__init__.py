"""Offset, time and transaction index: caches of the log, rebuilt from it if they disagree."""
