"""Port from producers and consumers to the logs of a process; `LogManager` implements it.

Thread-safety: clients call these methods from any thread, also from within a log's watchers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kafkalog.errors import KafkaLogError
from kafkalog.log.log import Log

__all__ = ["LogSource"]


class LogSource(Protocol):
    """Logs of a process, by topic and partition."""

    def log(self, topic: str, partition: int) -> Log:
        """
        Return the log of a partition, opened if necessary; the same object for all callers.

        Raises:
            KafkaLogError: the partition does not exist, or its log does not open.
        """
        ...

    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """Return the topics and the numbers of their partitions."""
        ...

    def create_topic(
        self, topic: str, partition_count: int = 1, config: Mapping[str, str] | None = None
    ) -> object:
        """Create a topic with its settings."""
        ...

    def create_partition(self, topic: str, partition: int) -> object:
        """Create another partition of a topic."""
        ...

    def commit(self, logs: Collection[Log]) -> Mapping[Log, KafkaLogError]:
        """
        Put everything that was appended to logs on the disk, many logs with few syncs of it.

        Returns:
            the logs that failed, with their errors.
        """
        ...

    def has_files(self, topic: str, partition: int) -> bool:
        """Return whether an existing partition may hold records: its log was once opened."""
        ...
