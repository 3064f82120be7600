"""Transactions of a partition that somebody else may be writing, told from its batches by `pread`.

From the newest producer snapshot below what is asked, and from the headers and markers behind it;
without a snapshot from the first segment. Damage is walked around: where a marker was lost in it,
the transaction stays open, and a reader of committed records sees too little, never what was
aborted.

Thread-safety: functions over files; they write nothing and map nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalog.errors import OffsetOutOfRangeError
from kafkalog.files.filesystem import FileSystem
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.producer_replay import aborted_of, load_states, replay_batches
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.on_disk import floor_slot, segments_of
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.conditions import Integers
from kafkalog.state.producers import CompletedTransaction, ProducerStates

__all__ = ["aborted_by_batches", "all_batches", "last_stable_offset"]

_ANY_TIME: Final = Integers()
_MAX_BATCH_BYTES: Final = 2**31 - 1
_NO_END: Final = 2**62
# Looks at a directory whose files went while they were read.
_RETRIES: Final = 3


def all_batches(
    filesystem: FileSystem,
    directory: Path,
    start: int,
    end: int | None = None,
    *,
    timestamps: Integers = _ANY_TIME,
    check_crcs: bool = False,
) -> Iterator[BatchSlice]:
    """
    Yield what can be read of a range, and say nothing of what cannot, or is not there.

    Args:
        filesystem: the disk.
        directory: the partition's.
        start, end: the offsets; as far as the log goes if None.
        timestamps: those that are wanted; slices of others are not.
        check_crcs: whether sums are checked, as far as the slices are (`check_crcs`).

    Raises:
        LogStorageError: the disk refused.
    """
    reader = RangeReader(
        filesystem,
        directory,
        start,
        _NO_END if end is None else end,
        RangeOptions(
            timestamps=timestamps,
            is_hidden=None,
            check_crcs=check_crcs,
            max_batch_bytes=_MAX_BATCH_BYTES,
            retries=_RETRIES,
        ),
        on_damage=_skip_damage,
        on_missing=_stop_at_missing,
    )
    return reader.batch_slices()


def last_stable_offset(
    filesystem: FileSystem, directory: Path, start_offset: int, end_offset: int
) -> int:
    """
    Return how far committed records may be read.

    Args:
        filesystem: the disk.
        directory: the partition's.
        start_offset, end_offset: of its log.

    Raises:
        LogStorageError: the disk refused.
    """
    states = load_states(filesystem, directory, start_offset, end_offset)
    for batch_slice in all_batches(filesystem, directory, states.end_offset, end_offset):
        _replay(states, batch_slice)
    states.advance_high_watermark(end_offset)
    unstable = states.first_unstable_offset
    return end_offset if unstable is None else min(unstable, end_offset)


def aborted_by_batches(
    filesystem: FileSystem, directory: Path, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """
    Return the aborted transactions that may hide records of a range.

    It goes on behind the range until each transaction that began in it has ended.

    Raises:
        LogStorageError: the disk refused.
    """
    segments = segments_of(filesystem, directory)
    slot = floor_slot(segments, start_offset)
    base = segments[slot].base_offset if slot >= 0 else start_offset
    first = segments[0].base_offset if segments else base
    states = load_states(filesystem, directory, first, base, at_start=True)
    completed: list[CompletedTransaction] = []
    for batch_slice in all_batches(filesystem, directory, states.end_offset):
        completed += _replay(states, batch_slice)
        if states.end_offset >= end_offset and all(
            each.first_offset >= end_offset for each in states.open_transactions()
        ):
            break
    return [
        each
        for each in aborted_of(completed)
        if each.last_offset >= start_offset and each.first_offset < end_offset
    ]


def _replay(states: ProducerStates, batch_slice: BatchSlice) -> list[CompletedTransaction]:
    # Stretches of one piece share its columns, and what was replayed before is passed over.
    return replay_batches(
        states,
        batch_slice.data,
        batch_slice.batches,
        batch_slice.stop,
        path=batch_slice.path,
        position=batch_slice.origin,
    )


def _skip_damage(damage: Damage) -> None:
    """Damage is told by who reads the records."""


def _stop_at_missing(error: OffsetOutOfRangeError) -> int:
    """What is missing is told by who reads the records."""
    return error.log_start_offset or 0
