"""Shared parts of tests of the builders: rows, expected records, columns, and every append API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from hypothesis import strategies as st

from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import parse_header
from kafkalog._core.record import Record, decode_records
from kafkalog._core.records_builder import RecordsBuilder
from tests.support import reference
from tests.support import reference_records as records
from tests.support.reference import Header
from tests.support.reference_messages import Message
from tests.support.reference_records import Entry

__all__ = [
    "BUILD_METHODS",
    "FIELDS",
    "INT64_MAX",
    "ROWS",
    "TIMESTAMPS",
    "Field",
    "Row",
    "T",
    "calls_with_bad_timestamps",
    "column",
    "extend_within",
    "messages_of",
    "reference_batch",
]

Field = bytes | None
Row = tuple[Field, Field, int]

INT64_MAX = 2**63 - 1
T = 1_700_000_000_000


def reference_batch(rows: list[Row], **fields: Any) -> bytes:
    """Return the batch of records at consecutive offsets, by the reference."""
    base = rows[0][2]
    payload = records.encode(
        Entry(slot, records.wrap64(timestamp - base), key, value)
        for slot, (key, value, timestamp) in enumerate(rows)
    )
    header = Header(
        base_timestamp=base,
        max_timestamp=max(timestamp for _, _, timestamp in rows),
        last_offset_delta=len(rows) - 1,
        record_count=len(rows),
        **fields,
    )
    return reference.encode_batch(header, payload)


def messages_of(rows: list[Row], magic: int, base_offset: int = 0) -> list[Message]:
    """Return the rows as messages at consecutive offsets, for the reference to encode."""
    return [
        Message(base_offset + slot, magic, 0, timestamp if magic else -1, key, value)
        for slot, (key, value, timestamp) in enumerate(rows)
    ]


def column(fields: list[Field], offset_type: str, *, before: int = 0) -> BytesColumn:
    """Return fields as a column in Arrow's layout, with `before` other cells in front."""
    cells = [b"other"] * before + fields
    offsets = numpy.cumsum([0, *(len(cell or b"") for cell in cells)], dtype=offset_type)
    valid = [cell is not None for cell in cells]
    bitmap = numpy.packbits(valid, bitorder="little") if not all(valid) else None
    return BytesColumn(b"".join(cell or b"" for cell in cells), offsets, bitmap)


FIELDS = st.one_of(
    st.none(),
    st.binary(max_size=10),
    st.builds(bytes, st.sampled_from([62, 63, 64, 127, 128, 8191, 8192, 20_000])),
)
TIMESTAMPS = st.one_of(st.integers(-1, 200), st.integers(T, T + 300), st.just(INT64_MAX))
ROWS = st.lists(st.tuples(FIELDS, FIELDS, TIMESTAMPS), min_size=1, max_size=12)


def by_append(builder: RecordsBuilder, rows: list[Row]) -> None:
    for row in rows:
        builder.append(*row)


def by_append_at(builder: RecordsBuilder, rows: list[Row]) -> None:
    for slot, row in enumerate(rows):
        builder.append_at(slot, *row)


def by_other_buffers(builder: RecordsBuilder, rows: list[Row]) -> None:
    for key, value, timestamp in rows:
        builder.append(
            None if key is None else bytearray(key),
            None if value is None else memoryview(value),
            timestamp,
        )


def as_records(rows: list[Row]) -> list[Record]:
    return [Record(key=key, value=value, timestamp_ms=time) for key, value, time in rows]


def by_append_record(builder: RecordsBuilder, rows: list[Row]) -> None:
    for record in as_records(rows):
        builder.append_record(record)


def by_records(builder: RecordsBuilder, rows: list[Row]) -> None:
    assert len(rows) == builder.extend_records(as_records(rows))


def by_lazy_records(builder: RecordsBuilder, rows: list[Row]) -> None:
    payload = reference_batch(rows)
    lazy = decode_records(payload, parse_header(payload), 61, len(payload))
    assert len(rows) == builder.extend_records(tuple(lazy))


def by_lists(builder: RecordsBuilder, rows: list[Row]) -> None:
    keys, values, timestamps = (list(part) for part in zip(*rows, strict=True))
    times = numpy.array(timestamps, dtype=numpy.int64)
    assert len(rows) == builder.extend_lists(keys, values, times)


def by_narrow_columns(builder: RecordsBuilder, rows: list[Row]) -> None:
    keys, values, timestamps = (list(part) for part in zip(*rows, strict=True))
    times = numpy.array(timestamps, dtype=numpy.int64)
    added = builder.extend_columns(column(keys, "int32"), column(values, "int64"), times)
    assert len(rows) == added


def by_shifted_columns(builder: RecordsBuilder, rows: list[Row]) -> None:
    keys, values, timestamps = (list(part) for part in zip(*rows, strict=True))
    times = numpy.array([5, 5, 5, *timestamps, 5], dtype=numpy.int64)
    added = builder.extend_columns(
        column([*keys, b"behind"], "int64", before=3),
        column([*values, b"behind"], "int32", before=3),
        times,
        3,
        3 + len(rows),
    )
    assert len(rows) == added


def by_decoded(builder: RecordsBuilder, rows: list[Row]) -> None:
    batch = reference_batch(rows, base_offset=50)
    columns = RecordColumns(len(rows))
    decode_columns(batch, parse_header(batch), 61, len(batch), columns)
    assert len(rows) == builder.extend_decoded(batch, columns, base_offset=50)


BUILD_METHODS: list[Callable[[RecordsBuilder, list[Row]], None]] = [
    by_append,
    by_append_at,
    by_other_buffers,
    by_append_record,
    by_records,
    by_lazy_records,
    by_lists,
    by_narrow_columns,
    by_shifted_columns,
    by_decoded,
]


def extend_within(
    builder: RecordsBuilder, way: str, values: list[Field], start: int, size_limit: int
) -> int:
    """Add values from `start` on as records, lists or columns, up to a size; return how many."""
    if way == "records":
        made = [Record(value=value) for value in values]
        return builder.extend_records(made, start, -1, size_limit)
    if way == "lists":
        return builder.extend_lists(None, values, -1, start, size_limit)
    return builder.extend_columns(None, column(values, "int32"), -1, start, None, size_limit)


def calls_with_bad_timestamps(builder: RecordsBuilder) -> tuple[Callable[[], int], ...]:
    """Return calls of every append API, each with a timestamp below -1."""
    times = numpy.array([-2])
    return (
        lambda: builder.append(b"k", b"v", -2),
        lambda: builder.append_at(0, b"k", b"v", -(2**63)),
        lambda: builder.append_record(Record(timestamp_ms=-2)),
        lambda: builder.append_record(Record(), -2),
        lambda: builder.extend_lists([b"k"], [b"v"], -2),
        lambda: builder.extend_lists([b"k"], [b"v"], times),
        lambda: builder.extend_columns(None, column([b"v"], "int32"), times),
    )
