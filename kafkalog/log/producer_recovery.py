"""Replay of producer state from the batches of a log: after a start, and for a transaction index.

Replayed batches were accepted before; none is refused. The state after a batch is that of the
broker that wrote the log, so its snapshots and its transaction index are reproduced.

Of the batches of a producer without transactions only the last five matter, and of a transaction
its first batch, its marker, and again the last five. They are chosen by array arithmetic, so that
replaying costs by producers and transactions, not by batches.

Pure functions over bytes and state; called under the log's lock.
"""

from __future__ import annotations

import logging
from os import PathLike

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import KafkaLogError
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import ControlType
from kafkalog.state.producer_entry import NO_SEQUENCE, WINDOW_BATCHES
from kafkalog.state.producers import (
    CompletedTransaction,
    ProducerAppend,
    ProducerChecks,
    ProducerStates,
)

__all__ = ["aborted_of", "add_batch", "replay_batches"]

logger = logging.getLogger(__name__)

NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1

_Rows = npt.NDArray[np.intp]


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
    wanted = [
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
        *wanted, strict=True
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
    data_behind = data_so_far[group_ends][np.cumsum(is_first) - 1] - data_so_far
    kept = order[is_control | begins | (data_behind < WINDOW_BATCHES)]
    kept.sort()
    selected: _Rows = rows[kept]
    return selected
