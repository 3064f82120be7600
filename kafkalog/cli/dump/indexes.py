"""Entries of index files and producer snapshots, and the entries that cannot be right.

Input is the bytes of one file. Nothing raises for content: an entry that breaks a rule becomes a
DamageFact with its position, and the later entries are shown. Zero bytes that a writer has
preallocated after the last entry are not entries and no damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from kafkalog._core import crc32c
from kafkalog._core.header import parse_header
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.indexes.kinds import OFFSET_INDEX, TIME_INDEX
from kafkalog.indexes.transaction_index import ENTRY_LAYOUT as ABORTED_LAYOUT
from kafkalog.state.producer_snapshot import ENTRY_LAYOUT as PRODUCER_LAYOUT
from kafkalog.state.producer_snapshot import HEAD_LAYOUT

from .facts import AbortedTransactionFact, DamageFact, EntryFact, Fact, ProducerFact

__all__ = ["offset_index", "producer_snapshot", "time_index", "transaction_index"]

_CHUNK_BYTES: Final = 1 << 20


def offset_index(data: memoryview, base_offset: int, log: memoryview | None) -> Iterator[Fact]:
    """
    Yield (offset, position) entries; adjacent damaged ones are one fact.

    Args:
        data: the index file.
        base_offset: of its segment.
        log: the segment, if it exists: every entry is compared with the batch at its position.
    """
    yield from _joined(_offset_entries(data, base_offset, log))
    yield from _odd_end(data, OFFSET_INDEX.entry.size)


def _offset_entries(data: memoryview, base_offset: int, log: memoryview | None) -> Iterator[Fact]:
    last_offset, last_position = base_offset - 1, -1
    for where, (relative, position) in _entries(data, OFFSET_INDEX.entry):
        offset = base_offset + relative
        problem = None
        if offset <= last_offset or position <= last_position:
            problem = f"offset {offset} at {position} follows offset {last_offset}"
        elif log is not None:
            problem = _wrong_batch(log, offset, position)
        if problem is not None:
            yield DamageFact(where, OFFSET_INDEX.entry.size, "INDEX_ENTRY", problem)
            continue
        last_offset, last_position = offset, position
        yield EntryFact("offset_index_entry", {"offset": offset, "position": position})


def time_index(data: memoryview, base_offset: int) -> Iterator[Fact]:
    """Yield (timestamp, offset) entries: timestamps rise, offsets do not fall."""
    yield from _joined(_time_entries(data, base_offset))
    yield from _odd_end(data, TIME_INDEX.entry.size)


def _time_entries(data: memoryview, base_offset: int) -> Iterator[Fact]:
    last_timestamp, last_offset = -1, base_offset
    for where, (timestamp, relative) in _entries(data, TIME_INDEX.entry):
        offset = base_offset + relative
        if timestamp <= last_timestamp or offset < last_offset:
            meaning = (
                f"timestamp {timestamp}, offset {offset} follows timestamp {last_timestamp}, "
                f"offset {last_offset}"
            )
            yield DamageFact(where, TIME_INDEX.entry.size, "INDEX_ENTRY", meaning)
            continue
        last_timestamp, last_offset = timestamp, offset
        yield EntryFact("time_index_entry", {"timestamp": timestamp, "offset": offset})


def transaction_index(data: memoryview, base_offset: int) -> Iterator[Fact]:
    """Yield the aborted transactions whose markers are in this segment."""
    yield from _joined(_transactions(data, base_offset))
    yield from _odd_end(data, ABORTED_LAYOUT.size)


def _transactions(data: memoryview, base_offset: int) -> Iterator[Fact]:
    last_marker = base_offset - 1
    size = ABORTED_LAYOUT.size
    for where in range(0, len(data) - size + 1, size):
        version, producer_id, first, last, stable = ABORTED_LAYOUT.unpack_from(data, where)
        problem = None
        if version != 0:
            problem = f"version {version}, where 0 is known"
        elif last <= last_marker:
            problem = f"marker at offset {last} follows one at {last_marker}"
        elif not 0 <= first <= last:
            problem = f"a transaction from offset {first} to {last}"
        if problem is not None:
            yield DamageFact(where, size, "INDEX_ENTRY", problem)
            continue
        last_marker = last
        yield AbortedTransactionFact(version, producer_id, first, last, stable)


def _joined(facts: Iterator[Fact]) -> Iterator[Fact]:
    """Yield facts, adjacent damaged entries as one, with the reason of the first."""
    for kind, beside in groupby(facts, type):
        if kind is DamageFact:
            yield _one_of([fact for fact in beside if isinstance(fact, DamageFact)])
        else:
            yield from beside


def _one_of(damages: list[DamageFact]) -> DamageFact:
    first, count = damages[0], len(damages)
    if count == 1:
        return first
    return replace(
        first,
        size_bytes=sum(each.size_bytes for each in damages),
        meaning=f"{count:,} entries, the first: {first.meaning}",
    )


def producer_snapshot(data: memoryview) -> Iterator[Fact]:
    """Yield the producers of a snapshot."""
    if len(data) < HEAD_LAYOUT.size:
        yield DamageFact(0, len(data), "TRUNCATED", "the snapshot ends inside its header")
        return
    version, checksum, count = HEAD_LAYOUT.unpack_from(data)
    if version != 1:
        yield DamageFact(0, len(data), "VERSION", f"snapshot version must be 1, got {version}")
        return
    if checksum != crc32c.value(data[6:]):
        yield DamageFact(2, 4, "CRC", "the CRC-32C does not match the bytes after it")
    size = PRODUCER_LAYOUT.size
    whole = (len(data) - HEAD_LAYOUT.size) // size
    if count != whole or (len(data) - HEAD_LAYOUT.size) % size:
        meaning = f"{count} entries announced, {len(data) - HEAD_LAYOUT.size} bytes of them"
        yield DamageFact(6, 4, "ENTRY_COUNT", meaning)
    for slot in range(whole):
        yield _producer(PRODUCER_LAYOUT.unpack_from(data, HEAD_LAYOUT.size + slot * size))


def _producer(entry: tuple[int, ...]) -> ProducerFact:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = entry
    return ProducerFact(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator,
        last_timestamp=timestamp,
        last_sequence=sequence,
        last_offset=offset,
        offset_delta=delta,
        current_transaction_first_offset=None if first < 0 else first,
    )


def _entries(data: memoryview, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield position and fields of each entry before the zeros at the end of the file."""
    used = min(_used_size(data, entry.size), len(data) // entry.size * entry.size)
    for where in range(0, used - entry.size + 1, entry.size):
        first, second = entry.unpack_from(data, where)
        yield where, (first, second)


def _used_size(data: memoryview, entry_size: int) -> int:
    """Return the position of the preallocated zeros, rounded up to a whole entry."""
    end = len(data)
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        kept = bytes(data[start:end]).rstrip(b"\0")
        if kept:
            return -(-(start + len(kept)) // entry_size) * entry_size
        end = start
    # One entry of zeros and no more: timestamp 0 at the base offset, in a trimmed file.
    return entry_size if len(data) == entry_size else 0


def _odd_end(data: memoryview, entry_size: int) -> Iterator[Fact]:
    rest = len(data) % entry_size
    if rest:
        meaning = f"the file ends inside an entry of {entry_size} bytes"
        yield DamageFact(len(data) - rest, rest, "TRUNCATED", meaning)


def _wrong_batch(log: memoryview, offset: int, position: int) -> str | None:
    """Return why the batch at `position` does not match an index entry; None if it does."""
    if position >= len(log):
        return f"offset {offset} at {position} points past the segment's {len(log)} bytes"
    try:
        header = parse_header(log, position)
    except (CorruptRecordError, InvalidRecordError) as error:
        return f"offset {offset} points at {position}, where no batch begins: {error}"
    # An entry has the last offset of one append, which may be above the batch. Up to 0.10.2 it was
    # the first offset, which differs from the offset of a wrapper.
    if header.base_offset > offset and not header.is_wrapper:
        return f"offset {offset} points at the batch of offset {header.base_offset}"
    return None
