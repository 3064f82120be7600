"""Batches in memory: reading, building, codecs, validation."""
