"""The producer snapshot: what was known of every producer below one offset.

On disk, `.snapshot` under the offset's name, big-endian; brokers of every age write version 1:

    i16 version (1), u32 CRC-32C of all that follows, i32 count, then 46 bytes for each producer:
    i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta,
    i64 timestamp, i32 coordinator epoch, i64 first offset of its open transaction (-1 for none)

Of the batches that tell duplicates only the last one is kept; last sequence and last offset are -1
and the delta 0 where there is none. The order of entries means nothing to a reader, but brokers
write the order of their hash map: so does `encode_snapshot`, and files of one state are equal.

Everything that a broker would not have written raises `CorruptStateError` with file and position,
and costs nothing but time: an older snapshot, or none, and the log behind it give the same state.

Crash points of a durable write: those of `kafkalog.files.atomic_files`. Of another, a power cut may
leave any bytes under the name; the checksum covers them.

Thread-safety: pure functions over the disk; the log's lock keeps two writers of one name apart.
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
# Where the bytes begin that the checksum covers.
_COVERED: Final = 6
# Eleven million producers of one partition.
_MAX_SNAPSHOT_BYTES: Final = 512 * 1024 * 1024


class ProducerSnapshotEntry(NamedTuple):
    """
    What a snapshot says of one producer; -1 for nothing known, in all fields but the delta.

    Attributes:
        producer_id: whose entry it is.
        producer_epoch: its epoch.
        last_sequence, last_offset: of its last batch.
        offset_delta: last offset less first offset of that batch.
        timestamp_ms: of its last batch or marker.
        coordinator_epoch: of its last marker.
        transaction_first_offset: where its open transaction began.
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
    Return the file content of entries.

    Raises:
        ValueError: an entry would not be read back.
    """
    ordered = _in_brokers_order(list(entries))
    known = set()
    for entry in ordered:
        problem = _problem_of(entry) or ("two entries" if entry[0] in known else None)
        if problem is not None:
            raise ValueError(f"{entry}: {problem}")
        known.add(entry.producer_id)
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
        end_offset: offset of the snapshot's name, above all that it tells of; unchecked if None.
        path: the file, for the error.

    Raises:
        CorruptStateError: version, checksum, size or an entry is wrong; the error says where.
    """

    def damage(position: int, problem: str) -> CorruptStateError:
        named = "the producer snapshot" if path is None else str(path)
        return CorruptStateError(f"{named}: {problem}", path=path, position=position)

    if len(data) < HEAD_LAYOUT.size:
        raise damage(len(data), f"{len(data)} bytes, where the head alone has {HEAD_LAYOUT.size}")
    version, crc, count = HEAD_LAYOUT.unpack_from(data)
    if version != VERSION:
        raise damage(0, f"version {version}, where {VERSION} is known")
    if crc != crc32c(memoryview(data)[_COVERED:]):
        raise damage(2, "the checksum is not that of the content")
    if len(data) != HEAD_LAYOUT.size + count * ENTRY_LAYOUT.size:
        raise damage(_COVERED, f"{count} producers announced in {len(data)} bytes")
    entries = []
    known = set()
    for slot, fields in enumerate(ENTRY_LAYOUT.iter_unpack(memoryview(data)[HEAD_LAYOUT.size :])):
        entry = ProducerSnapshotEntry(*fields)
        problem = _problem_of(entry, end_offset)
        if entry.producer_id in known:
            problem = "a second entry of this producer"
        if problem is not None:
            position = HEAD_LAYOUT.size + slot * ENTRY_LAYOUT.size
            producer = f"producer {entry.producer_id} at position {position}"
            raise damage(position, f"{producer}: {problem}")
        known.add(entry.producer_id)
        entries.append(entry)
    return entries


def read_snapshot(
    filesystem: FileSystem, path: Path, *, end_offset: int
) -> list[ProducerSnapshotEntry] | None:
    """
    Return the entries of a file named after `end_offset`, None where it is missing.

    Raises:
        CorruptStateError: the file is damaged.
        LogStorageError: it cannot be read.
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
    Put a snapshot in place; if `durable`, on the disk when this returns.

    Raises:
        ValueError: an entry would not be read back.
        LogStorageError: the disk refused; what was there before stands.
    """
    data = encode_snapshot(entries)
    with storage_errors(path, doing="writing the producer snapshot"):
        replace_file(filesystem, path, data, durable=durable)


def _problem_of(entry: ProducerSnapshotEntry, end_offset: int | None = None) -> str | None:
    """Return what a broker would not have written of a producer, None where all is right."""
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
        return f"a field of {smallest}, where -1 says that nothing is known"
    if not 0 <= entry.offset_delta <= max(entry.last_offset, 0):
        return f"an offset delta of {entry.offset_delta} below offset {entry.last_offset}"
    if end_offset is not None:
        largest = max(entry.last_offset, entry.transaction_first_offset)
        if largest >= end_offset:
            return f"offset {largest} in a snapshot of what lies below {end_offset}"
    return None


def _in_brokers_order(entries: list[ProducerSnapshotEntry]) -> list[ProducerSnapshotEntry]:
    """Return entries, given in the order in which the producers came, as a broker's map has them.

    Java's hash map: a power of two of buckets, at most three quarters of them in use, each in the
    order of insertion. A broker that has forgotten producers since may have more buckets.
    """
    buckets = 16
    while 4 * len(entries) > 3 * buckets:
        buckets *= 2

    def bucket(entry: ProducerSnapshotEntry) -> int:
        folded = (entry.producer_id ^ entry.producer_id >> 32) & 0xFFFFFFFF
        return (folded ^ folded >> 16) & (buckets - 1)

    return sorted(entries, key=bucket)
