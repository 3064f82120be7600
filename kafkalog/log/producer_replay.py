"""Producer state rebuilt from the batches of a log, from the newest producer snapshot on.

Every replayed batch was accepted once; nothing is refused. The state after a batch equals that of
the broker that wrote the log, so its snapshots and its transaction index come out again.

Of the batches of a producer without transactions only the last five matter, and of a transaction
its first batch, its marker, and again the last five. They are chosen by array arithmetic, so the
cost of a replay depends on producers and transactions, not on batches.

Corrupt ranges are skipped. If a corrupt range holds the marker of a transaction, the transaction
stays open: a reader of committed records then sees too little, never aborted records.

Below the log start, where a crash during a deletion leaves any of the segments, in part or whole, a
gap is not reported. The states from before such a gap are removed: transactions may have ended in
the gap, and sequences may have advanced. A broker replays nothing below the log start.

Thread-safety: functions over bytes, files and states of the caller, without a lock. They write
nothing to the disk.
"""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from kafkalog.log.batch_walk import ResumePoint
from kafkalog.log.reading import after_damage, start_position
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import ControlType
from kafkalog.state.producer_entry import NO_SEQUENCE, WINDOW_BATCHES
from kafkalog.state.producers import (
    CompletedTransaction,
    ProducerAppend,
    ProducerChecks,
    ProducerStates,
)
from kafkalog.state.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot

__all__ = ["aborted_of", "add_batch", "load_states", "replay_batches", "replay_segments"]

logger = logging.getLogger(__name__)

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1

WALK_BATCHES = 4096

_Rows = npt.NDArray[np.intp]


def load_states(
    filesystem: FileSystem,
    directory: Path,
    start_offset: int,
    end_offset: int,
    *,
    at_start: bool = False,
) -> ProducerStates:
    """
    Return the state of the newest snapshot between two offsets; without one, none at the first.

    Args:
        filesystem: the disk.
        directory: directory of the partition.
        start_offset: snapshots above it are used.
        end_offset: snapshots up to it are used.
        at_start: whether a snapshot at `start_offset`, for the offsets below it, is used, too.

    Raises:
        LogStorageError: the disk refused.
    """
    files = SnapshotFiles(filesystem, directory, read_only=True)
    # Read-only: snapshots outside this part of the log are left out, and no file is removed.
    files.truncate(start_offset if at_start else start_offset + 1, end_offset)
    states = ProducerStates(directory, end_offset=start_offset)
    latest = files.load_latest()
    if latest is not None:
        offset, entries = latest
        states.load(entries, offset)
    return states


def replay_segments(
    states: ProducerStates, snapshot: LogSnapshot, *, last_slot: int | None = None
) -> list[CompletedTransaction]:
    """
    Bring states forward from where they end to the end of a segment; return what was completed.

    Args:
        states: state of the records below its end, which is in the log.
        snapshot: the log.
        last_slot: the last segment to replay; that of the log if None.
    """
    segments = snapshot.segments
    completed: list[CompletedTransaction] = []
    if states.end_offset >= snapshot.end_offset:
        # After every stop in order; looking for nothing costs as much as the rest of an opening.
        return completed
    columns: BatchColumns | None = None
    stop = len(segments) if last_slot is None else last_slot + 1
    for slot in range(max(segments.floor_slot(states.end_offset), 0), stop):
        segment, bound = segments.segments[slot], snapshot.read_bound(slot)
        if bound.end:
            position: int | None = 0
            if segment.base_offset < states.end_offset:
                position = start_position(segment, states.end_offset, bound, "skip")
            if position is not None:
                columns = columns or BatchColumns(WALK_BATCHES)
                start = ResumePoint(position, segment.base_offset)
                on_damage = after_damage(segment, bound, "skip")
                for walked in segment.walk(start, bound, columns, on_damage):
                    _clear_before_gap(states, columns, walked.count, snapshot.start_offset)
                    completed += replay_batches(
                        states,
                        walked.data,
                        columns,
                        walked.count,
                        path=segment.path,
                        position=walked.origin,
                    )
        if states.end_offset < bound.following_offset <= snapshot.start_offset:
            states.clear(bound.following_offset)
        elif bound.following_offset > states.end_offset:
            states.advance_to(bound.following_offset)
    return completed


def _clear_before_gap(
    states: ProducerStates, columns: BatchColumns, used: int, log_start_offset: int
) -> None:
    """
    Remove the states before the last gap between batches that ends at or below the log start.

    Args:
        states: state below the first of the batches.
        columns: headers of the batches.
        used: number of them.
        log_start_offset: the log start offset.
    """
    if used == 0 or states.end_offset >= log_start_offset:
        return
    base_offset = columns.base_offset[:used]
    expected = np.empty(used, dtype=np.int64)
    expected[0] = states.end_offset
    expected[1:] = columns.last_offset[: used - 1] + 1
    ends_gap = (base_offset > np.maximum(expected, states.end_offset)) & (
        base_offset <= log_start_offset
    )
    rows = np.flatnonzero(ends_gap)
    if len(rows):
        states.clear(int(base_offset[rows[-1]]))


