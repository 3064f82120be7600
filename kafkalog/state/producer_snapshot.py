"""Producer snapshot: the state of every producer below one offset.

On disk, a `.snapshot` file named after the offset, big-endian; all brokers write version 1:

    i16 version (1), u32 CRC-32C of the rest, i32 count, then 46 bytes for each producer:
    i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta,
    i64 timestamp, i32 coordinator epoch, i64 first offset of its open transaction (-1 for none)

Of the batches that identify duplicates only the last one is kept; last sequence and last offset are
-1 and the delta 0 if there is none. The order of entries has no meaning for a reader, but brokers
write the order of their hash map: so does `encode_snapshot`, and files of one state are equal.

Content that a broker would not have written raises `CorruptStateError` with file and position. It
costs time only: an older snapshot, or none, and the log after it give the same state.

Crash points of a durable write: those of `kafkalog.files.atomic_files`. After a write that is not
durable, a power cut may leave any bytes under the name; the checksum covers them.

Thread-safety: pure functions over the disk; the log's lock excludes two writers of one name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.crc32c import value as crc32c
from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem

__all__ = [
    "ENTRY_LAYOUT",
    "HEAD_LAYOUT",
    "ProducerSnapshotEntry",
    "decode_snapshot",
    "encode_snapshot",
    "read_snapshot",
    "write_snapshot",
]

VERSION: Final = 1

HEAD_LAYOUT: Final = struct.Struct(">hIi")
ENTRY_LAYOUT: Final = struct.Struct(">qhiqiqiq")
# Position of the first byte that the checksum covers.
_COVERED: Final = 6
# Eleven million producers of one partition.
_MAX_SNAPSHOT_BYTES: Final = 512 * 1024 * 1024


class ProducerSnapshotEntry(NamedTuple):
    """
    State of one producer in a snapshot; an unknown field is -1, except for the delta.

    Attributes:
        producer_id: id of the producer.
        producer_epoch: epoch of the producer.
        last_sequence, last_offset: last sequence and last offset of its last batch.
        offset_delta: last offset minus first offset of that batch.
        timestamp_ms: timestamp of its last batch or marker.
        coordinator_epoch: coordinator epoch of its last marker.
        transaction_first_offset: first offset of its open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """
    Return entries as the content of a file.

    Raises:
        ValueError: an entry is invalid: `decode_snapshot` would raise.
    """
    ordered = _in_brokers_order(list(entries))
    producer_ids = set()
    for entry in ordered:
        problem = _problem_of(entry) or ("two entries" if entry[0] in producer_ids else None)
        if problem is not None:
            raise ValueError(f"{entry}: {problem}")
        producer_ids.add(entry.producer_id)
    try:
        parts = [ENTRY_LAYOUT.pack(*entry) for entry in ordered]
    except struct.error as error:
        raise ValueError(f"a producer has a number that does not fit its field: {error}") from error
    covered = b"".join([len(ordered).to_bytes(4, "big"), *parts])
    head = VERSION.to_bytes(2, "big") + crc32c(covered).to_bytes(4, "big")
    return head + covered


def decode_snapshot(
    data: bytes, *, end_offset: int | None = None, path: Path | None = None
) -> list[ProducerSnapshotEntry]:
    """
    Return the entries of a file's content, in its order.

    Args:
        data: the whole file.
        end_offset: offset in the snapshot's name, above all offsets in it; unchecked if None.
        path: name of the file for the error.

    Raises:
        CorruptStateError: version, checksum, size or an entry is wrong; it has the position.
    """

    def damage(position: int, problem: str) -> CorruptStateError:
        named = "the producer snapshot" if path is None else str(path)
        return CorruptStateError(f"{named}: {problem}", path=path, position=position)

    if len(data) < HEAD_LAYOUT.size:
        raise damage(len(data), f"size must be >= {HEAD_LAYOUT.size} bytes, got {len(data)}")
    version, crc, count = HEAD_LAYOUT.unpack_from(data)
    if version != VERSION:
        raise damage(0, f"version must be {VERSION}, got {version}")
    if crc != crc32c(memoryview(data)[_COVERED:]):
        raise damage(2, "the checksum is not that of the content")
    if len(data) != HEAD_LAYOUT.size + count * ENTRY_LAYOUT.size:
        raise damage(_COVERED, f"producer count must fit {len(data)} bytes, got {count}")
    entries = []
    producer_ids = set()
    for slot, fields in enumerate(ENTRY_LAYOUT.iter_unpack(memoryview(data)[HEAD_LAYOUT.size :])):
        entry = ProducerSnapshotEntry(*fields)
        problem = _problem_of(entry, end_offset)
        if entry.producer_id in producer_ids:
            problem = "a second entry of this producer"
        if problem is not None:
            position = HEAD_LAYOUT.size + slot * ENTRY_LAYOUT.size
            producer = f"producer {entry.producer_id} at position {position}"
            raise damage(position, f"{producer}: {problem}")
        producer_ids.add(entry.producer_id)
        entries.append(entry)
    return entries


def read_snapshot(
    filesystem: FileSystem, path: Path, *, end_offset: int
) -> list[ProducerSnapshotEntry] | None:
    """
    Return the entries of a file named after `end_offset`, None if it is missing.

    Raises:
        CorruptStateError: the file is damaged.
        LogStorageError: the file cannot be read.
    """
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_SNAPSHOT_BYTES)
    except ValueError as error:
        raise CorruptStateError(str(error), path=path) from error
    return None if data is None else decode_snapshot(data, end_offset=end_offset, path=path)


def write_snapshot(
    filesystem: FileSystem,
    path: Path,
    entries: Iterable[ProducerSnapshotEntry],
    *,
    durable: bool = True,
) -> None:
    """
    Write a snapshot; if `durable`, it is on the disk when this returns.

    Raises:
        ValueError: an entry is invalid: `decode_snapshot` would raise.
        LogStorageError: the disk reported an error; the file is unchanged.
    """
    data = encode_snapshot(entries)
    with storage_errors(path, doing="writing the producer snapshot"):
        replace_file(filesystem, path, data, durable=durable)


def _problem_of(entry: ProducerSnapshotEntry, end_offset: int | None = None) -> str | None:
    """Return the reason why a broker would not have written an entry, None for a valid entry."""
    if entry.producer_id < 0:
        return "a negative producer id"
    smallest = min(
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )
    if smallest < -1:
        return f"a field must be >= -1, got {smallest}"
    if not 0 <= entry.offset_delta <= max(entry.last_offset, 0):
        return f"an offset delta of {entry.offset_delta} below offset {entry.last_offset}"
    if end_offset is not None:
        largest = max(entry.last_offset, entry.transaction_first_offset)
        if largest >= end_offset:
            return f"an offset must be < {end_offset}, the end of the snapshot, got {largest}"
    return None


def _in_brokers_order(entries: list[ProducerSnapshotEntry]) -> list[ProducerSnapshotEntry]:
    """Return entries in the order of a broker's map; `entries` has the order of insertion.

    Java's hash map: a power of two of buckets, at most three quarters of them in use, each in the
    order of insertion. A broker that has removed producers since may have more buckets.
    """
    buckets = 16
    while 4 * len(entries) > 3 * buckets:
        buckets *= 2

    def bucket(entry: ProducerSnapshotEntry) -> int:
        folded = (entry.producer_id ^ entry.producer_id >> 32) & 0xFFFFFFFF
        return (folded ^ folded >> 16) & (buckets - 1)

    return sorted(entries, key=bucket)
