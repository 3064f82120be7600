"""The reference of a leader's old messages, stored bytes and answer: slow, by the description.

Takes sets that are good: one format, offsets that count from 0. Knows formats v0, v1 and v2 as
targets. Compressed bytes are not given, only their content.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tests.support import reference_codecs as codecs
from tests.support.reference_conversion import PlainRecord, decode_run, records_in_format
from tests.support.reference_messages import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE

__all__ = ["Answer", "LeaderLog", "Stored", "expected", "stored"]


@dataclass(frozen=True)
class LeaderLog:
    """Settings of a log; `codec` is None for `producer`."""

    magic: int
    codec: int | None
    append_time: int | None
    end_offset: int


@dataclass(frozen=True)
class Stored:
    """One outer entry of a log: its format, its codec, and the records in it."""

    magic: int
    codec: int
    max_timestamp: int
    records: tuple[PlainRecord, ...]


@dataclass(frozen=True)
class Answer:
    """The leader's answer to an append."""

    max_timestamp: int
    shallow_offset: int


def stored(data: bytes) -> list[Stored]:
    """Return the entries of a run."""
    return [
        Stored(batch.header.magic, batch.codec, batch.header.max_timestamp, batch.records)
        for batch in decode_run(data)
    ]


def expected(data: bytes, log: LeaderLog) -> tuple[list[Stored], Answer]:
    """Return what a log holds after an append of the set, and the answer to it."""
    sources = decode_run(data)
    source_codec = max((batch.codec for batch in sources), default=codecs.NONE)
    source_magic = sources[0].header.magic
    codec = source_codec if log.codec is None else log.codec
    records = [
        _record(record, offset, log)
        for offset, record in enumerate(
            (record for batch in sources for record in batch.records), log.end_offset
        )
    ]
    in_one = log.magic == 2 or codec != codecs.NONE
    groups = [records] if in_one else [[record] for record in records]
    entries = [
        Stored(log.magic, codec, max(record.timestamp for record in group), tuple(group))
        for group in groups
    ]
    first = sources[0]
    stays = (
        source_magic == log.magic == 1
        and source_codec == codec != codecs.NONE
        and _counts_from_0(first.records)
    )
    return entries, _answer(entries, stays=stays)


def _record(record: PlainRecord, offset: int, log: LeaderLog) -> PlainRecord:
    timestamp = record.timestamp if log.append_time is None else log.append_time
    kind = CREATE_TIME if log.append_time is None else LOG_APPEND_TIME
    if log.magic == 0:
        timestamp, kind = -1, NO_TIMESTAMP_TYPE
    moved = PlainRecord(offset, timestamp, kind, record.key, record.value)
    return records_in_format([moved], log.magic)[0]


def _counts_from_0(records: tuple[PlainRecord, ...]) -> bool:
    offsets = [record.offset for record in records]
    return offsets[0] == 0 and all(right == left + 1 for left, right in pairwise(offsets))


def _answer(entries: list[Stored], *, stays: bool) -> Answer:
    largest = max(entry.max_timestamp for entry in entries)
    if largest < 0 and not stays:
        return Answer(-1, -1)
    newest = next(entry for entry in entries if entry.max_timestamp == largest)
    return Answer(largest, newest.records[-1].offset)
