"""Latest records by key, of logs with more keys than a machine has memory.

A task reads ranges of the log and gives, for each key that it met, its hash and the last offset:
what a map of a million keys held when it was full, or when the range ended. Spark brings those of
one hash together, takes the greatest offset, and gives the offsets to writers, which make bits of
them: one for each offset, in chunks. No value and no key is shuffled, and nothing of what is
shuffled is a Python object.

The hash is SipHash-2-4 of 128 bits under a secret of the job: nobody can make two keys of one hash,
and a thousand million keys of a partition have two of one by a chance of 10^-21.

Thread-safety: none; an object is one task's. Nothing here imports pyspark.
"""

from __future__ import annotations

import mmap
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.marks import LatestMarks
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark.arrow_cells import array_of, numbers_of, validity_of

__all__ = [
    "CHUNK_BITS",
    "LATEST_SCHEMA",
    "OffsetBits",
    "RangeKeys",
    "chunks_by_partition",
    "load_marks",
]

# Offsets of a chunk: 2^20, whose bits are 128 KiB.
CHUNK_BITS: Final = 20
LATEST_SCHEMA: Final = pa.schema(
    [("number", pa.int32()), ("high", pa.int64()), ("low", pa.int64()), ("offset", pa.int64())]
)

# Room for a million keys: a worker has to stay small.
_MAP_BYTES: Final = 28 << 20
_ROWS: Final = 1 << 16


class RangeKeys:
    """
    Finds the latest records by key in ranges of partitions.

    Args:
        secret: of the job, 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        # Of the system, which gives no page before it is used.
        self._map = OffsetMap(mmap.mmap(-1, _MAP_BYTES), identity="siphash", secret=secret)

    def latest(self, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Yield (number, hash, offset) of the records that may be their keys' latest.

        Args:
            number: of the partition.
            batches: with `offset` and `key`, of records one behind the other.
        """
        self._map.clear(secret=self._secret)
        for batch in batches:
            offsets = numbers_of(batch.column("offset"), np.int64)
            yield from self._put(number, offsets, batch.column("key"))
        yield from self._entries(number)

    def _put(
        self, number: int, offsets: NDArray[np.int64], keys: pa.Array
    ) -> Iterator[pa.RecordBatch]:
        ends, data = _layout(keys)
        sizes = np.diff(ends)
        if keys.null_count:
            sizes[~validity_of(keys)] = -1
        positions, row = ends[:-1].astype(np.int64), 0
        while row < len(offsets):
            row, _status = self._map.put_run(data, positions, sizes, offsets, start=row)
            if row < len(offsets):
                # The map is full, and what it holds goes; a key may come again.
                yield from self._entries(number)
                self._map.clear(secret=self._secret)

    def _entries(self, number: int) -> Iterator[pa.RecordBatch]:
        slot, left = 0, len(self._map)
        while left:
            columns = [np.empty(min(left, _ROWS), np.int64) for _ in range(3)]
            slot, rows = self._map.entries(*columns, slot=slot)
            left -= rows
            arrays = [array_of(pa.int64(), column[:rows]) for column in columns]
            arrays.insert(0, array_of(pa.int32(), np.full(rows, number, np.int32)))
            yield pa.RecordBatch.from_arrays(arrays, schema=LATEST_SCHEMA)


def _layout(keys: pa.Array) -> tuple[NDArray[np.int32], memoryview]:
    """Return where the keys of a binary array end, and what they lie in."""
    _validity, ends, data = keys.buffers()
    count = len(keys)
    found = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + count + 1]
    # As bytes: Arrow says that its buffers hold signed ones.
    return found, memoryview(data).cast("B") if data is not None else memoryview(b"")


class OffsetBits:
    """Collects the offsets of latest records as bits, and writes them to one file."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, int], NDArray[np.uint8]] = {}

    def add(self, numbers: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Take offsets of partitions, by their numbers, in any order."""
        order = np.lexsort((offsets, numbers))
        sorted_numbers, sorted_offsets = numbers[order], offsets[order]
        is_other = (np.diff(sorted_numbers) != 0) | (np.diff(sorted_offsets >> CHUNK_BITS) != 0)
        cuts = np.flatnonzero(is_other) + 1
        starts = [0, *cuts.tolist()] if len(order) else []
        ends = [*cuts.tolist(), len(order)]
        for start, end in zip(starts, ends, strict=False):
            row = int(order[start])
            key = int(numbers[row]), int(offsets[row]) >> CHUNK_BITS
            bits = self._chunks.get(key)
            if bits is None:
                bits = self._chunks[key] = np.zeros(1 << (CHUNK_BITS - 3), np.uint8)
            within = sorted_offsets[start:end] & ((1 << CHUNK_BITS) - 1)
            np.bitwise_or.at(bits, within >> 3, np.left_shift(1, within & 7).astype(np.uint8))

    def write(self, folder: Path) -> list[tuple[int, int, str, int, int]]:
        """
        Put the bits on the disk, in a file of their own.

        Returns:
            Of each chunk: number of the partition, of the chunk, file, position, size in bytes.
        """
        if not self._chunks:
            return []
        filesystem, path = PosixFileSystem(), folder / f"{uuid.uuid4().hex}.bits"
        found, position = [], 0
        with storage_errors(path, doing="writing"):
            handle = filesystem.open(path, create=True, write=True)
            try:
                for (number, chunk), bits in sorted(self._chunks.items()):
                    used = bits[: int(np.flatnonzero(bits)[-1]) + 1]
                    handle.pwrite(used.data, position)
                    found.append((number, chunk, path.name, position, len(used)))
                    position += len(used)
                handle.sync()
            finally:
                handle.close()
            filesystem.sync_directory(folder)
        return found


def load_marks(folder: Path, chunks: Sequence[Sequence[Any]], start: int, end: int) -> LatestMarks:
    """
    Return the bits of a range of one partition.

    Args:
        folder: where the files are.
        chunks: (chunk, file, position, size) of the partition.
        start, end: the offsets.

    Raises:
        LogStorageError: the disk refused, or a file is shorter than it was.
    """
    filesystem = PosixFileSystem()
    first = start >> CHUNK_BITS
    count = max(0, (end - 1 >> CHUNK_BITS) - first + 1) if end > start else 0
    bits = np.zeros(count << (CHUNK_BITS - 3), np.uint8)
    for chunk, name, position, size in chunks:
        slot = (chunk - first) << (CHUNK_BITS - 3)
        if not 0 <= slot < len(bits):
            continue
        path = folder / name
        with storage_errors(path, doing="reading"):
            handle = filesystem.open(path)
            try:
                got = handle.pread_into(bits.data[slot : slot + size], position)
            finally:
                handle.close()
            if got != size:
                raise OSError(f"{got} bytes at {position}, where {size} were written")
    base = first << CHUNK_BITS
    return LatestMarks(bits, base, max(end, base))


def chunks_by_partition(
    chunks: Iterable[Sequence[Any]],
) -> Mapping[int, list[tuple[int, str, int, int]]]:
    """Return what `OffsetBits.write` said, by the numbers of the partitions."""
    found: dict[int, list[tuple[int, str, int, int]]] = {}
    for number, chunk, name, position, size in chunks:
        found.setdefault(number, []).append((chunk, name, position, size))
    return found
