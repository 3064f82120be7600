"""Kafka's own topics: `__consumer_offsets` and `__transaction_state`, and which partition has what.

Their formats are Kafka's so that groups and transactions go on where they stood, in both
directions: a broker that takes the directory over knows them, and those that a broker left are
known here. A topic that is there already keeps its number of partitions; one that is made here has
a single one, since there is one process, where Kafka has 50 for many brokers.

Thread-safety: every method from any thread; two threads that make a topic make it once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from kafkalog.clients.source import LogSource
from kafkalog.errors import CorruptRecordError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition

__all__ = [
    "CONSUMER_OFFSETS",
    "TRANSACTION_STATE",
    "InternalTopic",
    "OnUnreadable",
    "partition_for",
]

logger = logging.getLogger(__name__)

# Called with a partition of these topics, and why a record of it says nothing.
OnUnreadable = Callable[[TopicPartition, CorruptRecordError], object]

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

# What Kafka makes them with.
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
}

INT32_MIN: Final = -(2**31)


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition of a group or a transactional id: Java's hash of it, as Kafka's."""
    value = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for start in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[start : start + 2])) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == INT32_MIN else abs(signed)) % partition_count


class InternalTopic:
    """
    One of Kafka's own topics.

    Args:
        source: the logs.
        name: the topic's.
        on_unreadable: told of every record that cannot be understood.
    """

    def __init__(
        self, source: LogSource, name: str, on_unreadable: OnUnreadable | None = None
    ) -> None:
        self.name = name
        self._on_unreadable = on_unreadable
        self._source = source
        self._lock = threading.Lock()

    def partitions(self) -> tuple[int, ...]:
        """Return the numbers of the partitions that are there."""
        return tuple(self._source.topics().get(self.name, ()))

    def ensure_absent(self) -> None:
        """
        Return where there is no such topic, as far as anybody can know.

        Raises:
            LogOfflineError: it may lie in a directory that is offline.
        """
        with suppress(LookupError):
            self._source.log(self.name, 0)

    def log(self, partition: int) -> Log:
        """Return a partition's log."""
        return self._source.log(self.name, partition)

    def pass_over(self, partition: int, offset: int, why: CorruptRecordError) -> CorruptRecordError:
        """Tell of a record that cannot be understood, and return what was told."""
        where = TopicPartition(self.name, partition)
        error = CorruptRecordError(f"{where}, offset {offset}: {why}")
        logger.warning("a record is passed over: %s", error)
        if self._on_unreadable is not None:
            self._on_unreadable(where, error)
        return error

    def partition_of(self, key: str) -> int | None:
        """Return the partition of a group or a transactional id, None while there is no topic."""
        present = self.partitions()
        return partition_for(key, max(present) + 1) if present else None

    def ensure_partition_of(self, key: str) -> int:
        """Return the same, after making the topic where there is none."""
        with self._lock:
            if not self.partitions():
                # One beside another that comes back would leave neither to be opened.
                self.ensure_absent()
                self._source.create_topic(self.name, 1, SETTINGS)
        found = self.partition_of(key)
        assert found is not None
        return found
