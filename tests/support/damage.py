"""Damage to files and bytes, as functions: flip, truncate, zero a range, mend a CRC, splice.

Those of a path write in place: a test that damages a directory damages its own copy.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from kafkalog._core import crc32c
from kafkalog.files.names import SegmentFiles
from tests.support import reference

__all__ = [
    "batch_positions",
    "fix_crc",
    "flip",
    "flipped",
    "forget_shutdown",
    "log_file",
    "splice",
    "truncate",
    "zero_range",
]

# The CRC of a batch covers what follows it: attributes, all else of the header, the records.
_CRC_POSITION = 17
_CRC_START = 21


def log_file(directory: Path, base_offset: int = 0) -> Path:
    """Return the path of a segment's `.log` file."""
    return SegmentFiles(directory, base_offset).log


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Flip the bits of `mask` in one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ mask]))


def flipped(data: bytes, flips: Iterable[tuple[int, int]]) -> bytes:
    """Return bytes with some bits flipped, each (position, bit); positions wrap around the end."""
    damaged = bytearray(data)
    for position, bit in flips:
        if damaged:
            damaged[position % len(damaged)] ^= 1 << bit
    return bytes(damaged)


def truncate(path: Path, size: int) -> None:
    """Cut a file to `size` bytes, or extend it with zeros."""
    os.truncate(path, size)


def zero_range(path: Path, position: int, size: int) -> None:
    """Overwrite `size` bytes of a file with zeros."""
    splice(path, position, bytes(size), replacing=size)


def splice(path: Path, position: int, data: bytes, *, replacing: int = 0) -> None:
    """Put `data` in at `position` of a file, in place of `replacing` bytes there."""
    content = path.read_bytes()
    path.write_bytes(content[:position] + data + content[position + replacing :])


def fix_crc(batch: bytes) -> bytes:
    """Return a whole batch with the CRC that its bytes call for, however wrong they are."""
    value = crc32c.value(batch[_CRC_START:])
    return batch[:_CRC_POSITION] + struct.pack(">I", value) + batch[_CRC_START:]


def batch_positions(path: Path) -> list[int]:
    """Return where each batch of an undamaged segment begins, and last where the segment ends."""
    data = path.read_bytes()
    return [position for position, _ in reference.scan_batches(data).batches] + [len(data)]


def forget_shutdown(directory: Path) -> None:
    """Take away what a clean shutdown left, so that the next start recovers everything."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)
