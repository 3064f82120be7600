"""Fields of Kafka's messages, in records of internal topics and of control batches.

Numbers are big-endian. In the flexible versions of a message, strings and arrays are led by an
unsigned varint of size + 1, and tagged fields, which are skipped here, end each structure; in those
before, by a number of 16 or 32 bits.

Invariants: nothing is read past the end, nothing larger than the value is allocated; what cannot
be decoded raises CorruptRecordError. Thread-safety: a reader belongs to one thread.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

from kafkalog.errors import CorruptRecordError

__all__ = ["FieldReader", "plain_string"]

T = TypeVar("T")


class FieldReader:
    """Big-endian fields of a message, one after the other; never past the end."""

    def __init__(self, data: bytes | None, what: str) -> None:
        self._data = b"" if data is None else data
        self._what = what
        self._position = 0

    def read(self, size: int) -> bytes:
        start, remaining = self._position, len(self._data) - self._position
        if size > remaining:
            raise CorruptRecordError(
                f"{self._what} must have {size} more bytes, got {remaining}", position=start
            )
        self._position += size
        return self._data[start : start + size]

    @property
    def remaining(self) -> int:
        """Number of bytes left."""
        return len(self._data) - self._position

    def int8(self) -> int:
        return int.from_bytes(self.read(1), signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.read(2), signed=True)

    def uint16(self) -> int:
        return int.from_bytes(self.read(2))

    def int32(self) -> int:
        return int.from_bytes(self.read(4), signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.read(8), signed=True)

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptRecordError(f"{self._what} has a varint of more than 5 bytes")

    def length(self) -> int:
        encoded = self.unsigned_varint()
        if encoded == 0:
            raise CorruptRecordError(f"{self._what} has null where null is not allowed")
        return encoded - 1

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.read(16)).decode().rstrip("=")

    def string(self) -> str:
        return self.read(self.length()).decode("utf-8", "surrogateescape")

    def plain_string(self) -> str:
        """Take a string of the messages before the flexible ones: an int16 of its size leads."""
        size = self.int16()
        if size < 0:
            raise CorruptRecordError(f"{self._what} has null where null is not allowed")
        return self.read(size).decode("utf-8", "surrogateescape")

    def plain_array(self, read: Callable[[], T]) -> list[T]:
        """Take an array of the messages before the flexible ones; null is an empty one."""
        return [read() for _ in range(max(self.int32(), 0))]

    def array(self, read: Callable[[], T]) -> list[T]:
        # An element takes at least one byte, so a lying count fails before the list has grown.
        return [read() for _ in range(self.length())]

    def nullable_array(self, read: Callable[[], T]) -> list[T]:
        """Take an array that may be null, which is an empty one."""
        return [read() for _ in range(max(self.unsigned_varint() - 1, 0))]

    def skip_tags(self) -> None:
        self.tags()

    def tags(self) -> dict[int, bytes]:
        """Take the tagged fields that end a structure: tag -> bytes."""
        found = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            found[tag] = self.read(self.unsigned_varint())
        return found


def plain_string(text: str) -> bytes:
    """
    Return a string as the messages before the flexible ones hold it.

    Raises:
        ValueError: it does not fit the 15 bits of its size.
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > 0x7FFF:
        raise ValueError(f"a string must have at most {0x7FFF} bytes, got {len(data)}")
    return len(data).to_bytes(2) + data
