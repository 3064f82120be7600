"""Port from producers and consumers to the logs of a process; `LogManager` implements it.

Thread-safety: clients call these methods from any thread, also from within a log's watchers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog._engine.delayed_send import DelayedSend, DelayedTopic
from kafkalog.errors import KafkaLogError
from kafkalog.log.log import Log

__all__ = ["LogSource", "RecordCommits"]


class RecordCommits(Protocol):
    """Commits of records whose append is delayed; see `kafkalog.manager.delayed_commits`."""

    def records_of(self, log: Log) -> DelayedRecords | None:
        """
        Return the delayed records of a log, which takes some now; None if it may have none.

        Raises:
            KafkaLogError: the log cannot be written now.
        """
        ...

    def accept(
        self,
        topic: DelayedTopic,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamp_ms: int,
        now_ms: int,
    ) -> DelayedSend | int | None:
        """Give records the next offsets of their logs; see `DelayedTopic.accept`."""
        ...

    def commit(self, sends: Sequence[DelayedSend]) -> None:
        """Decide which records are durable, of these calls and of all accepted before."""
        ...


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

    @property
    def delayed_commits(self) -> RecordCommits | None:
        """Commits of records whose append is delayed; None if no append is."""
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
