"""Conversion of whole logs to v2 or to another codec, on the disk."""
