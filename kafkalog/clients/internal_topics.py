"""Kafka's own topics: `__consumer_offsets` and `__transaction_state`, and which partition has what.

Their formats are Kafka's so that groups and transactions go on where they stood, in both
directions: a broker that takes the directory over knows them, and those that a broker left are
known here. A broker finds a group, or a transactional id, by a hash over the number of partitions,
50 unless its settings say otherwise; a topic is made here with as many. One that is there already
keeps its number, but for one of a single partition that was made here when that was the rule: it is
given the others, and each key moves to where a broker looks for it.

Order of that move, which any thread may find interrupted, at any point, by a crash:

    1  the last of the new partitions is made, then the others     gaps say that it has begun
    2  the keys of partition 0 that belong elsewhere are copied there, which is synced
    3  null values for them are appended to partition 0, which is synced

A key that is where it belongs already is newer, or the same, and stays as it is; until 3 is on the
disk, 2 is done again. Positions of transactions that are open meanwhile are copied once they are
committed, by the next process.

Thread-safety: every method from any thread; two threads that make a topic make it once.
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
    How Kafka's own topics are made.

    Attributes:
        offsets_partitions, transaction_partitions: how many partitions `__consumer_offsets` and
            `__transaction_state` are made with.
        is_own: whether a topic, of a single partition, was made here.
    """

    offsets_partitions: int = PARTITION_COUNT
    transaction_partitions: int = PARTITION_COUNT
    is_own: Callable[[str], bool] = lambda _topic: False


class InternalTopic:
    """
    One of Kafka's own topics.

    Args:
        source: the logs.
        name: the topic's.
        on_unreadable: told of every record that cannot be understood.
        partition_count: how many partitions it is made with.
        is_own: whether it was made here, where it has a single partition.
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

    def started_partitions(self) -> tuple[int, ...]:
        """Return the numbers of the partitions that may have records; the others have no files."""
        return tuple(
            number for number in self.partitions() if self._source.has_files(self.name, number)
        )

    def resolve_partitions(self) -> None:
        """
        Have every key where a broker looks for it; nothing to do but the first time.

        Raises:
            LogStorageError: the disk refused; the next call goes on.
            LogOfflineError: a partition may lie in a directory that is offline.
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
                # One beside another that comes back would leave neither to be opened.
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
            known = _last_of_each_key(log) if log.log_end_offset > log.log_start_offset else {}
            fresh = [each for each in records if each.key not in known]
            if fresh:
                log.append(fresh)
            log.flush()
        for records in astray.values():
            origin.append([Record(key=each.key, value=None) for each in records])
        origin.flush()

    def skip_record(
        self, partition: int, offset: int, why: CorruptRecordError
    ) -> CorruptRecordError:
        """Tell of a record that cannot be understood, and return what was told."""
        where = TopicPartition(self.name, partition)
        error = CorruptRecordError(f"{where}, offset {offset}: {why}")
        logger.warning("a record is passed over: %s", error)
        if self._on_unreadable is not None:
            self._on_unreadable(where, error)
        return error

    def partition_of(self, key: str) -> int | None:
        """
        Return the partition of a group or a transactional id, None while there is no topic.

        Raises:
            LogStorageError: as for `resolve_partitions`.
            LogOfflineError: it depends on what lies in a directory that is offline.
        """
        self.resolve_partitions()
        return partition_for(key, self.count()) if self.partitions() else None

    def count(self) -> int:
        """
        Return how many partitions the topic has, those in offline directories among them.

        Raises:
            LogOfflineError: that cannot be known now.
        """
        present = self.partitions()
        count = max(present, default=-1) + 1
        if count > self._cached_count:
            if present != tuple(range(self._count)):
                # The last ones may be where nobody can look.
                with suppress(LookupError):
                    self._source.log(self.name, count)
            self._cached_count = count
        return self._cached_count

    def is_whole(self) -> bool:
        """Return whether every partition of the topic can be seen."""
        return len(self.partitions()) == self._cached_count

    def ensure_partition_of(self, key: str) -> int:
        """Return the same, after making the topic where there is none."""
        with self._lock:
            if not self.partitions():
                # One beside another that comes back would leave neither to be opened.
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
        logger.warning("a batch at offset %d is passed over: %s", batch.header.base_offset, error)
        return []


def _partition_of_key(key: bytes, count: int) -> int:
    """Return the partition of a key: a version, and the group or transactional id, lead it."""
    reader = FieldReader(key, "a key of an internal topic")
    try:
        reader.int16()
        return partition_for(reader.plain_string(), count)
    except CorruptRecordError:
        return 0
