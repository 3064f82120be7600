"""Kafka's programs with the JVM's defaults, for comparisons: those of tests start sooner."""

from __future__ import annotations

from tests.interop.kafka_maven import KafkaInstall

# Settings that make the broker of a test start sooner, and serve slower.
FOR_TESTS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m")


class LongRunning(KafkaInstall):
    """Kafka's programs, as they are run to last."""

    def command(
        self, main_class: str, *arguments: str, heap: str = "1g", leaves_archive: bool = False
    ) -> list[str]:
        """Return a command line without the switches for a quick start; it leaves no archive."""
        words = KafkaInstall.command(self, main_class, *arguments, heap=heap)
        return [word for word in words if word not in FOR_TESTS]
