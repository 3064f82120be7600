"""The slow, obvious codec: what every kernel must agree with, on good input and bad.

Written from the format's description alone, with `int.from_bytes` and `struct`, without sharing a
line with `kafkalog._core`. Verdicts are names of status codes ("OK", "TRUNCATED" ...). Records
have a file of their own, `reference_records.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "Header",
    "Scan",
    "assign_offsets",
    "batch_crc",
    "check_batch",
    "check_offset_index",
    "check_time_index",
    "crc32c",
    "decode_varint",
    "encode_batch",
    "encode_varint",
    "find",
    "find_batch",
    "floor_slot",
    "parse_header",
    "parse_message_header",
    "scan_batches",
    "select_entries",
    "set_max_timestamp",
    "zigzag",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")


# ---- varints ----


def zigzag(value: int) -> int:
    """Map 0, -1, 1, -2 ... to 0, 1, 2, 3 ..."""
    return -2 * value - 1 if value < 0 else 2 * value


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative: seven bits a byte, the lowest first."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def decode_varint(data: bytes, bits: int, *, signed: bool) -> tuple[str, int, int]:
    """Return (verdict, value, bytes read) of the 32- or 64-bit varint that `data` begins with."""
    size_max = 5 if bits == 32 else 10
    value = 0
    for index in range(size_max):
        if index == len(data):
            return "TRUNCATED", 0, 0
        value |= (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            value &= (1 << bits) - 1
            if signed:
                value = -(value + 1) // 2 if value & 1 else value // 2
            return "OK", value, index + 1
    return "VARINT_TOO_LONG", 0, 0


# ---- CRC-32C ----


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes, start: int = 0) -> int:
    """CRC-32C, a byte at a time."""
    crc = start ^ 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# ---- batches ----


@dataclass(frozen=True)
class Header:
    """
    The fields of a v2 batch header in their order on disk.

    A message of magic 0 or 1 has the same fields: its offset is the base offset, its timestamp
    base and maximum, and it counts one record, or -1 where it is a wrapper of others.
    """

    base_offset: int = 0
    batch_length: int = 49
    partition_leader_epoch: int = -1
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        return self.batch_length + 12

    def encode(self) -> bytes:
        """Return the 61 bytes."""
        return _HEADER.pack(*vars(self).values())


def encode_batch(header: Header, payload: bytes = b"") -> bytes:
    """Return a batch with this header and payload; length and CRC are made right."""
    header = replace(header, batch_length=49 + len(payload))
    covered = header.encode()[21:] + payload
    return replace(header, crc=crc32c(covered)).encode()[:21] + covered


def parse_header(data: bytes) -> tuple[str, Header | None]:
    """Return (verdict, header) of the header that `data` begins with; None where it is short."""
    if len(data) < 12:
        return "TRUNCATED", None
    batch_length = int.from_bytes(data[8:12], "big", signed=True)
    if not 14 <= batch_length <= INT32_MAX - 12:
        return "BATCH_LENGTH", None
    if len(data) < 17:
        return "TRUNCATED", None
    magic = int.from_bytes(data[16:17], "big", signed=True)
    if magic not in (0, 1, 2):
        return "MAGIC", None
    if batch_length < {0: 14, 1: 22, 2: 49}[magic]:
        return "BATCH_LENGTH", None
    if magic < 2:
        return parse_message_header(data)
    if len(data) < 61:
        return "TRUNCATED", None
    header = Header(*_HEADER.unpack_from(data))
    return _fields_verdict(header), header


def parse_message_header(data: bytes) -> tuple[str, Header | None]:
    """As parse_header, of a message of magic 0 or 1 with sound framing: plain or a wrapper."""
    magic = data[16]
    if len(data) < {0: 18, 1: 26}[magic]:
        return "TRUNCATED", None
    offset, batch_length, crc = struct.unpack_from(">qiI", data)
    timestamp = int.from_bytes(data[18:26], "big", signed=True) if magic == 1 else -1
    attributes = data[17] & {0: 0b0111, 1: 0b1111}[magic]
    header = Header(
        base_offset=offset,
        batch_length=batch_length,
        magic=magic,
        crc=crc,
        attributes=attributes,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=-1 if attributes & 7 else 1,
    )
    if offset < 0:
        return "BASE_OFFSET", header
    return ("LAST_OFFSET_DELTA" if offset == INT64_MAX else "OK"), header


def _fields_verdict(header: Header) -> str:
    if header.last_offset_delta < 0:
        return "LAST_OFFSET_DELTA"
    if header.record_count < 0:
        return "RECORD_COUNT"
    uncompressed = header.attributes % 8 == 0
    if uncompressed and header.record_count * 7 > header.size_bytes - 61:
        return "RECORD_COUNT"
    if header.base_offset < 0:
        return "BASE_OFFSET"
    if header.last_offset + 1 > INT64_MAX:
        return "LAST_OFFSET_DELTA"
    return "OK"


def whole_batch(data: bytes) -> tuple[str, Header | None]:
    """As parse_header, but the bytes of the batch must all be there."""
    verdict, header = parse_header(data)
    if verdict == "OK":
        size_bytes = int.from_bytes(data[8:12], "big", signed=True) + 12
        if size_bytes > len(data):
            return "TRUNCATED", header
    return verdict, header


def batch_crc(batch: bytes) -> int:
    """Return the checksum that the bytes of one batch or message ask for."""
    return zlib.crc32(batch[16:]) if batch[16] < 2 else crc32c(batch[21:])


def check_batch(data: bytes, *, check_crc: bool = True) -> str:
    """Return the verdict on the batch that `data` begins with."""
    verdict, header = whole_batch(data)
    if verdict != "OK" or header is None:
        return verdict
    if check_crc and header.crc != batch_crc(data[: header.size_bytes]):
        return "CRC"
    return "OK"


@dataclass(frozen=True)
class Scan:
    """The result of a walk: verdict and position at its end, and (position, header) pairs."""

    status: str
    position: int
    batches: tuple[tuple[int, Header], ...]
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


def scan_batches(
    data: bytes,
    position: int = 0,
    *,
    check_crc: bool = True,
    check_order: bool = True,
    next_offset: int = 0,
    capacity: int | None = None,
) -> Scan:
    """Walk batches from `position` to the end of `data`."""
    found: list[tuple[int, Header]] = []
    latest = (-1, -1)
    status = "OK"
    while position < len(data):
        if len(found) == capacity:
            status = "FULL"
            break
        status, header = whole_batch(data[position:])
        if status != "OK" or header is None:
            break
        if check_order and header.base_offset < next_offset:
            status = "OFFSET_ORDER"
            break
        status = check_batch(data[position:], check_crc=check_crc)
        if status != "OK":
            break
        if header.max_timestamp > latest[0]:
            latest = (header.max_timestamp, header.last_offset)
        found.append((position, header))
        next_offset = header.last_offset + 1
        position += header.size_bytes
    return Scan(status, position, tuple(found), next_offset, *latest)


def find(data: bytes, field: str, target: int, position: int = 0) -> tuple[int, str]:
    """Return (position, "OK") of the first batch whose `field` is at least `target`."""
    walk = scan_batches(data, position, check_crc=False, check_order=False)
    for start, header in walk.batches:
        if getattr(header, field) >= target:
            return start, "OK"
    return walk.position, "TRUNCATED" if walk.status == "OK" else walk.status


def find_batch(data: bytes, position: int, offset_min: int, offset_max: int) -> int:
    """Return the first position from which a good batch in the offset range can be read, or -1."""
    for start in range(position, len(data)):
        verdict, header = whole_batch(data[start:])
        if verdict != "OK" or header is None:
            continue
        inside = offset_min <= header.base_offset and header.last_offset <= offset_max
        if inside and check_batch(data[start:]) == "OK":
            return start
    return -1


def assign_offsets(data: bytes, base_offset: int, leader_epoch: int) -> tuple[bytes, int]:
    """Return the run with consecutive offsets and the epoch, and the next offset."""
    assigned = b""
    for start, header in scan_batches(data, check_crc=False, check_order=False).batches:
        assigned += base_offset.to_bytes(8, "big") + data[start + 8 : start + 12]
        epoch = leader_epoch.to_bytes(4, "big", signed=True)
        assigned += epoch if header.magic == 2 else data[start + 12 : start + 16]
        assigned += data[start + 16 : start + header.size_bytes]
        base_offset += header.last_offset_delta + 1
    return assigned, base_offset


def set_max_timestamp(batch: bytes, timestamp_type: int, max_timestamp: int) -> bytes:
    """Return the batch with that type and time; unused attribute bits go if anything changes."""
    header = Header(*_HEADER.unpack_from(batch))
    if (header.attributes >> 3 & 1, header.max_timestamp) == (timestamp_type, max_timestamp):
        return batch
    attributes = header.attributes & 0b0111_0111 | timestamp_type << 3
    changed = replace(header, attributes=attributes, max_timestamp=max_timestamp)
    return encode_batch(changed, batch[61:])


# ---- indexes ----


def floor_slot(keys: Sequence[int], target: int) -> int:
    """Return the last slot whose key is not above `target`, -1 if there is none."""
    return max((slot for slot, key in enumerate(keys) if key <= target), default=-1)


def _entries(data: bytes, layout: str) -> Iterator[tuple[int, int]]:
    size = struct.calcsize(layout)
    used = len(data[: len(data) // size * size].rstrip(b"\0"))
    for start in range(0, used, size):
        first, second = struct.unpack_from(layout, data, start)
        yield first, second


def check_offset_index(data: bytes, segment_size: int) -> tuple[int, bool]:
    """Return (sound entries, whether nothing but zeros and whole entries follow)."""
    entries = list(_entries(data, ">ii"))
    before = (-1, 0)
    for slot, entry in enumerate(entries):
        if not (entry[0] > before[0] and before[1] < entry[1] < segment_size):
            return slot, False
        before = entry
    return len(entries), len(data) % 8 == 0


def check_time_index(data: bytes) -> tuple[int, bool]:
    """Return (sound entries, whether nothing but zeros and whole entries follow)."""
    entries = list(_entries(data, ">qi"))
    before = (-1, 0)
    for slot, entry in enumerate(entries):
        if not (entry[0] > before[0] and entry[1] >= before[1]):
            return slot, False
        before = entry
    return len(entries), len(data) % 12 == 0


def select_entries(
    batches: Sequence[tuple[int, Header]], base_offset: int, interval_bytes: int
) -> tuple[bytes, bytes]:
    """Return the two index files that a recovery of these (position, header) writes."""
    offset_index = time_index = b""
    last_position = 0
    latest = last_entry = (-1, base_offset)
    for position, header in batches:
        if header.max_timestamp > latest[0]:
            latest = (header.max_timestamp, header.last_offset)
        if position - last_position > interval_bytes:
            offset_index += struct.pack(">ii", header.last_offset - base_offset, position)
            last_position = position
            if latest[0] > last_entry[0]:
                time_index += struct.pack(">qi", latest[0], latest[1] - base_offset)
                last_entry = latest
    if latest[0] > last_entry[0]:
        time_index += struct.pack(">qi", latest[0], latest[1] - base_offset)
    return offset_index, time_index
