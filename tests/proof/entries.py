"""A slow, plain parser of `.log` files: where each outer entry is, and which offsets it has.

Shares no code with the engine. An entry is a batch of format v2, or a message of format v0 or v1,
plain or a compressed wrapper. Only undamaged files are parsed: those that brokers wrote, and those
that the judge wrote and closed itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["HEADER_FIELDS", "Entry", "entries_of"]

# Field of a batch of format v2 or a message of format v0 and v1 -> (position, size).
HEADER_FIELDS: dict[str, tuple[int, int]] = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch or crc": (12, 4),
    "magic": (16, 1),
    "crc or attributes": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One outer entry.

    Attributes:
        position: its first byte in the file.
        data: its bytes.
        first_offset: lowest offset that can be in it: one above the entry before for a wrapper.
        last_offset: highest offset in it.
        is_control: whether it holds a transaction marker.
    """

    position: int
    data: bytes
    first_offset: int
    last_offset: int
    is_control: bool

    @property
    def offsets(self) -> tuple[int, int]:
        """The lowest offset that can be in it, and one above the highest."""
        return self.first_offset, self.last_offset + 1

    @property
    def end(self) -> int:
        """Position of the byte after it."""
        return self.position + len(self.data)


def entries_of(data: bytes, base_offset: int) -> Iterator[Entry]:
    """Yield the entries of an undamaged segment up to its end, or to a torn or zero tail."""
    position, expected = 0, base_offset
    while position + 17 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        end = position + 12 + size
        if size < 14 or end > len(data):
            return
        magic = data[position + 16]
        first, last, is_control = expected, offset, False
        if magic == 2:
            (delta,) = struct.unpack_from(">i", data, position + 23)
            (attributes,) = struct.unpack_from(">h", data, position + 21)
            first, last, is_control = offset, offset + delta, bool(attributes & 0x20)
        elif not data[position + 17] & 7:
            first = offset
        yield Entry(position, data[position:end], first, last, is_control)
        position, expected = end, last + 1
