"""Byte buffers of every kind that the entry points accept, and an exact one from malloc.

`bytes` objects are followed by a zero byte and pooled blocks by others' data, so a kernel that
reads one byte too far goes unseen there. `exact` copies into a separate block from malloc: under
AddressSanitizer (`ci/asan.py`) the next byte is poisoned.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import cast

import numpy
from typing_extensions import Buffer

__all__ = ["BUFFER_KINDS", "exact"]


def exact(data: bytes) -> Buffer:
    """Return the bytes in a malloc'd block of just their size."""
    return cast(Buffer, numpy.frombuffer(data, numpy.uint8).copy())


def _mapped(data: bytes) -> Buffer:
    mapping = mmap.mmap(-1, max(1, len(data)))
    mapping[: len(data)] = data
    return memoryview(mapping)[: len(data)]


BUFFER_KINDS: dict[str, Callable[[bytes], Buffer]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda data: memoryview(b"\x02" + data)[1:],
    "read-only memoryview": lambda data: memoryview(bytearray(data)).toreadonly(),
    "ndarray": lambda data: cast(Buffer, numpy.frombuffer(data, numpy.uint8)),
    "mmap": _mapped,
}
