"""Records of a caller become a run of batches, ready to be stamped and written.

Packing happens outside the log's lock, with offsets that count from zero; stamping, under the
lock, moves them to the log end and costs a few bytes a batch, because the CRC does not cover them.
Only wrappers of magic 0 have their offsets under a CRC, and are made again there.

Thread-safety: builder and columns are reused by each thread for itself; a `PackedRun` is good until
the same thread packs again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.columns import RecordColumns, decode_columns, decode_run
from kafkalog._core.header import parse_header
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.record import Record
from kafkalog.layout import MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.model import NOTHING_REWRITTEN, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.batch_facts import BatchFacts
from kafkalog.records.codecs import Codec
from kafkalog.records.drafts import Drafts, close_batch
from kafkalog.records.packed_run import PackedRun
from kafkalog.records.record_faults import RecordFaults

__all__ = ["FieldColumn", "Timestamps", "pack_columns", "pack_records"]

# Keys or values of many records: a list of bytes or None, or a column in Arrow's layout.
FieldColumn: TypeAlias = list[bytes | None] | list[bytes] | BytesColumn | None
Timestamps: TypeAlias = int | npt.NDArray[np.int64]

# Adds records from a slot on to a builder, and says how many went in.
_Extend: TypeAlias = Callable[[BatchBuilder | MessageSetBuilder, int], int]


class _Workshop(threading.local):
    """What one thread reuses from append to append."""

    def __init__(self) -> None:
        self.builder = BatchBuilder()


_WORKSHOP = _Workshop()


def pack_records(
    records: Iterable[Record], rules: AppendRules, now_ms: int, timestamp_ms: int | None = None
) -> PackedRun:
    """
    Pack records in batches, compressed as `compression.type` says.

    Args:
        records: what to pack; a single Record is refused, as it is surely a slip.
        rules: batch size, compression, timestamp type, size limit.
        now_ms: time of the append.
        timestamp_ms: for records without one; `now_ms` if None.

    Raises:
        RecordTooLargeError: a batch is larger than `max.message.bytes`.
        RecordValidationError: keys are missing where the log is compacted, or timestamps are out
            of bounds; the error lists the records.
    """
    if isinstance(records, Record):
        raise TypeError("append takes an iterable of records: write append([record])")
    wanted: Sequence[Record] = records if isinstance(records, (list, tuple)) else list(records)
    default_ms = now_ms if timestamp_ms is None else timestamp_ms
    limit = rules.batch_bytes
    return _pack(
        lambda builder, start: builder.extend_records(wanted, start, default_ms, limit),
        len(wanted),
        rules,
        now_ms,
    )


def pack_columns(
    keys: FieldColumn, values: FieldColumn, timestamps: Timestamps, rules: AppendRules, now_ms: int
) -> PackedRun:
    """
    Pack records without headers, given as columns, as `pack_records` does.

    Args:
        keys, values: two lists, or two columns; None for records that have none.
        timestamps: one for all, or one for each.
        rules: batch size, compression, timestamp type, size limit.
        now_ms: time of the append.

    Raises:
        RecordTooLargeError: a batch is larger than `max.message.bytes`.
        RecordValidationError: keys are missing where the log is compacted, or timestamps are out
            of bounds; the error lists the records.
    """
    limit = rules.batch_bytes
    if isinstance(keys, BytesColumn | None) and isinstance(values, BytesColumn | None):
        key_column, value_column = keys, values
        count = _common_length(key_column, value_column)
        return _pack(
            lambda builder, start: builder.extend_columns(
                key_column, value_column, timestamps, start, None, limit
            ),
            count,
            rules,
            now_ms,
        )
    if not (isinstance(keys, list | None) and isinstance(values, list | None)):
        raise TypeError("keys and values must be two lists or two columns; one may be None")
    count = _common_length(keys, values)
    key_list, value_list = keys, [None] * count if values is None else values
    return _pack(
        lambda builder, start: builder.extend_lists(key_list, value_list, timestamps, start, limit),
        count,
        rules,
        now_ms,
    )


def _common_length(keys: FieldColumn, values: FieldColumn) -> int:
    """Return how many records two columns, or one of them, hold."""
    counts = {len(column) for column in (keys, values) if column is not None}
    if not counts:
        raise TypeError("keys or values must be given")
    if len(counts) > 1:
        raise ValueError(f"keys and values differ in length: {sorted(counts)}")
    return counts.pop()


def _pack(extend: _Extend, count: int, rules: AppendRules, now_ms: int) -> PackedRun:
    """Fill batch after batch of the log's format."""
    if rules.magic < MAGIC_V2:
        return _pack_messages(extend, count, rules, now_ms)
    append_time = now_ms if rules.gives_time else None
    codec = rules.wanted_codec or Codec.NONE
    builder = _WORKSHOP.builder
    faults: RecordFaults | None = None
    parts: list[memoryview] = []
    batches: list[BatchFacts] = []
    start = 0
    while start < count:
        builder.reset()
        taken = extend(builder, start)
        if rules.may_fail(
            now_ms, builder.null_key_count, builder.min_timestamp, builder.max_timestamp
        ):
            faults = faults or RecordFaults(rules, now_ms)
            batch = builder.finish()
            columns = RecordColumns(taken)
            decode_columns(batch, parse_header(batch), RECORD_BATCH_OVERHEAD, len(batch), columns)
            faults.add(columns, start)
        # "producer" keeps what a producer chose; records that come singly have chosen nothing.
        part = close_batch(builder, rules, codec, start, append_time)
        largest = builder.max_timestamp if append_time is None else append_time
        last = start + taken - 1
        batches.append(BatchFacts(len(part), start, last, largest, last if largest >= 0 else -1))
        parts.append(part)
        start += taken
    if faults is not None:
        faults.raise_if_any()
    # One copy: stamping writes into the batches, and the builder's memory is not for writing.
    return PackedRun(
        bytearray().join(parts), batches, start, append_time, rewriting=_rewriting(codec)
    )


def _pack_messages(extend: _Extend, count: int, rules: AppendRules, now_ms: int) -> PackedRun:
    """Fill one message set after the other, plain or to be wrapped."""
    append_time = now_ms if rules.gives_time else None
    codec = rules.wanted_codec or Codec.NONE
    drafts = Drafts(rules, append_time)
    faults: RecordFaults | None = None
    start = 0
    while start < count:
        builder = MessageSetBuilder(rules.magic)
        builder.reset(append_time=append_time)
        taken = extend(builder, start)
        if rules.may_fail(
            now_ms, builder.null_key_count, builder.min_timestamp, builder.max_timestamp
        ):
            faults = faults or RecordFaults(rules, now_ms)
            columns = RecordColumns(taken)
            decode_run(builder.finish_plain(), 0, columns, check_crc=False)
            faults.add(columns, start)
        drafts.close(builder, codec)
        start += taken
    if faults is not None:
        faults.raise_if_any()
    return drafts.run(_rewriting(codec))


def _rewriting(codec: Codec) -> Rewriting:
    """Return what packing does: records that come singly have no codec."""
    return Rewriting(Codec.NONE, codec) if codec else NOTHING_REWRITTEN
