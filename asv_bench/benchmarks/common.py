"""Seeded data for all benchmarks, made without kafkalog. Append only, never change.

A changed function would make old and new results incomparable, and a function that used kafkalog
would measure different bytes in different versions. Parts of kafkalog are loaded with `load`, which
skips the benchmark where a version lacks them.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

KAFKA_BATCH_SIZES = (16 * 1024, 1024 * 1024)
KEY_BYTES = 16
VALUE_BYTES = (100, 1024)
BASE_TIMESTAMP_MS = 1_767_225_600_000
SEED = 20260101
FILL_RECORDS = 1_000

if os.environ.get("KAFKALOG_BENCH_ONCE"):
    # Each benchmark has a separate process, forked from a process that has imported this module.
    importlib.import_module("kafkalog")

_BATCH_TAIL = struct.Struct(">hiqqqhii")
_BATCH_HEAD = struct.Struct(">qiiBI")
_ZIGZAG_SHIFT = 63


def load(module: str, *names: str) -> Any:
    """Return a module, or its attributes as a tuple; skip the benchmark if they do not exist."""
    try:
        loaded = importlib.import_module(module)
        found = tuple(getattr(loaded, name) for name in names)
    except (ImportError, AttributeError) as error:
        raise NotImplementedError(f"this version has no {module} {names}") from error
    return found if names else loaded


def varint(value: int) -> bytes:
    """Return the zigzag varint of a number."""
    rest = ((value << 1) ^ (value >> _ZIGZAG_SHIFT)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def random_bytes(size: int, seed: int = SEED) -> bytes:
    """Return bytes that do not compress."""
    return np.random.default_rng(seed).bytes(size)


def record_count_of(batch_bytes: int, value_bytes: int) -> int:
    """Return how many records fill a batch of about this size."""
    return max(1, (batch_bytes - 61) // (KEY_BYTES + value_bytes + 11))


def batch(base_offset: int, record_count: int, value_bytes: int) -> bytes:
    """Return one uncompressed v2 batch with keys and values that do not compress."""
    source = random_bytes(1 << 16)
    step = KEY_BYTES + value_bytes
    records = bytearray()
    for delta in range(record_count):
        start = delta * step % (len(source) - step)
        key, value = source[start : start + KEY_BYTES], source[start + KEY_BYTES : start + step]
        body = b"".join(
            (
                b"\0",
                varint(delta),
                varint(delta),
                varint(len(key)),
                key,
                varint(len(value)),
                value,
                b"\0",
            )
        )
        records += varint(len(body)) + body
    last = record_count - 1
    stamps = (BASE_TIMESTAMP_MS + base_offset, BASE_TIMESTAMP_MS + base_offset + last)
    covered = _BATCH_TAIL.pack(0, last, *stamps, -1, -1, -1, record_count) + bytes(records)
    checksum = crc32c.crc32c(covered)
    return _BATCH_HEAD.pack(base_offset, len(covered) + 9, 0, 2, checksum) + covered


@functools.lru_cache(maxsize=8)
def run(total_bytes: int, batch_bytes: int, value_bytes: int) -> bytes:
    """Return batches with consecutive offsets, together at least `total_bytes`."""
    count = record_count_of(batch_bytes, value_bytes)
    batches, size, offset = [], 0, 0
    while size < total_bytes:
        batches.append(batch(offset, count, value_bytes))
        size += len(batches[-1])
        offset += count
    return b"".join(batches)


@functools.lru_cache(maxsize=4)
def keys_and_values(count: int, value_bytes: int) -> tuple[list[bytes], list[bytes]]:
    """Return two lists of distinct `bytes`."""
    source = random_bytes(count * (KEY_BYTES + value_bytes))
    keys = [source[i * KEY_BYTES : (i + 1) * KEY_BYTES] for i in range(count)]
    rest = count * KEY_BYTES
    values = [source[rest + i * value_bytes : rest + (i + 1) * value_bytes] for i in range(count)]
    return keys, values


@functools.lru_cache(maxsize=4)
def offset_index(entries: int) -> bytes:
    """Return an offset index: strictly ascending relative offsets and positions."""
    steps = np.random.default_rng(SEED).integers(20, 60, size=(entries, 2))
    columns = np.cumsum(steps, axis=0)
    return columns.astype(">i4").tobytes()


@functools.lru_cache(maxsize=4)
def time_index(entries: int) -> bytes:
    """Return a time index: strictly ascending timestamps and relative offsets."""
    steps = np.random.default_rng(SEED).integers(20, 60, size=(entries, 2))
    columns = np.cumsum(steps, axis=0)
    rows = np.empty(entries, dtype=[("timestamp", ">i8"), ("offset", ">i4")])
    rows["timestamp"] = columns[:, 0] + BASE_TIMESTAMP_MS
    rows["offset"] = columns[:, 1]
    return rows.tobytes()


@functools.lru_cache(maxsize=4)
def messages(magic: int, count: int, value_bytes: int) -> bytes:
    """Return plain messages of an old format, with keys and values that do not compress."""
    source = random_bytes(1 << 16)
    step = KEY_BYTES + value_bytes
    found = bytearray()
    for offset in range(count):
        start = offset * step % (len(source) - step)
        key, value = source[start : start + KEY_BYTES], source[start + KEY_BYTES : start + step]
        body = bytearray((magic, 0))
        if magic:
            body += (BASE_TIMESTAMP_MS + offset).to_bytes(8, "big")
        for part in (key, value):
            body += len(part).to_bytes(4, "big") + part
        found += offset.to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big")
        found += zlib.crc32(body).to_bytes(4, "big") + body
    return bytes(found)


class InDirectory:
    """Base of benchmarks that need a directory: made in `setup`, removed in `teardown`."""

    directory: Path

    def make_directory(self) -> Path:
        """Make the directory and return it; it goes with the process even if `setup` fails."""
        self._holder = tempfile.TemporaryDirectory(prefix="kafkalog-asv-")
        self.directory = Path(self._holder.name)
        return self.directory

    def teardown(self, *parameters: object) -> None:
        """Close the log and remove the directory."""
        close = getattr(getattr(self, "log", None), "close", None)
        if close is not None:
            close()
        # Not there where `setup` skipped: this version cannot do what is measured.
        holder = getattr(self, "_holder", None)
        if holder is not None:
            holder.cleanup()


def fill(log: Any, total_bytes: int, value_bytes: int) -> None:
    """Append records of about `total_bytes` together, in appends of a few batches."""
    (record,) = load("kafkalog", "Record")
    keys, values = keys_and_values(total_bytes // (KEY_BYTES + value_bytes + 11), value_bytes)
    chunk: list[Any] = []
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        chunk.append(record(key=key, value=value, timestamp_ms=BASE_TIMESTAMP_MS + number))
        if len(chunk) == FILL_RECORDS:
            log.append(chunk)
            chunk.clear()
    if chunk:
        log.append(chunk)


def message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    *,
    codec: int = 0,
) -> bytes:
    """Return one message of format v0 or v1."""
    covered = struct.pack(">bb", magic, codec)
    if magic:
        covered += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        covered += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


@functools.lru_cache(maxsize=8)
def message_run(magic: int, count: int, value_bytes: int) -> bytes:
    """Return plain messages with consecutive offsets from zero."""
    rows = zip(*keys_and_values(count, value_bytes), strict=True)
    return b"".join(
        message(magic, offset, BASE_TIMESTAMP_MS + offset, key, value)
        for offset, (key, value) in enumerate(rows)
    )


def sizes(whole: tuple[int, ...], once: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes to measure, or the small ones where each is only to run once."""
    return once if os.environ.get("KAFKALOG_BENCH_ONCE") else whole


def copy_partition(source: Path, directory: Path, topic: str, count: int) -> None:
    """Make a data directory of `count` partitions that hold what one log holds, closed in order."""
    names = [path.name for path in source.iterdir() if path.name.startswith("0")]
    for partition in range(count):
        target = directory / f"{topic}-{partition}"
        target.mkdir(parents=True)
        for name in names:
            shutil.copyfile(source / name, target / name)
    # An empty checkpoint marks a data directory.
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
