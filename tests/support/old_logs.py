"""Segments of magic 0, 1 and 2 for tests of logs, written by the reference codec.

A chapter is one outer entry: a plain message, a wrapper, or a batch of v2. The records of a log are
made of their offsets, so a test can detect what is served under an offset that is not its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog import Record
from kafkalog._core.builder import BatchBuilder
from kafkalog.records.codecs import Codec, compress
from tests.support.damage import log_file
from tests.support.manual_time import START_MS
from tests.support.reference_messages import Message, encode_set

__all__ = [
    "LOG_KINDS",
    "Chapter",
    "OldFact",
    "chapter",
    "chapters_of",
    "fact_of",
    "facts_of",
    "write_chapters",
]

# offset, timestamp, its type, key, value
OldFact = tuple[int, int, int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Chapter:
    """One outer entry, and the records in it."""

    data: bytes
    magic: int
    codec: int
    facts: tuple[OldFact, ...]

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.facts[0][0]

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.facts[-1][0]


def chapter(magic: int, codec: int, offsets: Sequence[int], *, repeat: int = 1) -> Chapter:
    """Return an entry with records at `offsets`; of a plain message there is one."""
    facts = tuple(_fact(magic, offset, repeat) for offset in offsets)
    if magic == 2:
        return Chapter(_batch(codec, facts), magic, codec, facts)
    messages = [
        Message(offset, magic, 0, timestamp, key, value)
        for offset, timestamp, _, key, value in facts
    ]
    return Chapter(encode_set(messages, codec=codec), magic, codec, facts)


def chapters_of(
    plan: Iterable[tuple[int, int, int]], *, first_offset: int = 0, repeat: int = 1
) -> list[Chapter]:
    """Return entries back to back, each (magic, codec, number of records)."""
    chapters, offset = [], first_offset
    for magic, codec, count in plan:
        chapters.append(chapter(magic, codec, range(offset, offset + count), repeat=repeat))
        offset += count
    return chapters


def facts_of(chapters: Iterable[Chapter]) -> list[OldFact]:
    """Return the records of entries, in order."""
    return [fact for each in chapters for fact in each.facts]


def fact_of(record: Record) -> OldFact:
    """Return what is compared of a record."""
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
    )


def write_chapters(
    directory: Path, chapters: Iterable[Chapter], *, base_offset: int | None = None
) -> Path:
    """Write entries as a segment of a partition, which is made where it is missing."""
    chapters = list(chapters)
    base_offset = chapters[0].first_offset if base_offset is None else base_offset
    directory.mkdir(exist_ok=True)
    path = log_file(directory, base_offset)
    path.write_bytes(b"".join(each.data for each in chapters))
    return path


def _fact(magic: int, offset: int, repeat: int) -> OldFact:
    timestamp, timestamp_type = (-1, -1) if magic == 0 else (START_MS + offset, 0)
    return offset, timestamp, timestamp_type, b"k%d" % offset, b"value %d;" % offset * repeat


def _batch(codec: int, facts: Sequence[OldFact]) -> bytes:
    builder = BatchBuilder()
    for offset, timestamp, _, key, value in facts:
        if offset - facts[0][0] != builder.count:
            raise ValueError("batches of v2 are made without holes here")
        builder.append(key, value, timestamp)
    payload = None if codec == Codec.NONE else compress(codec, builder.payload())
    return bytes(builder.finish(base_offset=facts[0][0], codec=codec, payload=payload))


# Every magic next to every other, plain next to compressed, in every codec that each can have.
LOG_KINDS: Final[dict[str, list[tuple[int, int, int]]]] = {
    "v0": [(0, Codec.NONE, 1)] * 5,
    "v0-wrappers": [
        (0, Codec.GZIP, 4),
        (0, Codec.SNAPPY, 5),
        (0, Codec.LZ4, 3),
        (0, Codec.GZIP, 1),
        (0, Codec.LZ4, 4),
    ],
    "v1": [(1, Codec.NONE, 1)] * 5,
    "v1-wrappers": [
        (1, Codec.GZIP, 4),
        (1, Codec.SNAPPY, 5),
        (1, Codec.LZ4, 3),
        (1, Codec.GZIP, 1),
        (1, Codec.LZ4, 4),
    ],
    "upgraded": [
        (0, Codec.NONE, 1),
        (0, Codec.SNAPPY, 4),
        (1, Codec.NONE, 1),
        (1, Codec.GZIP, 3),
        (2, Codec.NONE, 3),
        (2, Codec.LZ4, 3),
    ],
    "downgraded": [
        (2, Codec.GZIP, 3),
        (2, Codec.NONE, 2),
        (1, Codec.LZ4, 4),
        (1, Codec.NONE, 1),
        (0, Codec.GZIP, 3),
        (0, Codec.NONE, 1),
    ],
}
