"""Inputs of targets: choices from the first bytes, then a run of batches."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

from kafkalog._core import crc32c
from tests.support.reference import whole_batch

__all__ = ["Choices", "mended"]

_T = TypeVar("_T")


class Choices:
    """
    Small decisions and numbers, read from the front of some bytes; zeros after their end.

    Attributes:
        rest: the bytes that are not read yet.
    """

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def byte(self) -> int:
        """Read a number from 0 to 255."""
        value, self.rest = (self.rest[0] if self.rest else 0), self.rest[1:]
        return value

    def flags(self, count: int) -> tuple[bool, ...]:
        """Read one byte and return its lowest bits."""
        value = self.byte()
        return tuple(bool(value >> bit & 1) for bit in range(count))

    def number(self, size: int) -> int:
        """Read a big-endian signed number of `size` bytes."""
        value, self.rest = self.rest[:size], self.rest[size:]
        return int.from_bytes(value.ljust(size, b"\0"), "big", signed=True)

    def take(self, size: int) -> bytes:
        """Read `size` bytes, padded with zeros."""
        value, self.rest = self.rest[:size], self.rest[size:]
        return value.ljust(size, b"\0")

    def one_of(self, values: Sequence[_T]) -> _T:
        """Return one of some values."""
        return values[self.byte() % len(values)]


def mended(data: bytes) -> bytes:
    """
    Return batches and messages with valid CRCs, up to the first bad header.

    A mutation rarely has a valid CRC, so code after the check of the CRC would not be reached.
    """
    run = bytearray(data)
    position = 0
    while position < len(run):
        verdict, header = whole_batch(bytes(run[position:]))
        if verdict != "OK" or header is None:
            break
        end = position + header.size_bytes
        at = position + (17 if header.magic == 2 else 12)
        covered = bytes(run[at + 4 : end])
        value = crc32c.value(covered) if header.magic == 2 else zlib.crc32(covered)
        run[at : at + 4] = value.to_bytes(4, "big")
        position = end
    return bytes(run)
