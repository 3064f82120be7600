"""Snappy as Kafka writes and reads it: the xerial framing around raw snappy blocks.

    82 53 4e 41 50 50 59 00 | i32 version 1 | i32 least compatible version 1
    block: i32 size | one raw snappy block                            all big-endian, until the end

Written: blocks of 32 KiB of uncompressed data. Read: any size of blocks, streams one after the
other (a block size equal to the first half of the magic begins a new header), and, without the
magic, the whole input as one raw block. One to three bytes after the last block are ignored, as
the Java library does; there is no end mark and no checksum.

Invariants: nothing is read past the end; a block's declared size is checked against the limit and
against what snappy can expand to before memory is taken. Pure functions, safe in any thread.
Reading needs no package; writing needs `cramjam`, and is an UnsupportedCodecError without it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from kafkalog._core.snappy_blocks import decode_stream
from kafkalog.errors import UnsupportedCodecError

__all__ = ["compress", "decompress"]

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSIONS: Final = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_BYTES: Final = 32 * 1024


def compress(data: memoryview) -> bytes:
    """Return a framed stream that holds `data`."""
    compress_raw = _library().snappy.compress_raw
    parts = [_MAGIC, _VERSIONS]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = compress_raw(data[start : start + _BLOCK_BYTES])
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def decompress(data: memoryview, limit_bytes: int) -> bytes:
    """
    Return what `data` holds.

    Raises:
        CorruptRecordError: the input is damaged or holds more than the limit.
    """
    return decode_stream(data, limit_bytes=min(limit_bytes, sys.maxsize))


def _library() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise UnsupportedCodecError(
            "snappy needs the package cramjam: pip install kafkalog[snappy]"
        ) from error
    library: ModuleType = cramjam
    return library
