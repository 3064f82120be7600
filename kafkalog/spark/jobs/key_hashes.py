"""The keys of ranges of logs, as hashes and offsets of records that may be their keys' latest.

A task reads ranges of the log and emits, for each key, its hash and the last offset: the content of
a map of a million keys when it was full, or when the range ended. The hash distributes the entries
to slices of the partition; they are packed, some dozens to a row. So Spark, which brings the rows
of a slice together (continued in `latest_offsets`), carries few large cells. No value and no key is
shuffled, and no Python object.

The hash is SipHash-2-4 of 128 bits under a secret of the job: no writer can make two keys of one
hash, and a thousand million keys of a partition have two of one by a chance of 10^-21.

Thread-safety: none; an object is one task's. Nothing here imports pyspark.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkalog._core.offset_map import OffsetMap
from kafkalog.spark.arrow_cells import array_of, numbers_of, validity_of

__all__ = ["ENTRY", "PACKED_SCHEMA", "RangeKeyHashes", "cells_of", "slice_count"]

# The shuffled part of a key: its hash, and the lower half of the offset.
ENTRY: Final = np.dtype([("high", "<i8"), ("low", "<i8"), ("offset", "<u4")])
PACKED_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int32()),
        ("slice", pa.int32()),
        ("base", pa.int64()),
        ("entries", pa.binary()),
    ]
)

# Entries of a row. Spark returns rows ten thousand at a time: 13 MB of these.
ROW_ENTRIES: Final = 64
# Capacity for a million keys: a worker has to stay small.
MAP_BYTES: Final = 28 << 20
BLOCK_ENTRIES: Final = 1 << 16
# Largest number of entries of a slice in one task at a time, in five arrays of eight bytes each.
_SLICE_ENTRIES_MAX: Final = 1 << 20
# A smaller slice is not worth another file's share; this many slices occupy all cores.
_SLICE_ENTRIES_MIN: Final = 1 << 16
_SLICES_WANTED: Final = 8
# In a log with holes, offsets give no count of records; few records are smaller than this.
_RECORD_BYTES: Final = 32
_HALF: Final = 32


def slice_count(offsets: int, size_bytes: int) -> int:
    """Return the number of slices for the keys of a partition."""
    records = min(offsets, size_bytes // _RECORD_BYTES)
    count = min(_SLICES_WANTED, records // _SLICE_ENTRIES_MIN)
    return max(count, -(-records // _SLICE_ENTRIES_MAX), 1)


class RangeKeyHashes:
    """
    Finds the latest records by key in ranges of partitions.

    Args:
        secret: of the job, 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        # Allocated by the system, which provides a page on first use.
        self._map = OffsetMap(mmap.mmap(-1, MAP_BYTES), identity="siphash", secret=secret)

    def latest(
        self, number: int, slices: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """
        Yield, packed, hash and offset of the records that may be their keys' latest.

        Args:
            number: of the partition.
            slices: number of its slices, the same in every task.
            batches: with `offset` and `key`, of consecutive records.
        """
        self._map.clear(secret=self._secret)
        for batch in batches:
            offsets = numbers_of(batch.column("offset"), np.int64)
            for _full in self._put(offsets, batch.column("key")):
                yield from self._entries(number, slices)
                self._map.clear(secret=self._secret)
        yield from self._entries(number, slices)

    def _put(self, offsets: NDArray[np.int64], keys: pa.Array) -> Iterator[None]:
        """Add keys; when the map is full, yield its content and clear it."""
        ends, data = cells_of(keys)
        sizes = np.diff(ends)
        if keys.null_count:
            sizes[~validity_of(keys)] = -1
        positions, row = ends[:-1].astype(np.int64), 0
        while row < len(offsets):
            row, _status = self._map.put_run(data, positions, sizes, offsets, start=row)
            if row < len(offsets):
                yield

    def _entries(self, number: int, slices: int) -> Iterator[pa.RecordBatch]:
        slot, left = 0, len(self._map)
        while left:
            columns = [np.empty(min(left, BLOCK_ENTRIES), np.int64) for _ in range(3)]
            slot, count = self._map.entries(*columns, slot=slot)
            left -= count
            yield from _packed(number, slices, *(column[:count] for column in columns))


def _packed(
    number: int,
    slices: int,
    high: NDArray[np.int64],
    low: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> Iterator[pa.RecordBatch]:
    """Yield entries by slices; entries whose offsets have other upper halves separately."""
    upper = offsets >> _HALF
    is_first = upper == upper[0]
    if not is_first.all():
        rest = ~is_first
        yield from _packed(number, slices, high[rest], low[rest], offsets[rest])
        high, low, offsets = high[is_first], low[is_first], offsets[is_first]
    of_each = _slices_of(high, slices)
    order = np.argsort(of_each, kind="stable")
    of_each = of_each[order]
    entries = np.empty(len(order), ENTRY)
    entries["high"], entries["low"] = high[order], low[order]
    entries["offset"] = offsets[order] & 0xFFFFFFFF
    starts = _row_starts(of_each)
    ends = np.append(starts, len(order)).astype(np.int32) * ENTRY.itemsize
    cells = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(ends), pa.py_buffer(entries)]
    )
    arrays = [
        array_of(pa.int32(), np.full(len(starts), number, np.int32)),
        array_of(pa.int32(), of_each[starts].astype(np.int32)),
        array_of(pa.int64(), np.full(len(starts), upper[0] << _HALF)),
        cells,
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=PACKED_SCHEMA)


def _slices_of(high: NDArray[np.int64], slices: int) -> NDArray[np.unsignedinteger]:
    """Return the slice of each hash: all slices get about as many."""
    found = ((high.view(np.uint64) >> np.uint64(_HALF)) * np.uint64(slices)) >> np.uint64(_HALF)
    # Numbers of 16 bits are sorted by counting them.
    return found.astype(np.uint16 if slices <= 1 << 16 else np.uint32)


def _row_starts(of_each: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """Return the starts of rows: at each new slice, and after ROW_ENTRIES entries of one."""
    firsts = np.append(0, np.flatnonzero(np.diff(of_each)) + 1)
    sizes = np.diff(np.append(firsts, len(of_each)))
    rows = -(-sizes // ROW_ENTRIES)
    before = np.cumsum(rows) - rows
    within = np.arange(rows.sum()) - np.repeat(before, rows)
    starts: NDArray[np.int64] = np.repeat(firsts, rows) + within * ROW_ENTRIES
    return starts


def cells_of(column: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    """Return the ends of the cells of a binary array, and its data."""
    _validity, ends, data = column.buffers()
    found = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    # As bytes: Arrow declares its buffers as signed ones.
    return found, memoryview(data).cast("B") if data is not None else memoryview(b"")
