"""Benchmarks of the native kernels, without a file."""
