"""Conversion of the engine's column batches to exactly the Arrow types of the query's schema.

Columns of the same type are passed on; the new parts are eight bytes a row for times, and the bits
of null headers. No record becomes an object.

Thread-safety: none; a converter is one reader's. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog._core.arrow_export import ArrowBatch
from kafkalog._core.key_hash import hash_cells
from kafkalog.spark.arrow_cells import array_of, numbers_of
from kafkalog.spark.schema import Column

__all__ = ["RowConverter", "times_of"]

# Spark counts in microseconds; a time beyond their range becomes the last one in it.
_MS_MAX: Final = (2**63 - 1) // 1000
_HASH_BYTES: Final = 16


class RowConverter:
    """
    Converter to record batches of one schema.

    Args:
        columns: of the schema, in its order.
        schema: of the query.
        segment_of: returns the file name of the segment of each offset, for the column of segments.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        schema: pa.Schema,
        segment_of: Callable[[npt.NDArray[np.int64]], list[str]],
    ) -> None:
        self._columns = tuple(columns)
        self._schema = schema
        self._segment_of = segment_of
        self.engine_columns = _engine_columns(columns)

    def convert(self, batch: ArrowBatch) -> pa.RecordBatch:
        """Return the rows of a batch of `engine_columns`."""
        rows = pa.record_batch(batch)
        arrays = [
            self._array(column, field.type, rows)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return rows from cells by column name; missing columns are null."""
        arrays = [
            pa.array([row.get(field.name) for row in rows], field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, column: Column, kind: pa.DataType, rows: pa.RecordBatch) -> pa.Array:
        match column.name:
            case "timestamp":
                return array_of(kind, times_of(numbers_of(rows.column("timestamp"), np.int64)))
            case "timestampType":
                # The engine's null keeps its number: -1, as in Kafka.
                return array_of(kind, numbers_of(rows.column("timestamp_type"), np.int32))
            case "headers":
                return _headers(rows.column("headers"), kind)
            case "keyHash":
                return _key_hashes(rows.column("key"))
            case "segment":
                offsets = numbers_of(rows.column("offset"), np.int64)
                return pa.array(self._segment_of(offsets), kind)
        if not column.engine:
            return pa.nulls(rows.num_rows, kind)
        return rows.column(column.engine)


def _engine_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    names = [column.engine for column in columns if column.engine]
    if not names or any(column.name == "segment" for column in columns):
        names.append("offset")
    return tuple(dict.fromkeys(names))


def times_of(milliseconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return times in microseconds; times outside their range become its first or last."""
    if len(milliseconds) and (milliseconds.max() > _MS_MAX or milliseconds.min() < -_MS_MAX):
        milliseconds = np.clip(milliseconds, -_MS_MAX, _MS_MAX)
    return milliseconds * 1000


def _headers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the headers, null for a record without any, with text for their keys."""
    pairs = array.values
    offsets = array.buffers()[1]
    ends = np.frombuffer(offsets, np.int32, len(array) + 1)
    has_any = ends[1:] > ends[:-1]
    bits = pa.py_buffer(np.packbits(has_any, bitorder="little"))
    texts = _texts(pairs.field(0))
    struct = pa.Array.from_buffers(
        kind.value_type, len(pairs), [None], children=[texts, pairs.field(1)]
    )
    return pa.Array.from_buffers(kind, len(array), [bits, offsets], children=[struct])


def _texts(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # A broker's clients replace invalid UTF-8, too.
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _key_hashes(keys: pa.Array) -> pa.Array:
    """Return the MD5 sums of the keys, null for a null key."""
    validity, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, len(keys) + 1)
    # Arrow's own view of its bytes has signed numbers.
    octets = memoryview(b"" if data is None else data).cast("B")
    hashes = hash_cells(octets, ends)
    slots = np.arange(0, (len(keys) + 1) * _HASH_BYTES, _HASH_BYTES, dtype=np.int32)
    buffers = [validity, pa.py_buffer(slots), pa.py_buffer(hashes)]
    return pa.Array.from_buffers(pa.binary(), len(keys), buffers)
