"""Tests of `examples/kafka_gateway` with real clients; most run against a real broker as well."""
