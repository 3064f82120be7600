"""Benchmarks of kafkalog: one module for each kernel family or verb, see docs/performance.md."""
