"""Kafka's own topics: `__consumer_offsets` and `__transaction_state`, and the partition of a key.

The formats are Kafka's, so that groups and transactions continue in both directions: a broker that
takes over the directory reads them, and kafkalog reads those of a broker. A broker finds a group or
a transactional id by a hash modulo the number of partitions, 50 by default; kafkalog creates topics
with the same number. An existing topic keeps its number of partitions, except a topic with a single
partition that an earlier version of kafkalog made: it gets the other partitions, and each key moves
to the partition where a broker looks for it.

Order of that move, which a crash may interrupt at any point:

    1  the last of the new partitions is made, then the others     gaps show that it has begun
    2  the keys of partition 0 that belong elsewhere are copied there, which is synced
    3  null values for them are appended to partition 0, which is synced

A key that is already in its partition is newer, or the same, and stays unchanged; until 3 is
synced, 2 is repeated. Positions of transactions that are open during the move are copied once they
are committed, by the next process.

Thread-safety: every method from any thread; a lock makes threads create or move a topic once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kafkalog._core.record import Record
from kafkalog.clients.source import LogSource
from kafkalog.errors import CorruptRecordError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import ControlType
from kafkalog.records.message_fields import FieldReader

__all__ = [
    "CONSUMER_OFFSETS",
    "PARTITION_COUNT",
    "TRANSACTION_STATE",
    "InternalTopic",
    "InternalTopicSettings",
    "OnUnreadable",
    "partition_for",
]

logger = logging.getLogger(__name__)

# Called with a partition of these topics, and the error of a record that cannot be decoded.
OnUnreadable = Callable[[TopicPartition, CorruptRecordError], object]

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

# Settings with which Kafka creates them.
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
}

INT32_MIN: Final = -(2**31)

# A broker's default of `offsets.topic.num.partitions` and `transaction.state.log.num.partitions`.
PARTITION_COUNT: Final = 50


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition of a group or a transactional id: Java's hash of it, as Kafka's."""
    value = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for start in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[start : start + 2])) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == INT32_MIN else abs(signed)) % partition_count


@dataclass(frozen=True, slots=True)
class InternalTopicSettings:
    """
    Settings with which Kafka's own topics are created.

    Attributes:
        offsets_partitions, transaction_partitions: number of partitions of `__consumer_offsets`
            and of `__transaction_state`.
        is_own: returns whether a topic with a single partition was created by kafkalog.
        is_read_only: whether another process writes them.
    """

    offsets_partitions: int = PARTITION_COUNT
    transaction_partitions: int = PARTITION_COUNT
    is_own: Callable[[str], bool] = lambda _topic: False
    is_read_only: bool = False


