"""Packing of a caller's records into a run of batches, which the log then writes.

Packing happens outside the log's lock, with offsets that count from zero. Under the lock, they are
moved to the log end, which writes a few bytes a batch, because the CRC does not cover them. Only
wrappers of magic 0 have their offsets under a CRC, and are built again there.

A v2 batch has one of three origins: `pack_uncompressed` (one compiled call), the packers of
`run_packer`, and a `BatchBuilder` if one batch has more header fields, such as a producer.
Without `pack_uncompressed` an append of one record takes 34,163 instructions instead of 12,271.

Thread-safety: may be called from any thread; a `MemoryRecords` belongs to one caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import EllipsisType
from typing import Final, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from kafkalog._core.arrow_source import ArrowRows, ArrowSource, arrow_column, arrow_headers
from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.records_builder import RecordsBuilder
from kafkalog._core.run_builder import SpareBuilder, pack_uncompressed
from kafkalog._core.timestamps import to_timestamp_ms, to_timestamps_ms
from kafkalog.errors import InvalidRecordError
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.run_packer import BatchPacker, RunPacker, packer_of

__all__ = [
    "ArrowTable",
    "FieldColumn",
    "HeaderColumn",
    "HeaderField",
    "HeaderList",
    "Timestamps",
    "TimestampsLike",
    "pack_columns",
    "pack_lists",
    "pack_records",
    "timestamps_of",
]

# Shared by all threads of the process; see SpareBuilder.
_SPARE_BUILDER: Final = SpareBuilder()


class ExportsArray(Protocol):
    """An array, or a record batch, of Arrow."""

    def __arrow_c_array__(self, requested_schema: None = None) -> tuple[object, object]: ...


class ExportsStream(Protocol):
    """A table, or anything else that gives record batches of Arrow."""

    def __arrow_c_stream__(self, requested_schema: None = None) -> object: ...


ArrowTable: TypeAlias = ExportsArray | ExportsStream
# Keys or values of many records: a list of bytes or None, or a column in Arrow's layout.
FieldColumn: TypeAlias = list[bytes | None] | list[bytes] | CellColumn | ExportsArray | None
HeaderField: TypeAlias = bytes | bytearray | memoryview | None
HeaderList: TypeAlias = Sequence[Iterable[tuple[str, HeaderField]] | None]
HeaderColumn: TypeAlias = HeaderList | HeadersColumn | ExportsArray | None
Timestamps: TypeAlias = int | npt.NDArray[np.int64]
TimestampsLike: TypeAlias = int | datetime | Sequence[int | datetime] | npt.NDArray[np.generic]

# Adds records to a builder while they fit, and returns their number; 0 if no record is left.
_Feed: TypeAlias = Callable[[RecordsBuilder], int]
# The same, of those from a slot on.
_Extend: TypeAlias = Callable[[RecordsBuilder, int], int]


def pack_records(
    records: Iterable[Record], rules: AppendRules, now_ms: int, timestamp_ms: int | None = None
) -> MemoryRecords:
    """
    Pack records in batches, compressed by `compression.type`.

    Args:
        records: records to pack; a single Record is refused as a likely mistake.
        rules: batch size, compression, timestamp type, size limit.
        now_ms: time of the append.
        timestamp_ms: for records without one; `now_ms` if None.

    Raises:
        RecordTooLargeError: a batch is larger than `max.message.bytes`.
        RecordValidationError: keys are missing where the log is compacted, or timestamps are out
            of bounds; the error lists the records.
    """
    if type(records) is list:
        record_list = records
    elif isinstance(records, Record):
        raise TypeError("records must be an iterable, got one Record: use append([record])")
    else:
        # Before packing starts: the iterable may itself append.
        record_list = list(records)
    default_ms = now_ms if timestamp_ms is None else timestamp_ms
    if rules.is_plain:
        run = pack_uncompressed(_SPARE_BUILDER, record_list, rules.limits, now_ms, default_ms)
        if run is not None:
            return run
    return _pack_list(record_list, rules, now_ms, default_ms)


def _pack_list(
    records: list[Record], rules: AppendRules, now_ms: int, default_ms: int
) -> MemoryRecords:
    limit = rules.batch_bytes
    return _pack(
        _Slots(
            lambda builder, start: builder.extend_records(records, start, default_ms, limit),
            len(records),
        ),
        rules,
        now_ms,
    )


def timestamps_of(timestamps: TimestampsLike) -> Timestamps:
    """
    Return the timestamps of an append in integers: one for all records, or one for each.

    Raises:
        TypeError: floats, or another type; also an array of `datetime64`, which has no time zone.
        ValueError: a datetime without a time zone, or before 1970.
    """
    if type(timestamps) is int:
        return timestamps
    if isinstance(timestamps, list | tuple):
        return to_timestamps_ms(timestamps, "timestamps")
    # Arrays of all libraries; a scalar of NumPy is one for all records.
    if hasattr(timestamps, "__array__") and not isinstance(timestamps, np.generic):
        return to_timestamps_ms(np.asarray(timestamps), "timestamps")
    if isinstance(timestamps, Sequence) and not isinstance(timestamps, str | bytes):
        return to_timestamps_ms(list(timestamps), "timestamps")
    return to_timestamp_ms(cast("int | datetime", timestamps), "timestamps")


def pack_columns(
    keys: FieldColumn | ArrowTable,
    values: FieldColumn | EllipsisType,
    timestamps: Timestamps | None,
    rules: AppendRules,
    now_ms: int,
    headers: HeaderColumn = None,
) -> MemoryRecords:
    """
    Pack records given as columns, as `pack_records` does.

    Args:
        keys: a column; a table instead, where nothing else is given.
        values: a column of the same kind; None for records that have none; `...` where the caller
            gave nothing, so that a table must have its own.
        timestamps: one for all, or one for each; the time of the append if None.
        rules: batch size, compression, timestamp type, size limit.
        now_ms: time of the append.
        headers: a column of the same kind; None for records that have none.

    Raises:
        RecordTooLargeError: a batch is larger than `max.message.bytes`.
        RecordValidationError: keys are missing where the log is compacted, or timestamps are out
            of bounds; the error lists the records.
        InvalidRecordError: the Arrow data has other types, or a header has no key.
    """
    times = now_ms if timestamps is None else timestamps
    if (values is None or values is ...) and headers is None and _is_table(keys):
        if not isinstance(times, int):
            raise TypeError("the timestamps of a table are a column of it")
        feed = _Batches(ArrowSource(keys), times, rules.batch_bytes, has_values=values is ...)
        return _pack(feed, rules, now_ms, runs_foreign_code=True)
    if values is ...:
        raise TypeError("values must be given; pass values=None to write tombstones")
    if isinstance(keys, list | None) and isinstance(values, list | None):
        if not isinstance(headers, Sequence | None):
            raise TypeError("headers must be a list if keys and values are lists")
        return pack_lists(keys, values, times, rules, now_ms, headers)
    key_column, value_column, headers = _cells(keys), _cells(values), _headers(headers)
    count = _common_length(key_column, value_column, headers)
    packer = packer_of(rules, now_ms)
    if rules.is_plain and isinstance(packer, BatchPacker):
        packer.pack_columns(key_column, value_column, times, count, headers)
        return packer.run()
    limit = rules.batch_bytes
    return _fill(
        _Slots(
            lambda builder, start: builder.extend_columns(
                key_column, value_column, times, start, None, limit, headers
            ),
            count,
        ),
        packer,
        now_ms,
    )


def pack_lists(
    keys: Sequence[HeaderField] | None,
    values: Sequence[HeaderField] | None,
    timestamps: Timestamps,
    rules: AppendRules,
    now_ms: int,
    headers: HeaderList | None = None,
) -> MemoryRecords:
    """Pack records given as lists; arguments and errors as for `pack_columns`."""
    limit = rules.batch_bytes
    count = _common_length(keys, values, headers)
    value_list = [None] * count if values is None else values
    return _pack(
        _Slots(
            lambda builder, start: builder.extend_lists(
                keys, value_list, timestamps, start, limit, headers
            ),
            count,
        ),
        rules,
        now_ms,
        runs_foreign_code=headers is not None,
    )


def _is_table(keys: FieldColumn | ArrowTable) -> TypeGuard[ArrowTable]:
    """Return whether the argument is a table of whole records, not a column of keys."""
    if hasattr(keys, "__arrow_c_array__"):
        return arrow_column(keys) is None
    return hasattr(keys, "__arrow_c_stream__")


def _cells(field: FieldColumn | ArrowTable) -> CellColumn | None:
    if field is None or isinstance(field, CellColumn):
        return field
    if hasattr(field, "__arrow_c_array__"):
        column = arrow_column(field)
        if column is None:
            raise InvalidRecordError("keys and values must be columns of bytes, got structures")
        return column
    raise TypeError("keys and values must be two lists or two columns; one may be None")


def _headers(headers: HeaderColumn) -> HeadersColumn | None:
    if headers is None or isinstance(headers, HeadersColumn):
        return headers
    if hasattr(headers, "__arrow_c_array__"):
        return arrow_headers(headers)
    raise TypeError("headers must be a column if keys and values are columns")


def _common_length(
    keys: Sequence[HeaderField] | CellColumn | None,
    values: Sequence[HeaderField] | CellColumn | None,
    headers: HeaderList | HeadersColumn | None,
) -> int:
    """Return the number of records in columns or lists."""
    if keys is None and values is None:
        raise TypeError("keys or values must be given")
    counts = {len(column) for column in (keys, values, headers) if column is not None}
    if len(counts) > 1:
        raise ValueError(f"keys, values and headers must have one length, got {sorted(counts)}")
    return counts.pop()


class _Slots:
    """Feed from lists or columns, slot after slot."""

    def __init__(self, extend: _Extend, count: int) -> None:
        self._extend = extend
        self._count = count
        self._start = 0

    def __call__(self, builder: RecordsBuilder) -> int:
        if self._start >= self._count:
            return 0
        taken = self._extend(builder, self._start)
        self._start += taken
        return taken


class _Batches:
    """Feed from Arrow's record batches; a batch of the log may contain several of them."""

    def __init__(
        self, source: ArrowSource, default_ms: int, limit: int, *, has_values: bool
    ) -> None:
        self._has_values = has_values
        self._source = source
        self._default_ms = default_ms
        self._limit = limit
        self._rows: ArrowRows | None = None
        self._start = 0

    def __call__(self, builder: RecordsBuilder) -> int:
        taken = 0
        while True:
            rows = self._rows
            if rows is None or self._start == rows.count:
                self._rows, self._start = next(self._source, None), 0
                if self._rows is None:
                    return taken
                if self._has_values and self._rows.values is None:
                    raise InvalidRecordError(
                        "Arrow: the table has no column 'value', so each record would be a"
                        " tombstone; pass values=None to write tombstones"
                    )
                continue
            times = self._default_ms if rows.timestamps is None else rows.timestamps
            count = builder.extend_columns(
                rows.keys, rows.values, times, self._start, None, self._limit, rows.headers
            )
            self._start += count
            taken += count
            if self._start < rows.count:
                return taken


def _pack(
    feed: _Feed, rules: AppendRules, now_ms: int, *, runs_foreign_code: bool = False
) -> MemoryRecords:
    return _fill(feed, packer_of(rules, now_ms, is_shared=not runs_foreign_code), now_ms)


def _fill(feed: _Feed, packer: RunPacker, now_ms: int) -> MemoryRecords:
    """Fill batch after batch of the log's format."""
    while feed(packer.builder):
        packer.close(now_ms)
    return packer.run()
