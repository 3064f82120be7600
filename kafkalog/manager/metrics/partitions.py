"""Figures of partitions for metrics and health; no log is opened for them.

An open log has them in its snapshot. Of a partition whose log is not open they are in the names and
sizes of its files, and in the checkpoints: after a stop in order the recovery point is the log end.
Listings are kept until the log is opened, or its directory changes.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, live_base_offset, partition_directory_name
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.log import Log, partition_of
from kafkalog.log.retention_plan import RetentionDebt
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.model import TopicPartition

__all__ = ["PartitionFigures", "PartitionReader"]

_NO_DEBT: Final = RetentionDebt()


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """
    Figures of one partition; None for what is not known.

    Attributes:
        topic_partition: its name.
        start_offset, end_offset, durable_offset: range of the log, and what of it is durable.
        high_watermark: end of a reader.
        size_bytes, segment_count: its `.log` files.
        removed_bytes: files that left the log and wait for their deletion.
        damaged_ranges, damaged_bytes: known corrupt ranges.
        debt: segments that the next run of retention deletes.
    """

    topic_partition: TopicPartition
    start_offset: int | None = None
    end_offset: int | None = None
    durable_offset: int | None = None
    high_watermark: int | None = None
    size_bytes: int | None = None
    segment_count: int | None = None
    removed_bytes: int = 0
    damaged_ranges: int = 0
    damaged_bytes: int = 0
    debt: RetentionDebt = _NO_DEBT


@dataclass(frozen=True, slots=True)
class _Listing:
    """Segments of a partition that is not open, and the state of its directory."""

    partition: ManagedPartition
    modified_ms: int
    first_base: int | None
    last_base: int | None
    size_bytes: int
    segment_count: int


class PartitionReader:
    """
    Reads the figures of partitions.

    Args:
        registry: the partitions.
        filesystem: the disk.
    """

    def __init__(self, registry: PartitionRegistry, filesystem: FileSystem) -> None:
        self._registry = registry
        self._filesystem = filesystem
        self._listings: dict[TopicPartition, _Listing] = {}

    def read_all(self) -> list[PartitionFigures]:
        """Return the figures of all partitions, by name."""
        partitions = self._registry.all()
        found = [self.read(each) for each in partitions]
        names = {each.topic_partition for each in partitions}
        for name in [each for each in tuple(self._listings) if each not in names]:
            self._listings.pop(name, None)
        return found

    def read(self, partition: ManagedPartition) -> PartitionFigures:
        """Return the figures of one partition."""
        log = partition.log
        if log is None:
            return self._of_files(partition)
        self._listings.pop(partition.topic_partition, None)
        return _of_log(log)

    def debts(self) -> list[tuple[TopicPartition, RetentionDebt]]:
        """Return what retention has left in open logs."""
        return [
            (each.topic_partition, debt)
            for each in self._registry.all()
            if (log := each.usable_log) is not None and (debt := _debt(log)).segment_count
        ]

    def _of_files(self, partition: ManagedPartition) -> PartitionFigures:
        name, directory = partition.topic_partition, partition.directory
        listing = self._list(partition) if directory.is_online else None
        if listing is None:
            return PartitionFigures(name)
        checkpoints = directory.checkpoints
        start = max(checkpoints.start_offsets.get(name) or 0, listing.first_base or 0)
        end = None if listing.segment_count else 0
        directory_name = partition_directory_name(name)
        with contextlib.suppress(KafkaLogError):
            # Not after a stop that was not in order, or a recovery that failed.
            if partition.error is None and directory.sessions.is_clean(directory_name):
                recovery_point = checkpoints.recovery_points.get(name)
                if recovery_point is not None and recovery_point >= (listing.last_base or 0):
                    end = recovery_point
        high_watermark = checkpoints.high_watermarks.get(name)
        if end is not None:
            high_watermark = end if high_watermark is None else min(high_watermark, end)
        return PartitionFigures(
            name,
            start_offset=start,
            end_offset=end,
            durable_offset=end,
            high_watermark=end if high_watermark is None else high_watermark,
            size_bytes=listing.size_bytes,
            segment_count=listing.segment_count,
        )

    def _list(self, partition: ManagedPartition) -> _Listing | None:
        """Return the segments on the disk, None if they cannot be listed."""
        name = partition.topic_partition
        path = partition.directory.path / partition_directory_name(name)
        try:
            facts = self._filesystem.stat(path)
            if facts is None:
                return None
            kept = self._listings.get(name)
            if (
                kept is not None
                and kept.partition is partition
                and kept.modified_ms == facts.modified_ms
            ):
                return kept
            extents = self._filesystem.extents(path, FileKind.LOG.value)
        except OSError:
            return None
        sizes = {
            base: extent.size_bytes
            for each, extent in extents.items()
            if not extent.refusal
            and (base := live_base_offset(each, FileKind.LOG.value)) is not None
        }
        made = _Listing(
            partition,
            facts.modified_ms,
            min(sizes, default=None),
            max(sizes, default=None),
            sum(sizes.values()),
            len(sizes),
        )
        self._listings[name] = made
        return made


def _of_log(log: Log) -> PartitionFigures:
    parts = partition_of(log)
    snapshot = parts.view.last_snapshot
    segments = snapshot.segments.segments
    size_bytes = sum(each.size_bytes for each in segments[:-1]) + snapshot.end_position
    ranges: tuple[CorruptRange, ...] = ()
    with contextlib.suppress(KafkaLogError):
        ranges = log.corrupt_ranges()
    return PartitionFigures(
        log.topic_partition,
        start_offset=snapshot.start_offset,
        end_offset=snapshot.end_offset,
        durable_offset=min(parts.flusher.durable_offset, snapshot.end_offset),
        high_watermark=parts.view.stable.visibility.high_watermark_of(snapshot),
        size_bytes=size_bytes,
        segment_count=len(segments),
        removed_bytes=parts.deleter.waiting_bytes(),
        damaged_ranges=len(ranges),
        damaged_bytes=sum(each.size_bytes for each in ranges),
        debt=_NO_DEBT if log.is_closed or log.offline_error is not None else _debt(log),
    )


def _debt(log: Log) -> RetentionDebt:
    # A policy of the caller may raise anything; retention itself reports that as a fault.
    try:
        return partition_of(log).retention.debt()
    except Exception:  # noqa: BLE001
        return _NO_DEBT
