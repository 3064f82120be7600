"""Contents of the records of a workload: each record identifies itself, and all else follows.

A stream is one partition in one incarnation, an operation one append, `index` a record of it. Both
the writer and the oracle make the content from these three; a tombstone has them in a header.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from kafkalog._core.murmur2 import partition_of

__all__ = ["Content", "Spec", "content", "identity"]

_FILLER = bytes(range(32, 127)) * 60


@dataclass(frozen=True)
class Spec:
    """
    Properties that all records of a stream have in common.

    Attributes:
        directory: of the partition, relative to the root of the workload.
        keys: how many keys there are; 0 for records without.
        tombstones: some records have no value; they have headers then.
        compact: its log is compacted.
        magic: format of its batches.
        trims: something deletes its oldest segments in the background.
        topic: of a manager; empty for a log without one.
        partition: of that topic.
        partition_count: of that topic, if keys select the partition; 0 if callers name it.
    """

    directory: str
    keys: int = 0
    tombstones: bool = False
    compact: bool = False
    magic: int = 2
    trims: bool = False
    topic: str = ""
    partition: int = 0
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class Content:
    """Key, value and headers of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def content(spec: Spec, stream: int, operation: int, index: int) -> Content:
    """Return what a record holds."""
    name = b"%d:%d:%d:" % (stream, operation, index)
    drawn = zlib.crc32(name)
    key = b"k%d" % (drawn % spec.keys) if spec.keys else None
    if spec.tombstones and drawn % 11 == 0:
        return Content(key, None, (("id", name),))
    if spec.partition_count:
        key = _key_of(spec.partition, spec.partition_count, drawn % 1000)
    size = (drawn >> 8) % (40 if drawn % 7 else 900)
    begin = drawn >> 20 & 63
    has_headers = spec.magic == 2 and drawn % 5 == 0 and not spec.partition_count
    headers = (("h", b"x"),) if has_headers else ()
    return Content(key, name + _FILLER[begin : begin + size], headers)


def _key_of(partition: int, partition_count: int, first: int) -> bytes:
    """Return a key of a partition, one of many."""
    keys = (b"k%d" % number for number in count(first))
    return next(key for key in keys if partition_of(key, partition_count) == partition)


def identity(
    value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> tuple[int, int, int] | None:
    """Return (stream, operation, index) of what a record holds, None where it is none of ours."""
    name = value
    if name is None:
        name = next((held for header, held in headers if header == "id"), None)
    parts = (name or b"").split(b":", 3)
    try:
        return int(parts[0]), int(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        return None
