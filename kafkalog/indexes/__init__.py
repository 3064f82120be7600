"""Offset index and time index: caches of the log, rebuilt from it at any doubt."""
