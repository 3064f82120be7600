"""Framing of gzip in Kafka: members, one after the other, with a CRC-32 of the content.

Written: one member without name and time, by zlib. Read: one member or several; what follows the
last one and is none is ignored, as the Java library does.

Two libraries can read. zlib is there in any case. `isal` (the extra `gzip`) takes less than half
the time, but reads a few streams that zlib, and so every other client, refuses: undefined
header flags, and invalid codes of deflate that are not used. The CRC covers the output, so readers
may use isal; an append that stores batches of other clients uses zlib.

Invariants: nothing is read past the end; no more than the limit comes out, or takes memory. Pure
functions, safe in any thread. Errors are CorruptRecordError.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from kafkalog.errors import BatchTooLargeError, CorruptRecordError

__all__ = ["ISAL", "ZLIB", "GzipLibrary", "compress", "decompress", "find_library", "inflate"]

_WINDOW: Final = 31
_MAGIC: Final = b"\x1f\x8b\x08"
# Input of a second or later member is handed over in pieces: what is left over is copied, and
# thousands of tiny members in one large input would otherwise be copied thousands of times.
_PIECE_BYTES: Final = 8192


class GzipLibrary(NamedTuple):
    """
    A library to inflate with.

    Attributes:
        inflater: makes an object like that of `zlib.decompressobj`.
        error: what it raises for invalid data.
    """

    inflater: Callable[..., Any]
    error: type[Exception]


ISAL: Final = "isal.isal_zlib"
ZLIB: Final = GzipLibrary(zlib.decompressobj, zlib.error)


@cache
def find_library(name: str = ISAL) -> GzipLibrary:
    """Return the library of a module, zlib where it is not installed."""
    try:
        module: Any = import_module(name)
    except ImportError:
        return ZLIB
    return GzipLibrary(module.decompressobj, module.error)


def compress(data: memoryview, level: int) -> bytes:
    """Return one member that holds `data`."""
    return zlib.compress(data, level, wbits=_WINDOW)


def decompress(data: memoryview, limit_bytes: int, *, exact: bool = False) -> bytes:
    """
    Return what the members in `data` hold together.

    Args:
        data: the members, and whatever follows them.
        limit_bytes: most that may come out.
        exact: refuse all that zlib refuses.

    Raises:
        CorruptRecordError: no member, a damaged one, or more than the limit comes out.
    """
    return inflate(ZLIB if exact else find_library(), data, limit_bytes)


def inflate(library: GzipLibrary, data: memoryview, limit_bytes: int) -> bytes:
    """Return what the members in `data` hold together, by one library; see `decompress`."""
    chunk, position = _member(library, data, 0, len(data), limit_bytes, limit_bytes)
    if position == len(data):
        return chunk
    chunks = [chunk]
    remaining = limit_bytes - len(chunk)
    while bytes(data[position : position + 3]) == _MAGIC:
        chunk, position = _member(library, data, position, _PIECE_BYTES, remaining, limit_bytes)
        chunks.append(chunk)
        remaining -= len(chunk)
    return b"".join(chunks)


def _member(
    library: GzipLibrary,
    data: memoryview,
    position: int,
    piece_bytes: int,
    remaining: int,
    limit_bytes: int,
) -> tuple[bytes, int]:
    """Decode the member at `position`; return (what it holds, position after it)."""
    inflater = library.inflater(wbits=_WINDOW)
    chunks: list[bytes] = []
    while not inflater.eof:
        piece = data[position : position + piece_bytes]
        if len(piece) == 0:
            raise CorruptRecordError("gzip data: the stream ends early")
        position += len(piece)
        try:
            # At least 1, for 0 means no limit to zlib; one more than allowed detects too many.
            chunk = inflater.decompress(piece, remaining + 1)
        except library.error as error:
            raise CorruptRecordError(f"gzip data: {error}") from error
        if len(chunk) > remaining:
            raise BatchTooLargeError(f"gzip data: it decompresses to more than {limit_bytes} bytes")
        remaining -= len(chunk)
        chunks.append(chunk)
    content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return content, position - len(inflater.unused_data)
