"""Records of a producer whose append is delayed (`kafkalog.journal.linger.ms`).

The logs take the records of a call at once, and give them offsets; a commit of the data directory's
journal acknowledges them. A call is sent without a delay if a log takes none of it now: its
records are too large, its settings change batches or refuse the time, it is offline, or the append
of earlier ones failed.

Thread-safety: every method from any thread. The lock guards the tables of topics.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from kafkalog._engine.delayed_send import DelayedSend, DelayedTopic
from kafkalog.clients.source import LogSource, RecordCommits
from kafkalog.errors import KafkaLogError

__all__ = ["DelayedCall", "DelayedSends"]


class DelayedCall(NamedTuple):
    """Records of one call, and their topic."""

    topic: str
    send: DelayedSend


class DelayedSends:
    """
    Delayed records of one producer.

    Args:
        commits: gives them offsets, and commits them.
        source: the logs.
    """

    def __init__(self, commits: RecordCommits, source: LogSource) -> None:
        self._commits = commits
        self._source = source
        self._lock = threading.Lock()
        self._tables: dict[str, DelayedTopic] = {}

    def accept(
        self,
        topic: str,
        partition_count: int,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamp_ms: int,
        now_ms: int,
    ) -> DelayedCall | None:
        """
        Give records to the logs of their keys' partitions; None if they are to be sent at once.

        Args:
            topic: the topic.
            partition_count: number of its partitions.
            keys, values: bytes or None; the lists are not changed any more.
            timestamp_ms: of all records.
            now_ms: the present time.
        """
        table = self._table(topic, partition_count)
        last = None
        while True:
            found = self._commits.accept(table, keys, values, timestamp_ms, now_ms)
            if not isinstance(found, int):
                return None if found is None else DelayedCall(topic, found)
            if found == last or not self._prepare(table, topic, found):
                return None
            last = found

    def _table(self, topic: str, partition_count: int) -> DelayedTopic:
        with self._lock:
            found = self._tables.get(topic)
            if found is None or len(found) != partition_count:
                found = self._tables[topic] = DelayedTopic(partition_count)
            return found

    def _prepare(self, table: DelayedTopic, topic: str, partition: int) -> bool:
        """Open the log of a partition; return whether it may take delayed records."""
        try:
            records = self._commits.records_of(self._source.log(topic, partition))
        except KafkaLogError:
            # The call without a delay reports it.
            return False
        table.set_log(partition, records)
        return records is not None
