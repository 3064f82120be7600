"""Kafka's log files read, and batches written, from the format's description alone.

Nothing of `kafkalog` is used. Checksums and codecs come from other libraries. A reader goes from
the first byte of each file to the first that is not a whole batch with a good checksum, and reports
where it stopped; whether something whole follows is looked for byte by byte.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cramjam
import crc32c
import lz4.frame
import zstandard

from tests.support import reference_codecs

__all__ = ["PlainBatch", "PlainLog", "PlainRecord", "encode_batch", "read_batches", "read_log"]

_V2 = struct.Struct(">qiibIhiqqqhii")
_OLD = struct.Struct(">qiIbb")
_XERIAL = b"\x82SNAPPY\x00"


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """One record: offset, timestamp, key, value, headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """One batch or old message: the fields of its header, and its records."""

    base_offset: int
    last_offset: int
    magic: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    records: tuple[PlainRecord, ...]

    @property
    def commits(self) -> bool:
        """True for a control batch that is the marker of a commit."""
        key = self.records[0].key if self.records else None
        return bool(key) and key is not None and struct.unpack(">hh", key[:4])[1] == 1


@dataclass
class PlainLog:
    """A partition directory: batches in order, and where files hold something else."""

    batches: list[PlainBatch] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    def data(self) -> Iterator[tuple[PlainBatch, PlainRecord]]:
        """Yield each record that is no marker."""
        for batch in self.batches:
            if not batch.is_control:
                for record in batch.records:
                    yield batch, record

    def outcomes(self) -> tuple[dict[int, str], int | None]:
        """
        Return the fate of each batch of a transaction, and the start of the first open one.

        The first is "committed", "aborted" or "open" by base offset.
        """
        open_batches: dict[int, list[int]] = {}
        found: dict[int, str] = {}
        for batch in self.batches:
            if batch.is_control:
                verdict = "committed" if batch.commits else "aborted"
                for base in open_batches.pop(batch.producer_id, []):
                    found[base] = verdict
            elif batch.is_transactional:
                open_batches.setdefault(batch.producer_id, []).append(batch.base_offset)
                found[batch.base_offset] = "open"
        return found, min((bases[0] for bases in open_batches.values()), default=None)


def read_log(directory: Path) -> PlainLog:
    """Read every `.log` file of a partition directory, in the order of their base offsets."""
    found = PlainLog()
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        batches, stopped = read_batches(data)
        found.batches += batches
        while data[stopped:].strip(b"\0"):
            found.stops.append(f"{path.name}: {len(data) - stopped} bytes from {stopped} on")
            begun, next_offset = stopped, batches[-1].last_offset + 1 if batches else int(path.stem)
            for position in _candidates(data, begun, next_offset):
                batches, stopped = read_batches(data[position:])
                if batches:
                    found.batches += batches
                    stopped += position
                    break
            else:
                break
    return found


def _candidates(data: bytes, start: int, next_offset: int) -> Iterator[int]:
    """Yield where a batch of any format with an offset of at least `next_offset` may begin."""
    for at in range(start + 1, len(data) - _OLD.size + 1):
        offset, length, _crc, magic, _attributes = _OLD.unpack_from(data, at)
        if not next_offset <= offset < next_offset + (1 << 20) or not 0 <= magic <= 2:
            continue
        if (49 if magic == 2 else 14) <= length <= len(data) - at - 12:
            yield at


def read_batches(data: bytes) -> tuple[list[PlainBatch], int]:
    """Return the whole batches at the beginning of a file's bytes, and where they end."""
    found: list[PlainBatch] = []
    position = 0
    while position + 17 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        magic = data[position + 16]
        if size < 26 or position + size > len(data) or magic > 2:
            break
        batch = _read_v2(data, position, size) if magic == 2 else _read_old(data, position, size)
        if batch is None:
            break
        found.append(batch)
        position += size
    return found, position


# ---------------------------------------------------------------------------------------- format 2


