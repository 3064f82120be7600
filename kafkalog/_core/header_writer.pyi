"""The header writer has no door: other modules cimport it."""
