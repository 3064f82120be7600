"""The slow, obvious conversion between formats: over lists of records, in plain Python.

`down_convert` follows a broker that answers an old fetch, batch by batch; `records_in_format`
converts a single record, up or down. Batches of any magic are read by the reference
codecs and nothing else; `decode_run` takes good bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tests.support import reference, reference_records
from tests.support import reference_codecs as codecs
from tests.support.reference import Header
from tests.support.reference_messages import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP_TYPE,
    Message,
    decode_entry,
    encode_set,
)

__all__ = [
    "PlainBatch",
    "PlainRecord",
    "Unconvertible",
    "decode_batch",
    "decode_run",
    "down_convert",
    "records_in_format",
]

_CONTROL_BIT = 0x20


@dataclass(frozen=True)
class PlainRecord:
    """A record without a format."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True)
class PlainBatch:
    """A batch of any magic, or a message of an old one, with its bytes and its records."""

    header: Header
    data: bytes
    records: tuple[PlainRecord, ...]

    @property
    def codec(self) -> int:
        return self.header.attributes & 7

    @property
    def is_control(self) -> bool:
        return self.header.magic == 2 and bool(self.header.attributes & _CONTROL_BIT)


class Unconvertible(Exception):  # noqa: N818 - not an error: a verdict
    """The target format has no field for this."""


# ---- reading ----


def decode_batch(data: bytes) -> PlainBatch:
    """Return the whole, good batch or message that `data` is."""
    verdict, header = _header(data)
    if verdict != "OK" or header is None:
        raise ValueError(verdict)
    if header.magic < 2:
        records = tuple(
            PlainRecord(r.offset, r.timestamp, r.timestamp_type, r.key, r.value)
            for r in decode_entry(data, header)
        )
        return PlainBatch(header, data, records)
    payload = codecs.decompress(header.attributes & 7, data[61:])
    timestamp_type = LOG_APPEND_TIME if header.attributes & 8 else CREATE_TIME
    records = tuple(
        PlainRecord(
            decoded.offset,
            decoded.timestamp,
            timestamp_type,
            decoded.entry.key,
            decoded.entry.value,
            decoded.entry.headers,
        )
        for decoded in reference_records.decode(payload, header)
    )
    return PlainBatch(header, data, records)


def decode_run(data: bytes) -> list[PlainBatch]:
    """Return the batches of a run of any magics, which must be whole and good."""
    batches = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        batches.append(decode_batch(data[:size]))
        data = data[size:]
    return batches


def _header(data: bytes) -> tuple[str, Header | None]:
    if data[16] < 2:
        return reference.parse_message_header(data)
    return reference.parse_header(data)


# ---- records ----


def records_in_format(records: Iterable[PlainRecord], to_magic: int) -> list[PlainRecord]:
    """Return the records in a format: an older one has fewer fields."""
    converted = []
    for record in records:
        if to_magic < 2:
            record = replace(record, headers=())
        if to_magic == 0:
            record = replace(record, timestamp=-1, timestamp_type=NO_TIMESTAMP_TYPE)
        elif record.timestamp_type == NO_TIMESTAMP_TYPE:
            record = replace(record, timestamp_type=CREATE_TIME)
        converted.append(record)
    return converted


# ---- batches, as a broker converts them for a fetch ----


def down_convert(data: bytes, to_magic: int, first_offset: int) -> tuple[bytes, int]:
    """Return what an old fetch from `first_offset` gets, and how many records were rewritten."""
    converted = b""
    count = 0
    for batch in decode_run(data):
        if batch.is_control and to_magic < 2:
            continue
        if batch.codec == codecs.ZSTD and to_magic < 2:
            raise Unconvertible("zstd came with format v2")
        if batch.header.magic <= to_magic:
            converted += batch.data
            continue
        records = batch.records
        if batch.codec == codecs.NONE:
            records = tuple(record for record in records if record.offset >= first_offset)
        if records:
            converted += _encode_old(batch, records, to_magic)
            count += len(records)
    return converted, count


def _encode_old(batch: PlainBatch, records: Sequence[PlainRecord], to_magic: int) -> bytes:
    messages = [
        Message(record.offset, to_magic, 0, record.timestamp, record.key, record.value)
        for record in records
    ]
    return encode_set(
        messages,
        codec=batch.codec,
        timestamp_type=records[0].timestamp_type,
        append_time=batch.header.max_timestamp,
    )