class InternalTopic:
    """
    One of Kafka's own topics.

    Args:
        source: the logs.
        name: name of the topic.
        on_unreadable: called with every record that cannot be decoded.
        partition_count: number of partitions of a new topic.
        is_own: returns whether a topic with a single partition was created by kafkalog.
    """

    def __init__(
        self,
        source: LogSource,
        name: str,
        on_unreadable: OnUnreadable | None = None,
        *,
        partition_count: int = PARTITION_COUNT,
        is_own: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self.name = name
        self._on_unreadable = on_unreadable
        self._source = source
        self._count = partition_count
        self._is_own = is_own
        self._is_resolved = False
        self._cached_count = 0
        self._lock = threading.RLock()

    def partitions(self) -> tuple[int, ...]:
        """Return the numbers of the existing partitions."""
        return tuple(self._source.topics().get(self.name, ()))

    def ensure_absent(self) -> None:
        """
        Return if the topic does not exist in any directory that is online.

        Raises:
            LogOfflineError: it may be in a directory that is offline.
        """
        with suppress(LookupError):
            self._source.log(self.name, 0)

    def log(self, partition: int) -> Log:
        """Return a partition's log."""
        return self._source.log(self.name, partition)

    def started_partitions(self) -> tuple[int, ...]:
        """Return the numbers of the partitions that may have records; the others have no files."""
        return tuple(number for number in self.partitions() if self.has_files(number))

    def has_files(self, partition: int) -> bool:
        """Return whether a partition may have records."""
        return self._source.has_files(self.name, partition)

    def resolve_partitions(self) -> None:
        """
        Move every key to the partition where a broker looks for it; only the first call does it.

        Raises:
            LogStorageError: the disk failed; the next call continues.
            LogOfflineError: a partition may be in a directory that is offline.
        """
        if self._is_resolved:
            return
        with self._lock:
            if not self._is_resolved and self.partitions():
                if self._is_own(self.name):
                    self._add_partitions()
                    self._move_keys()
                self._is_resolved = True

    def _add_partitions(self) -> None:
        present = self.partitions()
        count = self._count if present == (0,) else max(present) + 1
        for number in reversed(range(count)):
            if number not in present:
                # Two directories with the same partition would make both unusable.
                with suppress(LookupError):
                    self._source.log(self.name, number)
                    continue
                self._source.create_partition(self.name, number)

    def _move_keys(self) -> None:
        count = self.count()
        if count == 1 or 0 not in self.started_partitions():
            return
        origin = self.log(0)
        astray: dict[int, list[Record]] = {}
        for key, record in _last_of_each_key(origin).items():
            number = _partition_of_key(key, count)
            if number and record.value is not None:
                astray.setdefault(number, []).append(record)
        if not astray:
            return
        logger.warning("%s: keys move to the partitions where a broker looks for them", self.name)
        for number, records in astray.items():
            log = self.log(number)
            latest = _last_of_each_key(log) if log.log_end_offset > log.log_start_offset else {}
            fresh = [each for each in records if each.key not in latest]
            if fresh:
                log.append(fresh)
            log.flush()
        for records in astray.values():
            origin.append([Record(key=each.key, value=None) for each in records])
        origin.flush()

    def skip_record(
        self, partition: int, offset: int, why: CorruptRecordError
    ) -> CorruptRecordError:
        """Report a record that cannot be decoded, and return the error that was reported."""
        where = TopicPartition(self.name, partition)
        error = CorruptRecordError(f"{where}, offset {offset}: {why}")
        logger.warning("a record is skipped: %s", error)
        if self._on_unreadable is not None:
            self._on_unreadable(where, error)
        return error

    def partition_of(self, key: str) -> int | None:
        """
        Return the partition of a group or a transactional id; None if the topic does not exist.

        Raises:
            LogStorageError: as for `resolve_partitions`.
            LogOfflineError: it depends on partitions in a directory that is offline.
        """
        self.resolve_partitions()
        return partition_for(key, self.count()) if self.partitions() else None

    def count(self) -> int:
        """
        Return the number of partitions of the topic, with those in offline directories.

        Raises:
            LogOfflineError: that cannot be known now.
        """
        present = self.partitions()
        count = max(present, default=-1) + 1
        if count > self._cached_count:
            if present != tuple(range(self._count)):
                # The last ones may be in a directory that is offline.
                with suppress(LookupError):
                    self._source.log(self.name, count)
            self._cached_count = count
        return self._cached_count

    def is_whole(self) -> bool:
        """Return whether every partition of the topic can be seen."""
        return len(self.partitions()) == self._cached_count

    def ensure_partition_of(self, key: str) -> int:
        """Return the partition of a key, after creating the topic if it does not exist."""
        with self._lock:
            if not self.partitions():
                # Two directories with the same partition would make both unusable.
                self.ensure_absent()
                self._source.create_topic(self.name, self._count, SETTINGS)
        found = self.partition_of(key)
        assert found is not None
        return found


def _last_of_each_key(log: Log) -> dict[bytes, Record]:
    """Return the last committed record of each key, in the order of the offsets."""
    found: dict[bytes, Record] = {}
    pending: dict[int, list[Record]] = {}
    for batch in log.batches(on_corrupt="skip"):
        header = batch.header
        if header.is_control:
            waiting = pending.pop(header.producer_id, [])
            if any(each.type is ControlType.COMMIT for each in batch.control_records()):
                _put(found, waiting)
        elif header.is_transactional:
            pending.setdefault(header.producer_id, []).extend(_records(batch))
        else:
            _put(found, _records(batch))
    return found


def _put(found: dict[bytes, Record], records: list[Record]) -> None:
    for record in records:
        if record.key is not None and (
            record.key not in found or found[record.key].offset < record.offset
        ):
            found[record.key] = record


def _records(batch: BatchView) -> list[Record]:
    try:
        return batch.records()
    except CorruptRecordError as error:
        logger.warning("a batch at offset %d is skipped: %s", batch.header.base_offset, error)
        return []


def _partition_of_key(key: bytes, count: int) -> int:
    """Return the partition of a key: a version, and the group or transactional id, lead it."""
    reader = FieldReader(key, "a key of an internal topic")
    try:
        reader.int16()
        return partition_for(reader.plain_string(), count)
    except CorruptRecordError:
        return 0
