"""The walk over a message set; other modules cimport it, Python cannot call it."""
