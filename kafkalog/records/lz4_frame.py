"""The LZ4 frame as Kafka writes and reads it: a subset of the frame format, version 1.5.1.

    u32 magic 0x184D2204 | FLG | BD | [u64 content size] | HC | blocks | u32 0 | [u32 checksum]
    block: u32 size (bit 31: stored as it is) | data | [u32 checksum]          all little-endian

Written: FLG 0x60, BD 0x40 (independent blocks of up to 64 KiB, no checksums, no content size).
Read: version 1, independent blocks, any block size; the header's checksum and those of blocks are
verified, that of the content is stepped over, as a broker does. One frame only: what comes after
its end is ignored. A frame without an end mark is refused.

In messages of magic 0 the header's checksum (HC) is wrong by an old mistake of all writers: it
covers the frame's magic number too. It is written so, and not verified on reading, as Kafka does;
clients that wrote the right one are read as well.

Invariants: nothing is read past the end; the output never exceeds the limit by more than a block.
Pure functions, safe in any thread. Errors are CorruptRecordError.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from types import ModuleType
from typing import Final

from kafkalog._core.lz4_blocks import decode_blocks
from kafkalog.errors import BatchTooLargeError, CorruptRecordError

__all__ = ["FAST_LEVEL", "compress", "decompress"]

# Kafka's default level selects the fast compressor, every other level the thorough one.
FAST_LEVEL: Final = 9
# Kafka allows levels up to 17; the library's thorough compressor ends at 12 and takes no more.
_LIBRARY_LEVEL_MAX: Final = 12

_MAGIC: Final = b"\x04\x22\x4d\x18"
# Magic, FLG, BD, HC of nearly every frame there is: no need to look closer.
_USUAL_HEADER: Final = _MAGIC + b"\x60\x40\x82"
_FAULTY_HEADER: Final = _MAGIC + b"\x60\x40\x1a"

_VERSION_MASK: Final = 0xC0
_VERSION_1: Final = 0x40
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_FLG_RESERVED: Final = 0x03
_BD_RESERVED: Final = 0x8F
_BLOCK_SIZE_MAX: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}

_STORED: Final = 0x8000_0000
_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")


def compress(data: memoryview, level: int, *, faulty_header: bool = False) -> bytes:
    """Return one frame that holds `data`; in messages of magic 0 its header is faulty."""
    library_level = 0 if level == FAST_LEVEL else min(max(level, 3), _LIBRARY_LEVEL_MAX)
    library = _library()
    frame: bytes = library.compress(
        data,
        compression_level=library_level,
        block_size=library.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return _FAULTY_HEADER + frame[len(_FAULTY_HEADER) :] if faulty_header else frame


def decompress(data: memoryview, limit_bytes: int, *, check_header: bool = True) -> bytes:
    """
    Return what the frame at the start of `data` holds.

    Args:
        data: the frame, and whatever follows it.
        limit_bytes: most that may come out.
        check_header: whether a wrong header checksum is an error; not so in messages of magic 0.

    Raises:
        CorruptRecordError: no frame, a damaged frame, or more output than the limit.
    """
    flags, block_size_max, position = _read_header(data, limit_bytes, check_header=check_header)
    if flags & _BLOCK_CHECKSUM:
        data, position = _without_checksums(data, position, block_size_max), 0
    content, end = decode_blocks(
        data, position, block_size_max=block_size_max, limit_bytes=min(limit_bytes, sys.maxsize)
    )
    if flags & _CONTENT_CHECKSUM and len(data) - end < 4:
        raise _broken("the stream ends before its checksum")
    return content


def _without_checksums(data: memoryview, position: int, block_size_max: int) -> memoryview:
    """Verify the checksums after the blocks; return the blocks and the rest, without them."""
    parts = []
    while len(data) - position >= 4:
        size = _UINT32.unpack_from(data, position)[0] & ~_STORED
        # A block that is cut or too large is refused by the decoder.
        end = position + 4 + size
        if size == 0 or size > block_size_max or len(data) - end < 4:
            break
        _check_block(data[position : end + 4])
        parts.append(data[position:end])
        position = end + 4
    return memoryview(b"".join((*parts, data[position:])))


def _read_header(data: memoryview, limit_bytes: int, *, check_header: bool) -> tuple[int, int, int]:
    """Return (FLG, largest block, position of the first block)."""
    if bytes(data[:7]) == _USUAL_HEADER:
        return 0x60, _BLOCK_SIZE_MAX[4], 7
    if len(data) < 7 or bytes(data[:4]) != _MAGIC:
        raise _broken("it does not begin with the magic number and a header")
    flags, block_descriptor = data[4], data[5]
    if flags & _VERSION_MASK != _VERSION_1:
        raise _broken(f"version {flags >> 6}, only 1 is known")
    if not flags & _INDEPENDENT:
        raise _broken("its blocks depend on each other")
    if flags & _FLG_RESERVED or block_descriptor & _BD_RESERVED:
        raise _broken("reserved bits are set")
    block_size_max = _BLOCK_SIZE_MAX.get(block_descriptor >> 4)
    if block_size_max is None:
        raise _broken(f"block size code {block_descriptor >> 4}")
    end = 14 if flags & _CONTENT_SIZE else 6
    if len(data) < end + 1:
        raise _broken("the stream ends inside its header")
    if check_header and data[end] != _header_checksum(bytes(data[4:end])):
        raise _broken("the checksum of its header does not match")
    if flags & _CONTENT_SIZE and _UINT64.unpack_from(data, 6)[0] > limit_bytes:
        raise _too_large(limit_bytes)
    return flags, block_size_max, end + 1


def _check_block(block: memoryview) -> None:
    """
    Verify the checksum after a block; `block` is its size word, data and checksum.

    The library has the hash (xxh32) only inside its frame decoder, so the block is put into a
    separate frame. Frames with block checksums are rare, and the price is a second decoding.
    """
    descriptor = bytes((_VERSION_1 | _INDEPENDENT | _BLOCK_CHECKSUM, 0x70))
    head = _MAGIC + descriptor + bytes((_header_checksum(descriptor),))
    try:
        _library().decompress(b"".join((head, block, bytes(4))))
    except RuntimeError as error:
        raise _broken(
            "the checksum of a block does not match, or it does not decompress"
        ) from error


@cache
def _library() -> ModuleType:
    # An `import` statement for each batch would cost as much as a small block.
    import lz4.frame

    library: ModuleType = lz4.frame
    return library


def _header_checksum(descriptor: bytes) -> int:
    """Return the second byte of xxh32 with seed 0, for inputs of less than 16 bytes."""
    mask = 0xFFFF_FFFF
    state = 374761393 + len(descriptor)
    whole = len(descriptor) & ~3
    for start in range(0, whole, 4):
        state = state + _UINT32.unpack_from(descriptor, start)[0] * 3266489917 & mask
        state = (state << 17 | state >> 15) * 668265263 & mask
    for byte in descriptor[whole:]:
        state = state + byte * 374761393 & mask
        state = (state << 11 | state >> 21) * 2654435761 & mask
    state = (state ^ state >> 15) * 2246822519 & mask
    state = (state ^ state >> 13) * 3266489917 & mask
    return (state ^ state >> 16) >> 8 & 0xFF


def _broken(why: str) -> CorruptRecordError:
    return CorruptRecordError(f"lz4 data: {why}")


def _too_large(limit_bytes: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"lz4 data: it decompresses to more than {limit_bytes} bytes")
