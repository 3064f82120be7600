"""The latest records of partitions by key: slice after slice, in files, and read back as bits.

Rows of packed entries (`key_hashes`) come sorted by partition and slice, from all tasks that read
keys. Of each hash the greatest offset is kept. The offsets of a slice are written as their lower 16
bits, ascending, after a directory of the chunks of 2^16 offsets that have any:

    int64 numbers of the chunks, ascending | int64 ends in what follows | uint16 lower halves

So the part of a slice for a range of offsets can be read alone, and it takes two bytes a record.

Thread-safety: none; an object is one task's. Nothing here imports pyspark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkalog.cleaner.live_records import LiveRecordBitmap
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark.arrow_cells import numbers_of
from kafkalog.spark.jobs.key_hashes import ENTRY, cells_of

__all__ = ["LatestOffsets", "load_live_records", "slices_by_partition"]

_CHUNK_BITS: Final = 16
_NUMBER_BYTES: Final = 8
_LOWER_BYTES: Final = 2

Slice = Sequence[Any]


class LatestOffsets:
    """
    Writer of the latest offsets of rows of packed entries, to one file.

    Args:
        folder: directory of the file, which is made at the first slice.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid.uuid4().hex}.latest"
        self._slice: tuple[int, int] = (-1, -1)
        self._seen_numbers: list[NDArray[Any]] = []
        self._offsets: list[NDArray[np.int64]] = []
        self._handle: FileHandle | None = None
        self._position = 0
        self._written: list[tuple[int, str, int, int]] = []

    def add(self, numbers: pa.Array, slices: pa.Array, bases: pa.Array, entries: pa.Array) -> None:
        """Add rows; all rows of a slice are consecutive, in this call and the next."""
        of_number, of_slice = numbers_of(numbers, np.int32), numbers_of(slices, np.int32)
        ends, data = cells_of(entries)
        has_changed = (np.diff(of_number) != 0) | (np.diff(of_slice) != 0)
        cuts = [0, *(np.flatnonzero(has_changed) + 1).tolist(), len(of_number)]
        counts = np.diff(ends) // ENTRY.itemsize
        of_base = numbers_of(bases, np.int64)
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            name = int(of_number[start]), int(of_slice[start])
            if name != self._slice:
                self._write_slice()
                self._slice = name
            # The buffer of the rows is reused for the next ones.
            slice_entries = np.frombuffer(data[ends[start] : ends[stop]], ENTRY).copy()
            self._seen_numbers.append(slice_entries)
            base = np.repeat(of_base[start:stop], counts[start:stop])
            self._offsets.append(base + slice_entries["offset"])

    def finish(self) -> list[tuple[int, str, int, int]]:
        """
        Sync the file.

        Returns:
            Of each slice: number of the partition, file, position, number of chunks.

        Raises:
            LogStorageError: the disk refused.
        """
        self._write_slice()
        handle, self._handle = self._handle, None
        if handle is not None:
            with storage_errors(self._path, doing="writing"):
                try:
                    handle.sync()
                finally:
                    handle.close()
                PosixFileSystem().sync_directory(self._path.parent)
        return self._written

    def abandon(self) -> None:
        """Close the file of a failed attempt; it is not in use."""
        if self._handle is not None:
            self._handle.close()

    def _write_slice(self) -> None:
        if not self._seen_numbers:
            return
        latest = _greatest(np.concatenate(self._seen_numbers), np.concatenate(self._offsets))
        self._seen_numbers, self._offsets = [], []
        numbers = latest >> _CHUNK_BITS
        firsts = np.append(0, np.flatnonzero(np.diff(numbers)) + 1)
        chunks, ends = numbers[firsts], np.append(firsts[1:], len(latest))
        with storage_errors(self._path, doing="writing"):
            if self._handle is None:
                self._handle = PosixFileSystem().create_new(self._path)
            position = self._position
            lower = (latest & ((1 << _CHUNK_BITS) - 1)).astype("<u2")
            for part in (chunks.astype("<i8"), ends.astype("<i8"), lower):
                self._handle.pwrite(part.data, self._position)
                self._position += part.nbytes
        self._written.append((self._slice[0], self._path.name, position, len(chunks)))


def _greatest(entries: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the greatest offset of each hash, ascending."""
    order = np.argsort(entries["high"])
    high, low, offsets = entries["high"][order], entries["low"][order], offsets[order]
    is_same = high[1:] == high[:-1]
    if np.any(is_same & (low[1:] != low[:-1])):
        # Two keys may have one half in common, by chance.
        order = np.lexsort((low, high))
        high, low, offsets = high[order], low[order], offsets[order]
        is_same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    starts = np.append(0, np.flatnonzero(~is_same) + 1)
    greatest: NDArray[np.int64] = np.maximum.reduceat(offsets, starts)
    greatest.sort()
    return greatest


def load_live_records(
    folder: Path, slices: Iterable[Slice], start: int, end: int, stop: int | None = None
) -> LiveRecordBitmap:
    """
    Return bits for a range of one partition.

    Args:
        folder: directory of the files.
        slices: (file, position, chunks) of the partition.
        start, end: the offsets of the bits.
        stop: end of the needed offsets: latest offsets at or above it may be missing in the bits;
            `end` if None.

    Raises:
        LogStorageError: the disk refused, or a file is shorter than it was.
    """
    stop = end if stop is None else min(stop, end)
    filesystem = PosixFileSystem()
    base = start & -8
    bits = np.zeros((max(end - base, 0) + 7) >> 3, np.uint8)
    for name, position, count in slices:
        path = folder / name
        with storage_errors(path, doing="reading"):
            handle = filesystem.open(path)
            try:
                for offsets in _offsets_between(handle, position, count, start, stop):
                    within = offsets[(offsets >= start) & (offsets < stop)] - base
                    bit = np.left_shift(1, within & 7).astype(np.uint8)
                    np.bitwise_or.at(bits, within >> 3, bit)
            finally:
                handle.close()
    return LiveRecordBitmap(bits, base, max(end, base))


def _offsets_between(
    handle: FileHandle, position: int, count: int, start: int, stop: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets of a slice in the chunks that a range touches."""
    directory = np.frombuffer(_read(handle, position, 2 * count * _NUMBER_BYTES), "<i8")
    chunks, ends = directory[:count], directory[count:]
    first = int(np.searchsorted(chunks, start >> _CHUNK_BITS))
    last = int(np.searchsorted(chunks, (stop - 1) >> _CHUNK_BITS, side="right"))
    if first >= last or start >= stop:
        return
    begin = int(ends[first - 1]) if first else 0
    size = (int(ends[last - 1]) - begin) * _LOWER_BYTES
    lower = _read(handle, position + directory.nbytes + begin * _LOWER_BYTES, size)
    each = np.diff(ends[first:last], prepend=begin)
    yield (np.repeat(chunks[first:last], each) << _CHUNK_BITS) + np.frombuffer(lower, "<u2")


def _read(handle: FileHandle, position: int, size: int) -> bytes:
    found = handle.pread(size, position)
    if len(found) != size:
        raise OSError(f"{len(found)} bytes at {position}, where {size} were written")
    return found


def slices_by_partition(slices: Iterable[Slice]) -> Mapping[int, list[tuple[str, int, int]]]:
    """Return the result of `LatestOffsets.finish`, by the numbers of the partitions."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for number, name, position, count in slices:
        found.setdefault(number, []).append((name, position, count))
    return found
