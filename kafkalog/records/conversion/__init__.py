"""Conversion of batches between the formats v0, v1 and v2, and to other codecs."""
