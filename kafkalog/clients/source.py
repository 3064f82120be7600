"""What producers and consumers need of whoever has the logs; `LogManager` is one.

Thread-safety: clients call these methods from any thread, also from within a log's watchers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafkalog.log.log import Log

__all__ = ["LogSource"]


class LogSource(Protocol):
    """The logs of a process, by topic and partition."""

    def log(self, topic: str, partition: int) -> Log:
        """
        Return the log of a partition, opened if need be; the same object for everyone.

        Raises:
            KafkaLogError: there is no such partition, or it does not open.
        """
        ...

    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """Return the topics and the numbers of their partitions."""
        ...

    def create_topic(
        self, topic: str, partition_count: int = 1, config: Mapping[str, str] | None = None
    ) -> object:
        """Make a topic with settings of its own."""
        ...

    def create_partition(self, topic: str, partition: int) -> object:
        """Make another partition of a topic."""
        ...

    def has_files(self, topic: str, partition: int) -> bool:
        """Return whether a partition that is there may hold records: its log was once opened."""
        ...
