"""Calls of every append API with rows: objects, lists, Arrow, NumPy, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from kafkalog import BytesColumn, HeadersColumn, Log, Record
from tests.support.arrow_c import bitmap

__all__ = [
    "APPEND_APIS",
    "SCHEMA",
    "AppendApi",
    "Headers",
    "Row",
    "by_appender",
    "one_by_one",
    "table_of",
]

Headers: TypeAlias = list[tuple[str, bytes | None]]
# Key, value, timestamp, headers.
Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
AppendApi: TypeAlias = Callable[[Log, Sequence[Row]], object]

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.large_binary()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def one_by_one(log: Log, rows: Sequence[Row]) -> None:
    """Append records by the slow path."""
    records = (Record(key=k, value=v, timestamp_ms=t, headers=h) for k, v, t, h in rows)
    log.append(records, timestamp_ms=-1)


def by_lists(log: Log, rows: Sequence[Row]) -> None:
    """Append lists."""
    keys, values, times, headers = ([row[slot] for row in rows] for slot in range(4))
    log.append_lists(keys, values, timestamps=times, headers=headers)  # type: ignore[arg-type]


def table_of(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return a table of several chunks, the first of them a slice."""
    names = ("key", "value", "timestamp", "headers")
    made: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
    for row in made:
        if row["timestamp"] == -1:
            row["timestamp"] = None
        if not row["headers"]:
            row["headers"] = None
        elif not pa.types.is_map(schema.field("headers").type):
            row["headers"] = [{"key": key, "value": value} for key, value in row["headers"]]
    third = len(made) // 3
    parts = [made[:1] + made[:third], made[third:]]
    batches = [pa.RecordBatch.from_pylist(part, schema=schema) for part in parts]
    return pa.Table.from_batches([batches[0][1:] if rows else batches[0], batches[1]])


def by_table(log: Log, rows: Sequence[Row]) -> None:
    """Append an Arrow table."""
    log.append_columns(table_of(rows))


def by_views_and_map(log: Log, rows: Sequence[Row]) -> None:
    """Append an Arrow table of other types."""
    types = [pa.binary_view(), pa.binary_view(), pa.int64(), pa.map_(pa.string(), pa.binary())]
    schema = pa.schema(list(zip(SCHEMA.names, types, strict=True)))
    log.append_columns(
        pa.RecordBatchReader.from_batches(schema, table_of(rows, schema).to_batches())
    )


def by_arrays(log: Log, rows: Sequence[Row]) -> None:
    """Append single Arrow arrays."""
    table = table_of(rows).combine_chunks()
    keys, values, _, headers = (column.chunk(0) for column in table.columns)
    times = np.array([row[2] for row in rows], np.int64)
    log.append_columns(keys, values, headers=headers, timestamps=times)


def _column(cells: Sequence[bytes | None]) -> BytesColumn:
    """Return cells in NumPy arrays."""
    offsets = np.cumsum([0, *(len(cell or b"") for cell in cells)]).astype(np.int32)
    valid = bitmap([cell is not None for cell in cells])
    return BytesColumn(b"".join(cell or b"" for cell in cells), offsets, valid)


def by_numpy(log: Log, rows: Sequence[Row]) -> None:
    """Append NumPy arrays and offsets."""
    entries = [entry for row in rows for entry in row[3]]
    offsets = np.cumsum([0, *(len(row[3]) for row in rows)])
    keys = _column([key.encode("utf-8", "surrogateescape") for key, _ in entries])
    log.append_columns(
        _column([row[0] for row in rows]),
        _column([row[1] for row in rows]),
        headers=HeadersColumn(offsets, keys, _column([value for _, value in entries])),
        timestamps=np.array([row[2] for row in rows], np.int64),
    )


def by_appender(log: Log, rows: Sequence[Row], *, buffer_bytes: int = 1 << 20) -> None:
    """Append record after record to a buffer."""
    with log.appender(buffer_bytes=buffer_bytes) as appender:
        for key, value, timestamp_ms, headers in rows:
            appender.append(key, value, timestamp_ms, headers)


APPEND_APIS: Final[list[AppendApi]] = [
    by_lists,
    by_table,
    by_views_and_map,
    by_arrays,
    by_numpy,
    by_appender,
]
