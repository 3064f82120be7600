"""Snappy as Kafka writes and reads it: the xerial framing around raw snappy blocks.

    82 53 4e 41 50 50 59 00 | i32 version 1 | i32 least compatible version 1
    block: i32 size | one raw snappy block                            all big-endian, until the end

Written: blocks of 32 KiB of uncompressed data. Read: any size of blocks, streams one after the
other (a block size equal to the first half of the magic begins a new header), and, without the
magic, the whole input as one raw block. One to three bytes after the last block are ignored, as
the Java library does; there is no end mark and no checksum.

Invariants: nothing is read past the end; a block's declared size is checked against the limit and
against what snappy can expand to before memory is taken. Pure functions, safe in any thread.
Errors are CorruptRecordError, or UnsupportedCodecError where the package `cramjam` is missing.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from kafkalog.errors import CorruptRecordError, UnsupportedCodecError

__all__ = ["compress", "decompress"]

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSIONS: Final = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_HEADER_BYTES: Final = len(_MAGIC) + len(_VERSIONS)
_BLOCK_BYTES: Final = 32 * 1024
# The Java library refuses larger blocks too.
_BLOCK_SIZE_MAX: Final = 512 << 20
# A copy takes at least three bytes for at most 64, so nothing expands more than this.
_EXPANSION_MAX: Final = 22


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
        UnsupportedCodecError: `cramjam` is not installed.
    """
    library = _library()
    if len(data) < _HEADER_BYTES or bytes(data[: len(_MAGIC)]) != _MAGIC:
        return _decompress_block(library, data, limit_bytes, limit_bytes)
    chunks: list[bytes] = []
    remaining = limit_bytes
    position = _HEADER_BYTES
    while len(data) - position >= 4:
        size_field = bytes(data[position : position + 4])
        if size_field == _MAGIC[:4]:
            _check_inner_header(data[position : position + _HEADER_BYTES])
            position += _HEADER_BYTES
            continue
        size = int.from_bytes(size_field, "big", signed=True)
        position += 4
        if not 0 < size <= _BLOCK_SIZE_MAX:
            raise _broken(f"a block size of {size}")
        if size > len(data) - position:
            raise _broken("the stream ends inside a block")
        block = data[position : position + size]
        chunk = _decompress_block(library, block, remaining, limit_bytes)
        chunks.append(chunk)
        remaining -= len(chunk)
        position += size
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_inner_header(header: memoryview) -> None:
    """Check the header of a second or later stream; that of the first is not looked at closely."""
    if len(header) < _HEADER_BYTES or bytes(header[: len(_MAGIC)]) != _MAGIC:
        raise _broken("the stream ends inside a header")
    version = int.from_bytes(header[8:12], "big", signed=True)
    if version < 1:
        raise _broken(f"version {version}, at least 1 is known")


def _decompress_block(
    library: ModuleType, block: memoryview, remaining: int, limit_bytes: int
) -> bytes:
    declared = _declared_size(block)
    if declared > _EXPANSION_MAX * len(block):
        raise _broken(f"{len(block)} bytes cannot hold the {declared} that they declare")
    if declared > remaining:
        raise CorruptRecordError(f"snappy data: it decompresses to more than {limit_bytes} bytes")
    try:
        return bytes(library.snappy.decompress_raw(block))
    except library.DecompressionError as error:
        raise _broken("a block does not decompress") from error


def _declared_size(block: memoryview) -> int:
    """Return the uncompressed size that a raw block begins with, an unsigned varint."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise _broken("a block without a size")


def _library() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise UnsupportedCodecError(
            "snappy needs the package cramjam: pip install kafkalog[snappy]"
        ) from error
    library: ModuleType = cramjam
    return library


def _broken(why: str) -> CorruptRecordError:
    return CorruptRecordError(f"snappy data: {why}")
