"""Records in a commit journal: the data of an entry of kind 4 (`kafkalog.state.commit_journal`).

For each offset of the entry, in order:

    timestamp   8  ms                         value size  4  -1: no value
    key size    4  -1: no key                 key, value

Integers are big-endian. Records with headers are never in a journal.

Thread-safety: pure functions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["JournalRecord", "decode_records", "encode_records"]

_HEAD: Final = struct.Struct(">qii")
_NONE: Final = -1


class JournalRecord(NamedTuple):
    """A record: its timestamp in ms, its key and its value."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def encode_records(records: Iterable[JournalRecord]) -> bytes:
    """Return the data of an entry with records."""
    parts: list[bytes] = []
    for timestamp_ms, key, value in records:
        sizes = [_NONE if each is None else len(each) for each in (key, value)]
        parts += _HEAD.pack(timestamp_ms, *sizes), key or b"", value or b""
    return b"".join(parts)


def decode_records(data: bytes, count: int) -> list[JournalRecord]:
    """
    Return the records of an entry.

    Raises:
        ValueError: the data is not that of so many records.
    """
    found: list[JournalRecord] = []
    at = 0
    for _ in range(count):
        if at + _HEAD.size > len(data):
            raise ValueError(f"data must have {count} records, it ends in record {len(found)}")
        timestamp_ms, *sizes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        fields: list[bytes | None] = []
        for size in sizes:
            if size < _NONE or at + size > len(data):
                raise ValueError(f"record {len(found)}: the size of a field must fit, got {size}")
            fields.append(None if size == _NONE else data[at : at + size])
            at += max(size, 0)
        found.append(JournalRecord(timestamp_ms, fields[0], fields[1]))
    if at != len(data):
        raise ValueError(f"data must end after {count} records, at {at}, got {len(data)} bytes")
    return found
