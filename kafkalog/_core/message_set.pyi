"""The walk over a message set has no door: other modules cimport it."""
