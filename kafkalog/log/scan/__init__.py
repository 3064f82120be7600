"""Scans: the records of one log or many as columns, for Arrow and for NumPy."""
