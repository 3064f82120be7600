"""Aborted transactions of a log or of a directory, and the end of its stable records.

Two sources return the aborted transactions for the one filter (`AbortedBatches`), one segment at a
time, so that a reader of the first records does not wait for all indexes:

  * an open log: its transaction indexes, compared with the batches and repaired first
    (`kafkalog.log.transactions`);
  * a directory that another process may be writing: indexes and batches by `pread`, nothing is
    repaired. An index counts if it has every abort marker of its segment, else the batches are
    replayed from the newest producer snapshot on. A segment is walked for markers once per process.

The search ends with the segment whose index is complete by its last entry, as in a broker, or at a
segment whose producer snapshot has no transaction of the range open.

The cleaner does not filter: its `TransactionTracker` also decides on markers, from the same ranges.

Thread-safety: functions from any thread. The markers of walked segments are shared in a process;
two readers may walk the same segment twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.errors import CorruptIndexError, CorruptStateError, KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, SegmentFiles
from kafkalog.indexes.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    collect_aborted,
)
from kafkalog.layout import CONTROL_MASK, MAGIC_V2
from kafkalog.log.isolation import AbortedBatches
from kafkalog.log.producer_replay import aborted_of, load_states, replay_batches
from kafkalog.log.ranges.on_disk import SegmentOnDisk, floor_slot, segments_of
from kafkalog.log.ranges.reader import all_batches
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.transactions import is_abort_marker, verified_index
from kafkalog.state.producer_snapshot import read_snapshot
from kafkalog.state.producers import CompletedTransaction, ProducerStates

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot
    from kafkalog.log.scan.batch_slices import BatchSlice

__all__ = [
    "aborted_between",
    "aborted_in_log",
    "aborted_on_disk",
    "has_none_open",
    "last_stable_offset",
]


# ---- an open log ------------------------------------------------------------------------------


def aborted_in_log(
    context: SegmentContext, snapshot: LogSnapshot, end_offset: int
) -> AbortedBatches:
    """Return the filter of a read of an open log up to `end_offset`."""

    def find(offset: int, end: int) -> tuple[int, list[AbortedTransaction]]:
        segments = snapshot.segments
        following = segments.base_after(max(segments.floor_slot(offset), 0))
        known_end = _known_end(offset, following, end)
        return known_end, aborted_between(context, snapshot, offset, known_end)

    return AbortedBatches(find, end_offset)


def aborted_between(
    context: SegmentContext, snapshot: LogSnapshot, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """
    Return the aborted transactions that may hide records from `start_offset` up to `end_offset`.

    Raises:
        OSError, LogStorageError: the disk refused.
    """
    if start_offset >= end_offset:
        return []
    segments = snapshot.segments
    first = max(segments.floor_slot(start_offset), 0)
    indexes = (
        (verified_index(context, snapshot, slot), segments.base_after(slot))
        for slot in range(first, len(segments))
    )
    complete = _until_complete(context.filesystem, context.directory, indexes, end_offset)
    return collect_aborted(complete, start_offset, end_offset)


def _known_end(offset: int, following: int | None, end_offset: int) -> int:
    """Return the end of the answer for `offset`: that of its segment, or of the read."""
    return max(end_offset if following is None else min(following, end_offset), offset + 1)


def _until_complete(
    filesystem: FileSystem,
    directory: Path,
    indexes: Iterable[tuple[TransactionIndex, int | None]],
    end_offset: int,
) -> Iterator[TransactionIndex]:
    """
    Yield indexes up to the last that may have a transaction with offsets below `end_offset`.

    Args:
        filesystem, directory: the partition.
        indexes: indexes in order, each with the base offset of the following segment.
        end_offset: one past the last offset of the read.
    """
    for index, following in indexes:
        yield index
        if (
            following is not None
            and following >= end_offset
            and has_none_open(filesystem, directory, following, end_offset)
        ):
            return


def has_none_open(filesystem: FileSystem, directory: Path, offset: int, end_offset: int) -> bool:
    """
    Return whether a snapshot shows that at `offset` no transaction of below `end_offset` is open.

    Raises:
        LogStorageError: the disk refused.
    """
    path = SegmentFiles(directory, offset).path(FileKind.SNAPSHOT)
    try:
        entries = read_snapshot(filesystem, path, end_offset=offset)
    except CorruptStateError:
        return False
    if entries is None:
        return False
    return all(not 0 <= each.transaction_first_offset < end_offset for each in entries)


# ---- files of another process -----------------------------------------------------------------


def aborted_on_disk(filesystem: FileSystem, directory: Path, end_offset: int) -> AbortedBatches:
    """Return the filter of a read of a partition's files up to `end_offset`."""
    return AbortedBatches(partial(_find_on_disk, filesystem, directory), end_offset)