def _read_v2(data: bytes, position: int, size: int) -> PlainBatch | None:
    if size < 61:
        return None
    (base, _length, epoch, magic, crc, attributes, last_delta, first_time, last_time, producer,
     producer_epoch, sequence, count) = _V2.unpack_from(data, position)  # fmt: skip
    body = data[position + 21 : position + size]
    if crc32c.crc32c(body) != crc:
        return None
    payload = _decompress(attributes & 7, data[position + 61 : position + size])
    records = []
    at = 0
    for _ in range(count):
        length, at = _varint(payload, at)
        end = at + length
        records.append(_record(payload, at + 1, base, first_time, last_time, attributes))
        at = end
    return PlainBatch(
        base, base + last_delta, magic, epoch, producer, producer_epoch, sequence,
        bool(attributes & 16), bool(attributes & 32), tuple(records),
    )  # fmt: skip


def _record(
    payload: bytes, at: int, base: int, first_time: int, last_time: int, attributes: int
) -> PlainRecord:
    time_delta, at = _varint(payload, at)
    offset_delta, at = _varint(payload, at)
    key, at = _bytes(payload, at)
    value, at = _bytes(payload, at)
    count, at = _varint(payload, at)
    headers = []
    for _ in range(count):
        name, at = _bytes(payload, at)
        content, at = _bytes(payload, at)
        headers.append(((name or b"").decode(), content))
    time = last_time if attributes & 8 else first_time + time_delta
    return PlainRecord(base + offset_delta, time, key, value, tuple(headers))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _decompress(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return _unsnappy(data)
    if codec == 3:
        return bytes(lz4.frame.decompress(data))
    # Frames need not have their size.
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts, at = [], 16
    while at < len(data):
        size = struct.unpack_from(">i", data, at)[0]
        parts.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(parts)


# ----------------------------------------------------------------------------------- formats 0, 1


def _read_old(data: bytes, position: int, size: int) -> PlainBatch | None:
    offset, _length, crc, magic, attributes = _OLD.unpack_from(data, position)
    if zlib.crc32(data[position + 16 : position + size]) != crc:
        return None
    at = position + 18
    time = -1
    if magic == 1:
        time = struct.unpack_from(">q", data, at)[0]
        at += 8
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    records: tuple[PlainRecord, ...] = (PlainRecord(offset, time, key, value),)
    if attributes & 7:
        inner, _end = read_batches(_decompress_old(attributes & 7, value or b"", magic))
        records = tuple(record for each in inner for record in each.records)
        if magic == 1 and records:
            shift = offset - records[-1].offset
            records = tuple(
                PlainRecord(each.offset + shift, each.timestamp, each.key, each.value)
                for each in records
            )
    return PlainBatch(records[0].offset, offset, magic, -1, -1, -1, -1, False, False, records)


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = struct.unpack_from(">i", data, at)[0]
    at += 4
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _decompress_old(codec: int, data: bytes, magic: int) -> bytes:
    # Format 0 has a header checksum of lz4 frames that no library accepts.
    decompress = reference_codecs.decompress
    return decompress(codec, data, magic) if codec == 3 else _decompress(codec, data)


# ----------------------------------------------------------------------------------------- writing


def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None, Iterable[tuple[str, bytes]]]],
    *,
    base_offset: int = 0,
    timestamp: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one batch of format 2, without compression, of (key, value, headers)."""
    parts = []
    for delta, (key, value, headers) in enumerate(records):
        content = [b"\0", _zigzag(0), _zigzag(delta), _field(key), _field(value)]
        listed = list(headers)
        content.append(_zigzag(len(listed)))
        for name, held in listed:
            content += [_field(name.encode()), _field(held)]
        body = b"".join(content)
        parts += [_zigzag(len(body)), body]
    payload = b"".join(parts)
    count = len(records)
    tail = struct.pack(
        ">hiqqqhii", 0, count - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence,
        count,
    )  # fmt: skip
    crc = crc32c.crc32c(tail + payload)
    head = struct.pack(">qiibI", base_offset, 49 + len(payload), leader_epoch, 2, crc)
    return head + tail + payload


def _zigzag(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data
