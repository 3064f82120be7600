"""The slow, obvious codec of records: what decoders and builder must agree with.

Written from the format's description alone, on top of the varints of `reference.py`. A verdict is
the name of a status code, with the position of the record that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.reference import Header, decode_varint, encode_varint, zigzag

__all__ = ["Decoded", "Entry", "Refused", "decode", "encode", "encode_entry", "wrap64"]


@dataclass(frozen=True)
class Entry:
    """One record, as in a batch; the spans are those of its parts in the payload."""

    offset_delta: int = 0
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    attributes: int = 0
    key_position: int = field(default=0, compare=False)
    value_position: int = field(default=0, compare=False)
    headers_position: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Decoded:
    """Offset and timestamp of an entry, worked out with its batch's header."""

    offset: int
    timestamp: int
    entry: Entry


class Refused(Exception):  # noqa: N818 - not an error: a verdict
    """The verdict on a payload, and the position of the record at fault."""

    def __init__(self, verdict: str, position: int) -> None:
        super().__init__(verdict, position)
        self.verdict = verdict
        self.position = position


# ---- writing ----


def _sized(data: bytes | None) -> bytes:
    if data is None:
        return encode_varint(zigzag(-1))
    return encode_varint(zigzag(len(data))) + data


def encode_entry(entry: Entry) -> bytes:
    """Return one record with its length in front."""
    body = bytes([entry.attributes])
    body += encode_varint(zigzag(entry.timestamp_delta))
    body += encode_varint(zigzag(entry.offset_delta))
    body += _sized(entry.key) + _sized(entry.value)
    body += encode_varint(zigzag(len(entry.headers)))
    for name, value in entry.headers:
        body += _sized(name) + _sized(value)
    return encode_varint(zigzag(len(body))) + body


def encode(entries: Iterable[Entry]) -> bytes:
    """Return the payload of a batch that holds these records."""
    return b"".join(map(encode_entry, entries))


# ---- reading ----


class _Reader:
    """A position in some bytes; what it cannot read ends in the verdict that the caller names."""

    def __init__(self, data: bytes, position: int, record: int) -> None:
        self.data = data
        self.position = position
        self.record = record

    def refuse(self, verdict: str) -> Refused:
        return Refused(verdict, self.record)

    def number(self, bits: int, *, if_short: str) -> int:
        verdict, value, size = decode_varint(self.data[self.position :], bits, signed=True)
        if verdict == "TRUNCATED":
            raise self.refuse(if_short)
        if verdict != "OK":
            raise self.refuse(verdict)
        self.position += size
        return value

    def field(self) -> bytes | None:
        size = self.number(32, if_short="FIELD_LENGTH")
        if size < 0:
            return None
        if size > len(self.data) - self.position:
            raise self.refuse("FIELD_LENGTH")
        self.position += size
        return self.data[self.position - size : self.position]


def _decode_entry(payload: bytes, start: int) -> Entry:
    outside = _Reader(payload, start, start)
    length = outside.number(32, if_short="TRUNCATED")
    if length < 0:
        raise Refused("RECORD_LENGTH", start)
    end = outside.position + length
    if end > len(payload):
        raise Refused("TRUNCATED", start)
    if length == 0:
        raise Refused("RECORD_LENGTH", start)
    body = _Reader(payload[:end], outside.position + 1, start)
    timestamp_delta = body.number(64, if_short="RECORD_LENGTH")
    offset_delta = body.number(32, if_short="RECORD_LENGTH")
    key = body.field()
    key_position = body.position - len(key or b"")
    value = body.field()
    value_position = body.position - len(value or b"")
    count = body.number(32, if_short="RECORD_LENGTH")
    if not 0 <= count <= end - body.position:
        raise Refused("HEADER_COUNT", start)
    headers_position = body.position
    headers = []
    for _ in range(count):
        name = body.field()
        if name is None:
            raise Refused("HEADER_KEY", start)
        headers.append((name, body.field()))
    if body.position != end:
        raise Refused("RECORD_LENGTH", start)
    return Entry(
        offset_delta,
        timestamp_delta,
        key,
        value,
        tuple(headers),
        payload[outside.position],
        key_position,
        value_position,
        headers_position,
        end,
    )


def wrap64(value: int) -> int:
    """Return what is left of a number in 64 bits, as sums and differences of timestamps do."""
    return (value + 2**63) % 2**64 - 2**63


def decode(payload: bytes, header: Header, *, strict: bool = True) -> Sequence[Decoded]:
    """Return the records of a payload, or raise Refused."""
    if not 0 <= header.record_count * 7 <= len(payload):
        raise Refused("RECORD_COUNT", 0)
    records: list[Decoded] = []
    position = 0
    previous = -1
    for _ in range(header.record_count):
        entry = _decode_entry(payload, position)
        if strict:
            if not previous < entry.offset_delta <= header.last_offset_delta:
                raise Refused("OFFSET_DELTA", position)
            previous = entry.offset_delta
        timestamp = wrap64(header.base_timestamp + entry.timestamp_delta)
        if header.attributes & 8:
            timestamp = header.max_timestamp
        records.append(Decoded(wrap64(header.base_offset + entry.offset_delta), timestamp, entry))
        position = entry.end
    if header.record_count and position < len(payload):
        raise Refused("TRAILING_BYTES", position)
    return records