def last_stable_offset(
    filesystem: FileSystem, directory: Path, start_offset: int, end_offset: int
) -> int:
    """
    Return the end of the committed records of a log that goes from `start_offset` to `end_offset`.

    Raises:
        LogStorageError: the disk refused.
    """
    states = load_states(filesystem, directory, start_offset, end_offset)
    for batch_slice in all_batches(filesystem, directory, states.end_offset, end_offset):
        _replay(states, batch_slice)
    states.advance_high_watermark(end_offset)
    return states.last_stable_offset(end_offset)


def _find_on_disk(
    filesystem: FileSystem, directory: Path, start: int, end_offset: int
) -> tuple[int, list[AbortedTransaction]]:
    segments = segments_of(filesystem, directory)
    slot = floor_slot(segments, start)
    ahead = segments[max(slot, 0) :]
    end = _known_end(start, ahead[0].following if ahead else None, end_offset)
    indexes = ((_complete_index(filesystem, each), each.following) for each in ahead)
    try:
        complete = _until_complete(filesystem, directory, indexes, end)
        return end, collect_aborted(complete, start, end)
    except CorruptIndexError:
        base = segments[slot].base_offset if slot >= 0 else start
        first = segments[0].base_offset if segments else base
        states = load_states(filesystem, directory, first, base, at_start=True)
        return end, _aborted_by_batches(filesystem, directory, states, start, end)


def _complete_index(filesystem: FileSystem, segment: SegmentOnDisk) -> TransactionIndex:
    """
    Return the index of a segment if it has all of the segment's abort markers.

    Raises:
        CorruptIndexError: the file is damaged, or lacks a marker.
    """
    path = segment.files.transaction_index
    index = TransactionIndex(filesystem, path, segment.base_offset, read_only=True)
    index.load()
    if not _markers(filesystem, segment) <= {
        (each.producer_id, each.last_offset) for each in index.entries()
    }:
        raise CorruptIndexError(f"{path}: the index lacks an abort marker of its segment")
    return index


def _aborted_by_batches(
    filesystem: FileSystem, directory: Path, states: ProducerStates, start: int, end: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions of a range by a replay, which continues after the range until
    each transaction that began in it has ended."""
    completed: list[CompletedTransaction] = []
    for batch_slice in all_batches(filesystem, directory, states.end_offset):
        completed += _replay(states, batch_slice)
        if states.end_offset >= end and all(
            each.first_offset >= end for each in states.open_transactions()
        ):
            break
    return [
        each
        for each in aborted_of(completed)
        if each.last_offset >= start and each.first_offset < end
    ]


def _replay(states: ProducerStates, batch_slice: BatchSlice) -> list[CompletedTransaction]:
    # Slices of one piece share its columns; batches that were replayed before are skipped.
    return replay_batches(
        states,
        batch_slice.data,
        batch_slice.batches,
        batch_slice.stop,
        path=batch_slice.path,
        position=batch_slice.origin,
    )


@dataclass(slots=True)
class _WalkedSegment:
    """Abort markers of a segment below `next_offset`: producer and offset of each."""

    next_offset: int
    markers: set[tuple[int, int]] = field(default_factory=set)

    def add(self, batch_slice: BatchSlice) -> None:
        """Add the markers of a slice."""
        batches = batch_slice.batches
        rows = slice(batch_slice.first, batch_slice.stop)
        is_control = batches.attributes[rows] & CONTROL_MASK != 0
        is_control &= (batches.producer_id[rows] >= 0) & (batches.magic[rows] == MAGIC_V2)
        for row in np.flatnonzero(is_control).tolist():
            batch = batch_slice.view(batch_slice.first + row)
            try:
                if is_abort_marker(batch):
                    self.markers.add((batch.header.producer_id, batch.header.base_offset))
            except KafkaLogError:
                continue
        self.next_offset = max(self.next_offset, batch_slice.next_offset)


# The segments that were read last in this process, by path and file: tasks of one query, and
# batches of one stream, read the same segments again.
_WALKED: Final[dict[tuple[str, int], _WalkedSegment]] = {}
_WALKED_MAX: Final = 256


def _markers(filesystem: FileSystem, segment: SegmentOnDisk) -> set[tuple[int, int]]:
    """Return producer and offset of the abort markers that a segment has now."""
    facts = filesystem.stat(segment.files.log)
    if facts is None:
        return set()
    key = (str(segment.files.log), facts.file_id)
    walked = _WALKED.pop(key, None) or _WalkedSegment(segment.base_offset)
    # The order of insertion is the order of use.
    _WALKED[key] = walked
    while len(_WALKED) > _WALKED_MAX:
        _WALKED.pop(next(iter(_WALKED)), None)
    for batch_slice in all_batches(
        filesystem, segment.directory, walked.next_offset, segment.following
    ):
        walked.add(batch_slice)
    return walked.markers
