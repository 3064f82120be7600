"""Benchmarks of the producers and consumers of a manager."""
