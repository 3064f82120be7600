"""Benchmarks of a whole log on a real file system."""
