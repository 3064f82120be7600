"""The slow, obvious codecs: gzip, snappy and lz4 in Kafka's framings, for old and new formats.

Written from the description of each format, a byte at a time; only deflate and zstd are left to
libraries. Compressors are as plain as their formats allow: they find no repetition but a run of
one byte, so that a decoder meets copies as well as literals. What is refused raises `Damaged`.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import zstandard

__all__ = ["GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD", "Damaged", "compress", "decompress", "xxh32"]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
LZ4_MAGIC = b"\x04\x22\x4d\x18"


class Damaged(Exception):  # noqa: N818 - not an error: a verdict
    """The stream is not valid for its codec."""


def compress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """Return a stream of `codec`; `magic` is that of the batch, for the lz4 header of v0."""
    if codec == LZ4:
        return _lz4(data, magic)
    compressors: dict[int, Callable[[bytes], bytes]] = {
        NONE: bytes,
        GZIP: _gzip,
        SNAPPY: _snappy,
        ZSTD: _zstd,
    }
    return compressors[codec](data)


def decompress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """Return what a stream holds, or raise Damaged."""
    if codec == LZ4:
        return _unlz4(data, magic)
    decompressors: dict[int, Callable[[bytes], bytes]] = {
        NONE: bytes,
        GZIP: _gunzip,
        SNAPPY: _unsnappy,
        ZSTD: _unzstd,
    }
    return decompressors[codec](data)


# ---- gzip ----


def _gzip(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=31)
    return deflate.compress(data) + deflate.flush()


def _gunzip(data: bytes) -> bytes:
    plain = b""
    while True:
        inflate = zlib.decompressobj(wbits=31)
        try:
            plain += inflate.decompress(data)
        except zlib.error as error:
            raise Damaged from error
        if not inflate.eof:
            raise Damaged
        data = inflate.unused_data
        if data[:3] != b"\x1f\x8b\x08":
            return plain


# ---- zstd ----


def _zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def _unzstd(data: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
    try:
        return reader.read()
    except zstandard.ZstdError as error:
        raise Damaged from error


# ---- runs: what the two compressors below cut their input into ----


def _literals_and_runs(data: bytes) -> list[tuple[bytes, int]]:
    """Cut data into (literal, how often its last byte is repeated after it), 20 times or more."""
    parts = []
    start = position = 0
    while position < len(data):
        end = position + 1
        while end < len(data) and data[end] == data[position]:
            end += 1
        if end - position > 20:
            parts.append((data[start : position + 1], end - position - 1))
            start = end
        position = end
    return [*parts, (data[start:], 0)]


# ---- snappy ----


def _snappy(data: bytes) -> bytes:
    blocks = []
    for start in range(0, len(data), 32 * 1024):
        plain = data[start : start + 32 * 1024]
        block = _uvarint(len(plain))
        for literal, repeats in _literals_and_runs(plain):
            if literal:
                block += _snappy_literal(literal)
            while repeats:
                size = min(repeats, 64)
                block += bytes([(size - 1) << 2 | 2]) + struct.pack("<H", 1)
                repeats -= size
        blocks.append(struct.pack(">i", len(block)) + block)
    return XERIAL_HEADER + b"".join(blocks)


def _snappy_literal(literal: bytes) -> bytes:
    """Return a literal of 1 to 65536 bytes after its length, less one, in one to three bytes."""
    size = len(literal) - 1
    if size < 60:
        return bytes([size << 2]) + literal
    if size < 256:
        return bytes([60 << 2, size]) + literal
    return bytes([61 << 2]) + struct.pack("<H", size) + literal


def _uvarint(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _unsnappy(data: bytes) -> bytes:
    if len(data) < 16 or data[:8] != XERIAL_MAGIC:
        return _unsnappy_block(data)
    plain = b""
    position = 16
    while len(data) - position >= 4:
        if data[position : position + 4] == XERIAL_MAGIC[:4]:
            version = data[position + 8 : position + 12]
            if data[position : position + 8] != XERIAL_MAGIC or len(data) - position < 16:
                raise Damaged
            if int.from_bytes(version, "big", signed=True) < 1:
                raise Damaged
            position += 16
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(data) - position:
            raise Damaged
        plain += _unsnappy_block(data[position : position + size])
        position += size
    return plain


def _unsnappy_block(block: bytes) -> bytes:
    size = shift = position = 0
    while True:
        if position == len(block) or position == 5:
            raise Damaged
        byte = block[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    plain = bytearray()
    while position < len(block):
        tag = block[position]
        position += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(_take(block, position, width), "little")
                position += width
            plain += _take(block, position, length + 1)
            position += length + 1
            continue
        if tag & 3 == 1:
            length = (tag >> 2 & 7) + 4
            distance = (tag >> 5) << 8 | _take(block, position, 1)[0]
            position += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length = (tag >> 2) + 1
            distance = int.from_bytes(_take(block, position, width), "little")
            position += width
        _copy(plain, distance, length)
    if len(plain) != size:
        raise Damaged
    return bytes(plain)


def _take(data: bytes, position: int, size: int) -> bytes:
    taken = data[position : position + size]
    if len(taken) < size:
        raise Damaged
    return taken


def _copy(plain: bytearray, distance: int, length: int) -> None:
    if not 0 < distance <= len(plain):
        raise Damaged
    for _ in range(length):
        plain.append(plain[-distance])


# ---- lz4 ----


def xxh32(data: bytes) -> int:
    """xxHash, 32 bits, seed 0."""
    primes = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    lanes = [primes[0] + primes[1], primes[1], 0, -primes[0]]
    position = 0

    def rotate(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    while len(data) - position >= 16:
        for lane, word in enumerate(struct.unpack_from("<4I", data, position)):
            lanes[lane] = rotate(lanes[lane] + word * primes[1], 13) * primes[0]
        position += 16
    if position:
        state = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        state = primes[4]
    state += len(data)
    while len(data) - position >= 4:
        word = int.from_bytes(data[position : position + 4], "little")
        state = rotate(state + word * primes[2], 17) * primes[3]
        position += 4
    for byte in data[position:]:
        state = rotate(state + byte * primes[4], 11) * primes[0]
    for bits, prime in ((15, primes[1]), (13, primes[2])):
        state &= 0xFFFFFFFF
        state = (state ^ state >> bits) * prime
    state &= 0xFFFFFFFF
    return state ^ state >> 16


def _lz4(data: bytes, magic: int) -> bytes:
    descriptor = b"\x60\x40"
    # The writers of v0 took the frame's magic number into the sum, by mistake.
    summed = LZ4_MAGIC + descriptor if magic == 0 else descriptor
    frame = LZ4_MAGIC + descriptor + bytes([xxh32(summed) >> 8 & 0xFF])
    for start in range(0, len(data), 1 << 16):
        plain = data[start : start + (1 << 16)]
        block = _lz4_block(plain)
        if len(block) < len(plain):
            frame += struct.pack("<I", len(block)) + block
        else:
            frame += struct.pack("<I", len(plain) | 1 << 31) + plain
    return frame + bytes(4)


def _lz4_block(plain: bytes) -> bytes:
    """Return one block; its last five bytes are literals, and no copy begins in the last twelve."""
    block = b""
    parts = _literals_and_runs(plain[:-12])
    parts[-1] = (parts[-1][0] + plain[-12:], 0)
    for literal, repeats in parts:
        copied = max(repeats - 4, 0)
        block += bytes([min(len(literal), 15) << 4 | min(copied, 15)])
        block += _lz4_length(len(literal)) + literal
        if repeats:
            block += struct.pack("<H", 1) + _lz4_length(copied)
    return block


def _lz4_length(length: int) -> bytes:
    if length < 15:
        return b""
    return b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def _unlz4(data: bytes, magic: int) -> bytes:
    flags, block_size_max, position = _lz4_header(data, magic)
    plain = b""
    while True:
        word = int.from_bytes(_take(data, position, 4), "little")
        position += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > block_size_max:
            raise Damaged
        block = _take(data, position, size)
        position += size
        if flags & 0x10:
            if int.from_bytes(_take(data, position, 4), "little") != xxh32(block):
                raise Damaged
            position += 4
        chunk = block if word >> 31 else _unlz4_block(block)
        if len(chunk) > block_size_max:
            raise Damaged
        plain += chunk
    if flags & 0x04:
        _take(data, position, 4)
    return plain


def _lz4_header(data: bytes, magic: int) -> tuple[int, int, int]:
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        raise Damaged
    flags, block_descriptor = data[4], data[5]
    if flags & 0xC0 != 0x40 or not flags & 0x20 or flags & 0x03:
        raise Damaged
    if block_descriptor & 0x8F or not 4 <= block_descriptor >> 4 <= 7:
        raise Damaged
    end = 14 if flags & 0x08 else 6
    checksum = _take(data, end, 1)[0]
    if magic > 0 and checksum != xxh32(data[4:end]) >> 8 & 0xFF:
        raise Damaged
    return flags, 1 << 8 + 2 * (block_descriptor >> 4), end + 1


def _unlz4_block(block: bytes) -> bytes:
    plain = bytearray()
    position = 0
    while True:
        token = _take(block, position, 1)[0]
        literal_size, position = _lz4_size(block, token >> 4, position + 1)
        plain += _take(block, position, literal_size)
        position += literal_size
        if position == len(block):
            return bytes(plain)
        distance = int.from_bytes(_take(block, position, 2), "little")
        size, position = _lz4_size(block, token & 15, position + 2)
        _copy(plain, distance, size + 4)


def _lz4_size(block: bytes, size: int, position: int) -> tuple[int, int]:
    if size == 15:
        while True:
            byte = _take(block, position, 1)[0]
            size += byte
            position += 1
            if byte < 255:
                break
    return size, position
