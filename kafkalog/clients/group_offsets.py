"""Positions of groups: the compacted topic `__consumer_offsets`, read once and followed from there.

A position is valid as for the group coordinator of a broker: at once if it was committed alone; for
a transaction from its commit marker on, and never after an abort marker. Of several valid positions
the one with the highest offset in the topic counts. So the topic is read uncommitted, and the
positions of a transaction are kept separately until it ends: a hanging transaction does not delay
positions of other groups.

Damage is skipped and logged, and so is a record that cannot be decoded: its positions are lost, the
earlier ones are valid again, and their groups read some records twice.

Thread-safety: every method from any thread. One lock guards the table of partitions, and one lock
per partition is held while its log is read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from kafkalog._core.record import Record
from kafkalog.clients.internal_topics import (
    CONSUMER_OFFSETS,
    PARTITION_COUNT,
    InternalTopic,
    OnUnreadable,
)
from kafkalog.clients.offset_records import (
    CommittedOffset,
    GroupPartition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kafkalog.clients.source import LogSource
from kafkalog.clock import Clock, SystemClock
from kafkalog.errors import CorruptRecordError, KafkaLogError
from kafkalog.log.log import Log, Wait
from kafkalog.model import TopicPartition
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import ControlType

__all__ = ["GroupOffsets", "offset_records"]

logger = logging.getLogger(__name__)


def offset_records(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset | int | None], now_ms: int
) -> list[Record]:
    """
    Return the records that commit the positions of a group; None removes one.

    Raises:
        ValueError: an offset is negative, or a text is too long.
    """
    if not group:
        raise ValueError("a group without a name has no positions")
    return [
        _record(group, TopicPartition(*where), position, now_ms)
        for where, position in offsets.items()
    ]


def _record(
    group: str, where: TopicPartition, position: CommittedOffset | int | None, now_ms: int
) -> Record:
    value = None
    if position is not None:
        if not isinstance(position, CommittedOffset):
            position = CommittedOffset(position)
        if position.offset < 0:
            raise ValueError(f"offset must be >= 0, got {position.offset} for {where}")
        if position.commit_timestamp_ms < 0:
            position = position._replace(commit_timestamp_ms=now_ms)
        value = encode_value(position)
    key = encode_key(GroupPartition(group, where.topic, where.partition))
    return Record(key=key, value=value, timestamp_ms=now_ms)


class GroupOffsets:
    """
    Positions of all groups.

    Args:
        source: the logs.
        on_unreadable: called with every record that cannot be decoded.
        clock: measures the age of the last read; the system clock if None.
        partition_count, is_own: as for `InternalTopic`.
    """

    def __init__(
        self,
        source: LogSource,
        on_unreadable: OnUnreadable | None = None,
        clock: Clock | None = None,
        *,
        partition_count: int = PARTITION_COUNT,
        is_own: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self.topic = InternalTopic(
            source,
            CONSUMER_OFFSETS,
            on_unreadable,
            partition_count=partition_count,
            is_own=is_own,
        )
        self._lock = threading.Lock()
        self._followed: dict[int, _FollowedPartition] = {}

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """
        Return the committed positions of a group by partition.

        Raises:
            LogStorageError, LogClosedError: the topic cannot be read, or not be found.
        """
        number = self.topic.partition_of(group)
        if number is None:
            self.topic.ensure_absent()
        if number is None:
            return {}
        if number not in self.topic.started_partitions():
            if number not in self.topic.partitions():
                with suppress(LookupError):
                    self.topic.log(number)
            return {}
        return self._partition(number).positions_of(group)

    def all_committed(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """
        Return the committed positions of all groups, by group and partition.

        Positions in a partition of the topic that cannot be read now are left out.
        """
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for number in self.topic.partitions():
            with suppress(KafkaLogError):
                if self.topic.has_files(number):
                    found |= self._partition(number).positions()
        return found

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None],
        *,
        now_ms: int,
        wait: Wait,
    ) -> None:
        """
        Commit positions, all of them or none.

        Raises:
            DiskFullError, LogOfflineError: as for an append.
        """
        records = offset_records(group, offsets, now_ms)
        if records:
            log = self.topic.log(self.topic.ensure_partition_of(group))
            log.append(records, wait=wait)

    def remove(self, partitions: Collection[TopicPartition], *, now_ms: int) -> None:
        """
        Remove the positions of all groups in deleted partitions.

        Raises:
            LogStorageError: as for an append; positions of some groups may be removed then.
        """
        for number in self.topic.started_partitions():
            followed = self._partition(number)
            for group, offsets in followed.positions_in(partitions).items():
                followed.log.append(offset_records(group, offsets, now_ms))

    def lower_epochs(self, highest: int, *, now_ms: int) -> int:
        """
        Commit positions with a leader epoch above `highest` again, without one; return how many.

        Raises:
            LogStorageError: as for an append; some groups may keep theirs.
        """
        count = 0
        for number in self.topic.started_partitions():
            followed = self._partition(number)
            for group, offsets in followed.positions_above(highest).items():
                followed.log.append(offset_records(group, offsets, now_ms), wait="durable")
                count += len(offsets)
        return count

    def _partition(self, number: int) -> _FollowedPartition:
        log = self.topic.log(number)
        with self._lock:
            followed = self._followed.get(number)
            if followed is None or followed.log is not log:
                # Another log object: the directory was closed and reopened since.
                followed = _FollowedPartition(self.topic, number, log, self._clock)
                self._followed[number] = followed
            return followed


class _FollowedPartition:
    """Positions of one partition of the topic, up to the offset that was read."""

    def __init__(self, topic: InternalTopic, number: int, log: Log, clock: Clock) -> None:
        self.log = log
        self._topic = topic
        self._number = number
        self._clock = clock
        self._followed_ms = clock.monotonic_ms()
        self._lock = threading.Lock()
        self._begin()

    def positions_of(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        with self._lock:
            self._follow()
            found = self._positions.get(group, {})
            return {
                where: position
                for where, (_offset, position) in found.items()
                if position is not None
            }

    def positions(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the positions of all groups."""
        with self._lock:
            self._follow()
            return {
                group: {
                    where: position
                    for where, (_offset, position) in positions.items()
                    if position is not None
                }
                for group, positions in self._positions.items()
            }

    def positions_in(
        self, partitions: Collection[TopicPartition]
    ) -> dict[str, dict[TopicPartition, None]]:
        """Return the groups with positions in these partitions, each with the partitions."""
        with self._lock:
            self._follow()
            found = {
                group: {
                    where: None
                    for where, (_offset, position) in positions.items()
                    if where in partitions and position is not None
                }
                for group, positions in self._positions.items()
            }
        return {group: offsets for group, offsets in found.items() if offsets}

    def positions_above(self, highest: int) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return by group the positions whose leader epoch is above `highest`, without it."""
        with self._lock:
            self._follow()
            found = {
                group: {
                    where: position._replace(leader_epoch=None)
                    for where, (_offset, position) in positions.items()
                    if position is not None and (position.leader_epoch or 0) > highest
                }
                for group, positions in self._positions.items()
            }
        return {group: offsets for group, offsets in found.items() if offsets}

    def _begin(self) -> None:
        self._next_offset = -1
        # Group -> partition -> offset in the topic, position.
        self._positions: dict[str, dict[TopicPartition, tuple[int, CommittedOffset | None]]] = {}
        self._pending: dict[int, list[tuple[int, GroupPartition, CommittedOffset | None]]] = {}

    def _follow(self) -> None:
        now_ms = self._clock.monotonic_ms()
        is_late = now_ms - self._followed_ms > self.log.config.delete_retention_ms
        end = self.log.high_watermark
        if is_late or not self.log.log_start_offset <= self._next_offset <= end:
            # The first read; or the log was truncated, or lost records that were never read. Or
            # the last read is so old that a compaction may have removed tombstones since.
            self._begin()
            self._next_offset = self.log.log_start_offset
        for batch in self.log.batches(self._next_offset, end, on_corrupt="skip"):
            try:
                self._read_batch(batch)
            except CorruptRecordError as error:
                logger.warning("%s: a position is skipped: %s", self.log.directory, error)
        self._next_offset, self._followed_ms = end, now_ms

    def _read_batch(self, batch: BatchView) -> None:
        header = batch.header
        if header.is_control:
            for control in batch.control_records():
                pending = self._pending.pop(header.producer_id, [])
                if control.type is ControlType.COMMIT:
                    self._apply(pending)
            return
        found = list(self._positions_in(batch))
        if header.is_transactional:
            self._pending.setdefault(header.producer_id, []).extend(found)
        else:
            self._apply(found)

    def _apply(self, found: Iterable[tuple[int, GroupPartition, CommittedOffset | None]]) -> None:
        for offset, where, position in found:
            of_group = self._positions.setdefault(where.group, {})
            partition = TopicPartition(where.topic, where.partition)
            if of_group.get(partition, (-1, None))[0] < offset:
                of_group[partition] = offset, position

    def _positions_in(
        self, batch: BatchView
    ) -> Iterable[tuple[int, GroupPartition, CommittedOffset | None]]:
        for record in batch.records():
            try:
                where = decode_key(record.key)
                if where is None:
                    continue
                position = None if record.value is None else decode_value(record.value)
            except CorruptRecordError as why:
                self._topic.skip_record(self._number, record.offset, why)
                continue
            yield record.offset, where, position
