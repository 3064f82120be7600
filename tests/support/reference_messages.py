"""The slow, obvious codec of messages of magic 0 and 1: plain ones, wrappers, and what they hold.

Written from the format's description alone, with `struct` and `zlib.crc32`. A verdict is the name
of a status code, with the position of the message that it is about. An outer entry is described
by the same `Header` as a batch of v2; `reference.parse_header` reads it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.support import reference_codecs as codecs
from tests.support.reference import Header
from tests.support.reference_records import Refused, wrap64

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "NO_TIMESTAMP_TYPE",
    "Message",
    "OldRecord",
    "decode_entry",
    "decode_messages",
    "decode_payload",
    "encode_message",
    "encode_messages",
    "encode_set",
    "is_wrapper",
    "message_timestamp_type",
    "wrapper_value",
]

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1

_CODEC_BITS = 0x07
_TYPE_BIT = 0x08


@dataclass(frozen=True)
class Message:
    """One message as in the bytes; the spans are those of its parts in the payload."""

    offset: int = 0
    magic: int = 1
    attributes: int = 0
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    crc: int = field(default=0, compare=False)
    position: int = field(default=0, compare=False)
    key_position: int = field(default=0, compare=False)
    value_position: int = field(default=0, compare=False)
    value_end: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True)
class OldRecord:
    """A message with its true offset and time, worked out with its outer entry."""

    offset: int
    timestamp: int
    timestamp_type: int
    message: Message

    @property
    def key(self) -> bytes | None:
        return self.message.key

    @property
    def value(self) -> bytes | None:
        return self.message.value


# ---- writing ----


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode_message(message: Message) -> bytes:
    """Return one entry: offset, size, CRC, and what the CRC covers."""
    covered = struct.pack(">bB", message.magic, message.attributes)
    if message.magic > 0:
        covered += struct.pack(">q", message.timestamp)
    covered += _sized(message.key) + _sized(message.value)
    crc = zlib.crc32(covered)
    return struct.pack(">qiI", message.offset, 4 + len(covered), crc) + covered


def encode_messages(messages: Iterable[Message]) -> bytes:
    """Return entries back to back, as plain messages and the inside of wrappers are."""
    return b"".join(map(encode_message, messages))


def encode_set(
    messages: Sequence[Message],
    *,
    codec: int = codecs.NONE,
    timestamp_type: int = CREATE_TIME,
    append_time: int = -1,
) -> bytes:
    """
    Return a message set as a writer makes it of messages of one magic with true offsets.

    Plain ones stand alone; with a codec they are one wrapper at the offset of the last. With log
    append time every message carries that time and type, as Kafka's builder writes them.
    """
    magic = messages[0].magic
    if magic > 0 and timestamp_type == LOG_APPEND_TIME:
        messages = [replace(m, timestamp=append_time, attributes=_TYPE_BIT) for m in messages]
    if codec == codecs.NONE:
        return encode_messages(messages)
    base_offset = messages[0].offset if magic > 0 else 0
    inner = encode_messages(replace(m, offset=m.offset - base_offset) for m in messages)
    type_bit = _TYPE_BIT if magic > 0 and timestamp_type == LOG_APPEND_TIME else 0
    wrapper = Message(
        offset=messages[-1].offset,
        magic=magic,
        attributes=codec | type_bit,
        timestamp=max(message.timestamp for message in messages),
        value=codecs.compress(codec, inner, magic),
    )
    return encode_message(wrapper)


# ---- reading ----


def is_wrapper(header: Header) -> bool:
    """Return whether an outer entry of magic 0 or 1 holds compressed messages."""
    return header.attributes & _CODEC_BITS != codecs.NONE


def message_timestamp_type(magic: int, attributes: int) -> int:
    """Return -1 (none), 0 (create time) or 1 (log append time)."""
    if magic == 0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if attributes & _TYPE_BIT else CREATE_TIME


def _frame(payload: bytes, position: int) -> int:
    """Return the end of the message at `position`."""
    if len(payload) - position < 12:
        raise Refused("TRUNCATED", position)
    size = int.from_bytes(payload[position + 8 : position + 12], "big", signed=True)
    if size < 14:
        raise Refused("RECORD_LENGTH", position)
    if size > len(payload) - position - 12:
        raise Refused("TRUNCATED", position)
    return position + 12 + size


def _field(payload: bytes, start: int, reserved: int, end: int, record: int) -> int:
    """Return the end of the key or value with its length at `start`; later bytes are reserved."""
    size = int.from_bytes(payload[start : start + 4], "big", signed=True)
    if size > end - reserved - start - 4:
        raise Refused("FIELD_LENGTH", record)
    return start + 4 + max(size, 0)


def _decode_message(payload: bytes, start: int, *, check_crc: bool, strict: bool) -> Message:
    end = _frame(payload, start)
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", payload, start)
    if check_crc and crc != zlib.crc32(payload[start + 16 : end]):
        raise Refused("CRC", start)
    timestamp = -1
    if magic == 1:
        if end - start < 34:
            raise Refused("RECORD_LENGTH", start)
        (timestamp,) = struct.unpack_from(">q", payload, start + 18)
        key_start = start + 26
    elif magic == 0:
        key_start = start + 18
    else:
        raise Refused("MAGIC", start)
    key_end = _field(payload, key_start, 4, end, start)
    value_end = _field(payload, key_end, 0, end, start)
    if strict and value_end != end:
        raise Refused("RECORD_LENGTH", start)
    has_key = payload[key_start] < 0x80
    has_value = payload[key_end] < 0x80
    return Message(
        offset=offset,
        magic=magic,
        attributes=attributes,
        timestamp=timestamp,
        key=payload[key_start + 4 : key_end] if has_key else None,
        value=payload[key_end + 4 : value_end] if has_value else None,
        crc=crc,
        position=start,
        key_position=key_start + 4,
        value_position=key_end + 4,
        value_end=value_end,
        end=end,
    )


def wrapper_value(entry: bytes, *, strict: bool = True) -> tuple[int, int]:
    """Return where the compressed messages of a whole wrapper lie in it."""
    wrapper = _decode_message(entry, 0, check_crc=False, strict=False)
    if wrapper.attributes & _CODEC_BITS > codecs.LZ4:
        raise Refused("UNKNOWN_CODEC", 0)
    if wrapper.value is None:
        raise Refused("EMPTY_WRAPPER", 0)
    if strict and wrapper.value_end != wrapper.end:
        raise Refused("TRAILING_BYTES", 0)
    return wrapper.value_position, wrapper.value_end


def decode_messages(payload: bytes, header: Header, *, strict: bool = True) -> list[OldRecord]:
    """
    Return the records of a payload, or raise Refused.

    The payload of a plain message is the message itself, that of a wrapper what its value
    decompresses to; `header` is that of the outer entry.
    """
    outer_type = message_timestamp_type(header.magic, header.attributes)
    if not is_wrapper(header):
        message = _decode_message(payload, 0, check_crc=False, strict=strict)
        if message.magic != header.magic:
            raise Refused("MAGIC", 0)
        if message.end != len(payload):
            raise Refused("TRAILING_BYTES", message.end)
        return [OldRecord(header.base_offset, header.base_timestamp, outer_type, message)]
    starts, end = _survey(payload, strict=strict)
    shift = _offset_shift(payload, starts, header)
    records = []
    previous = -1
    for start in starts:
        message = _decode_message(payload[:end], start, check_crc=strict, strict=strict)
        if message.attributes & _CODEC_BITS:
            raise Refused("NESTED_COMPRESSION", start)
        if strict and message.offset <= previous:
            raise Refused("OFFSET_DELTA", start)
        previous = message.offset
        timestamp, timestamp_type = message.timestamp, outer_type
        if message.magic != header.magic:
            # Brokers of 0.10.0 mixed the magics; each message keeps the rules of its magic.
            timestamp_type = message_timestamp_type(message.magic, message.attributes)
        elif outer_type == LOG_APPEND_TIME:
            timestamp = header.base_timestamp
        records.append(
            OldRecord(wrap64(message.offset + shift), timestamp, timestamp_type, message)
        )
    return records


def _survey(payload: bytes, *, strict: bool) -> tuple[list[int], int]:
    """Return where the messages of a wrapper begin, and the end of the last whole one."""
    starts = []
    position = 0
    while position < len(payload):
        try:
            end = _frame(payload, position)
        except Refused as refusal:
            if refusal.verdict == "TRUNCATED" and not strict:
                break
            raise
        starts.append(position)
        position = end
    if not starts:
        raise Refused("EMPTY_WRAPPER", 0)
    return starts, position


def _offset_shift(payload: bytes, starts: Sequence[int], header: Header) -> int:
    """Return what to add to stored offsets: v0 has true ones, v1 relative to the first."""
    if header.magic == 0 or header.base_offset == 0:
        return 0
    last = int.from_bytes(payload[starts[-1] : starts[-1] + 8], "big", signed=True)
    if header.base_offset < last:
        raise Refused("OFFSET_DELTA", 0)
    return header.base_offset - last


def decode_payload(entry: bytes, header: Header, *, strict: bool = True) -> bytes:
    """Return what `decode_messages` takes of a whole outer entry; Damaged for a bad stream."""
    if not is_wrapper(header):
        return entry
    start, end = wrapper_value(entry, strict=strict)
    return codecs.decompress(header.attributes & _CODEC_BITS, entry[start:end], header.magic)


def decode_entry(entry: bytes, header: Header, *, strict: bool = True) -> list[OldRecord]:
    """Return the records of a whole outer entry: Refused or Damaged where it has none to give."""
    return decode_messages(decode_payload(entry, header, strict=strict), header, strict=strict)
