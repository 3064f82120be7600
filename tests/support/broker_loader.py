"""A model of a broker's treatment of a partition directory, without a broker.

`load` treats files of unfinished work as the loader of Kafka 4 does: it removes `.deleted` and
`.cleaned` files, and `.swap` files at or above a `.cleaned` one; removes every file whose name
begins with an offset that the other `.swap` files go over; gives those their names; removes index
files without a log; and passes over everything else, such as files `.covered`. `append`, `clean`
and `retain` change the log as a broker does that leads it.

Only names, sizes and the fixed header fields of batches are interpreted here, and none of the
library's code decides anything, but for the records of a batch that `clean` looks into.

Thread-safety: none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalog import BatchView, FileSystem
from tests.support.keyed_batches import keyed_batch

__all__ = ["EmulatedBroker", "RawBatch", "raw_batches"]

_OFFSET = re.compile(r"[0-9]{20}")
_INDEXES = (".index", ".timeindex", ".txnindex")


class RawBatch(NamedTuple):
    """A batch of format v2, as its bytes."""

    base_offset: int
    next_offset: int
    data: bytes


def raw_batches(data: bytes) -> Iterator[RawBatch]:
    """Yield the batches of a segment, up to the first that is cut short."""
    position = 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        (delta,) = struct.unpack_from(">i", data, position + 23)
        end = position + 12 + length
        if length < 49 or end > len(data):
            return
        yield RawBatch(base, base + delta + 1, data[position:end])
        position = end


class EmulatedBroker:
    """
    A broker that leads one partition.

    Args:
        disk: the disk of the directory.
        directory: of the partition.
    """

    def __init__(self, disk: FileSystem, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    # ------------------------------------------------------------------------------ loading

    def load(self) -> None:
        """Deal with files of unfinished work."""
        swaps = self._remove_unfinished()
        ranges = [self._range_of(name) for name in swaps if name.endswith(".log.swap")]
        if ranges:
            lower, upper = min(each[0] for each in ranges), max(each[1] for each in ranges)
            for name in self._names():
                offset = _offset_of(name)
                if offset is None or name.endswith(".swap") or not lower <= offset < upper:
                    continue
                self._unlink(name)
        for name in self._names():
            if name.endswith(".swap"):
                self._disk.rename(self._path(name), self._path(name.removesuffix(".swap")))
        names = set(self._names())
        for name in sorted(names):
            if name.endswith(_INDEXES) and f"{name[:20]}.log" not in names:
                self._unlink(name)
        self._disk.sync_directory(self._directory)

    def _remove_unfinished(self) -> list[str]:
        """Remove `.deleted`, `.cleaned` and what these refute; return the `.swap` files left."""
        names = self._names()
        cleaned = [
            offset
            for name in names
            if name.endswith(".cleaned") and (offset := _offset_of(name)) is not None
        ]
        swaps = []
        for name in names:
            if name.endswith(".deleted"):
                self._unlink(name)
            elif name.endswith(".swap"):
                offset = _offset_of(name)
                if cleaned and offset is not None and offset >= min(cleaned):
                    self._unlink(name)
                else:
                    swaps.append(name)
        for name in names:
            if name.endswith(".cleaned"):
                self._unlink(name)
        return swaps

    def _range_of(self, name: str) -> tuple[int, int]:
        base, end = int(name[:20]), int(name[:20])
        for batch in raw_batches(self._read(name)):
            end = batch.next_offset
        return base, end

    # ------------------------------------------------------------------------------ leading

    def append(self, key: bytes, value: bytes, timestamp_ms: int) -> int:
        """Append a record after the last batch, and return its offset."""
        name = self._logs()[-1]
        data = self._read(name)
        end, size = int(name[:20]), 0
        for batch in raw_batches(data):
            end, size = batch.next_offset, size + len(batch.data)
        batch_bytes = bytearray(keyed_batch([(key, value)], timestamp_ms))
        struct.pack_into(">q", batch_bytes, 0, end)
        handle = self._disk.open(self._path(name), write=True)
        handle.truncate(size)
        handle.pwrite(bytes(batch_bytes), size)
        handle.sync()
        handle.close()
        return end

    def roll(self) -> None:
        """Begin a new segment at the log end."""
        name = self._logs()[-1]
        end = self._range_of(name)[1]
        if end > int(name[:20]):
            self._disk.open(self._path(f"{end:020}.log"), create=True).close()
            self._disk.sync_directory(self._directory)

    def clean(self) -> None:
        """Make one segment of all sealed ones, without batches that hold no latest record."""
        sealed = self._logs()[:-1]
        if not sealed:
            return
        batches = [list(raw_batches(self._read(name))) for name in self._logs()]
        latest: dict[bytes | None, int] = {}
        for batch in (each for found in batches for each in found):
            for record in BatchView(batch.data).records():
                latest[record.key] = max(record.offset, latest.get(record.key, -1))
        kept = b""
        for batch in (each for found in batches[:-1] for each in found):
            records = BatchView(batch.data).records()
            if any(latest[record.key] == record.offset for record in records):
                kept += batch.data
        first = sealed[0]
        self._write(f"{first}.cleaned", kept)
        self._disk.rename(self._path(f"{first}.cleaned"), self._path(f"{first}.swap"))
        for name in sealed:
            self._disk.rename(self._path(name), self._path(f"{name}.deleted"))
        for name in self._names():
            if name.endswith(_INDEXES) and f"{name[:20]}.log" in sealed:
                self._unlink(name)
        self._disk.rename(self._path(f"{first}.swap"), self._path(first))
        for name in sealed:
            self._unlink(f"{name}.deleted")
        self._disk.sync_directory(self._directory)

    def retain(self, count: int) -> int:
        """Delete the first segments, but never the last; return the new log start."""
        logs = self._logs()
        for name in logs[: min(count, len(logs) - 1)]:
            for other in self._names():
                if other[:20] == name[:20]:
                    self._unlink(other)
        self._disk.sync_directory(self._directory)
        return int(self._logs()[0][:20])

    # ------------------------------------------------------------------------------ files

    def _names(self) -> list[str]:
        return sorted(self._disk.list(self._directory))

    def _logs(self) -> list[str]:
        return [name for name in self._names() if re.fullmatch(r"[0-9]{20}\.log", name)]

    def _path(self, name: str) -> Path:
        return self._directory / name

    def _unlink(self, name: str) -> None:
        self._disk.unlink(self._path(name))

    def _read(self, name: str) -> bytes:
        handle = self._disk.open(self._path(name))
        try:
            return handle.pread(handle.size(), 0)
        finally:
            handle.close()

    def _write(self, name: str, data: bytes) -> None:
        handle = self._disk.open(self._path(name), create=True, write=True)
        handle.truncate(0)
        handle.pwrite(data, 0)
        handle.sync()
        handle.close()


def _offset_of(name: str) -> int | None:
    match = _OFFSET.match(name)
    return None if match is None else int(match[0])
