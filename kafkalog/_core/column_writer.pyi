"""The writer of columns has no Python-level names; the batch builder calls it."""
