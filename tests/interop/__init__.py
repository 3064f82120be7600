"""Tests against a real Apache Kafka: its tools read what we write, its broker serves it."""