def replay_batches(
    states: ProducerStates,
    data: memoryview,
    columns: BatchColumns,
    count: int | None = None,
    *,
    path: str | PathLike[str] | None = None,
    position: int = 0,
) -> list[CompletedTransaction]:
    """
    Advance the state over a run of batches.

    Args:
        states: state below the first of them; batches that it covers already are skipped.
        data: the scanned bytes.
        columns: headers of the scan, with positions from the start of `data`.
        count: number of them, all if None.
        path: the segment, for messages.
        position: position of `data` in it.

    Returns the transactions whose markers are among them, in order.
    """
    used = len(columns) if count is None else count
    if used == 0:
        return []
    append = states.begin_append(ProducerChecks.NONE)
    rows = _rows_that_matter(columns, used, states.end_offset)
    fields = [
        column[rows].tolist()
        for column in (
            columns.position,
            columns.size_bytes,
            columns.base_offset,
            columns.last_offset,
            columns.max_timestamp,
            columns.producer_id,
            columns.producer_epoch,
            columns.base_sequence,
            columns.attributes,
        )
    ]
    for start, size, base, last, timestamp, producer, epoch, sequence, attributes in zip(
        *fields, strict=True
    ):
        if attributes & CONTROL_MASK:
            batch = data[start : start + size]
            add_marker(append, BatchView(batch, path=path, position=position + start))
        else:
            transactional = bool(attributes & TRANSACTIONAL_MASK)
            append.add_data(producer, epoch, sequence, base, last, timestamp, transactional)
    completed = append.commit()
    states.advance_to(max(states.end_offset, int(columns.last_offset[used - 1]) + 1))
    return completed


def add_batch(append: ProducerAppend, batch: BatchView) -> None:
    """
    Add a batch, with the offsets that it has, to a current append.

    Raises:
        ProducerStateError: it may not be appended.
    """
    header = batch.header
    if header.producer_id < 0:
        return
    if header.is_control:
        add_marker(append, batch)
        return
    append.add_data(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.is_transactional,
    )


def add_marker(append: ProducerAppend, batch: BatchView) -> None:
    """
    Add a control batch: the end of a transaction, or an empty one.

    A control batch that compaction has emptied is ignored: its whole transaction was removed. A
    marker that cannot be decoded is skipped with a warning, and its transaction stays open: a
    reader of committed records then gets too few records, never aborted ones.
    """
    header = batch.header
    try:
        # The first record decides; a broker reads no other.
        record = next(iter(batch.control_records()), None)
    except KafkaLogError as error:
        where = f"{batch.path or 'a batch'}:{batch.position}, offset {header.base_offset}"
        logger.warning("%s: a marker is passed over: %s", where, error)
        return
    if record is None or record.type not in (ControlType.ABORT, ControlType.COMMIT):
        return
    append.add_marker(
        header.producer_id,
        header.producer_epoch,
        max(record.fields["coordinatorEpoch"], NO_COORDINATOR_EPOCH),
        header.base_offset,
        header.max_timestamp,
        is_abort=record.type is ControlType.ABORT,
    )


def aborted_of(completed: list[CompletedTransaction]) -> list[AbortedTransaction]:
    """Return the entries of the transaction index for completed transactions."""
    return [
        AbortedTransaction(
            each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
        )
        for each in completed
        if each.is_aborted
    ]


def _rows_that_matter(columns: BatchColumns, used: int, end_offset: int) -> _Rows:
    """
    Return the rows whose replay leaves the state that a replay of all of them would.

    Of each producer: its markers, the first batch of each transaction, and the last five batches.
    """
    producers = columns.producer_id[:used]
    matters = (producers >= 0) & (columns.last_offset[:used] >= end_offset)
    # No producer has such an epoch or sequence, and no snapshot can hold it: ignore the batch.
    matters &= columns.producer_epoch[:used] >= NO_PRODUCER_EPOCH
    is_marker = (columns.attributes[:used] & CONTROL_MASK) != 0
    matters &= (columns.base_sequence[:used] >= NO_SEQUENCE) | is_marker
    rows = np.flatnonzero(matters)
    if len(rows) <= WINDOW_BATCHES:
        return rows
    order = np.argsort(producers[rows], kind="stable")
    grouped = producers[rows][order]
    attributes = columns.attributes[rows][order]
    is_control = (attributes & CONTROL_MASK) != 0
    in_transaction = ((attributes & TRANSACTIONAL_MASK) != 0) & ~is_control
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = grouped[1:] != grouped[:-1]
    begins = in_transaction.copy()
    begins[1:] &= is_first[1:] | ~in_transaction[:-1]
    data_so_far = np.cumsum(~is_control)
    group_ends = np.flatnonzero(np.append(is_first[1:], True))
    data_after = data_so_far[group_ends][np.cumsum(is_first) - 1] - data_so_far
    kept = order[is_control | begins | (data_after < WINDOW_BATCHES)]
    kept.sort()
    selected: _Rows = rows[kept]
    return selected
