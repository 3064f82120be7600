"""Zstandard as Kafka writes and reads it: frames one after the other, skippable ones in between.

    data frame: u32 0xFD2FB528 | descriptor | [window] | [dictionary] | [content size] | blocks
    block: u24 (bit 0 last, bits 1-2 type, the rest size) | data        all little-endian
    skippable: u32 0x184D2A50..5F | u32 size | bytes

Written: one frame without content size and checksum, as the Java library's stream does. Read:
the blocks are walked first, header by header, which gives the exact end of the frame and a bound
of what comes out; only then is memory taken, and the frame is decoded in one call.

Invariants: nothing is read past the end; no more than the bound or the limit is allocated for the
output, whatever a frame declares. Safe in any thread: contexts are kept one for each thread.
Errors are CorruptRecordError.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from kafkalog.errors import BatchTooLargeError, CorruptRecordError

__all__ = ["compress", "decompress"]

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFF_FFF0

_SINGLE_SEGMENT: Final = 0x20
_RESERVED: Final = 0x08
_CHECKSUM: Final = 0x04
_DICTIONARY_SIZES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES: Final = (0, 2, 4, 8)

_RAW, _RUN, _COMPRESSED = 0, 1, 2
_BLOCK_BYTES_MAX: Final = 128 * 1024
# What the library itself accepts; a frame may ask for this much memory while it is decoded.
_WINDOW_BYTES_MAX: Final = 1 << 27

# Contexts cost some 100 KiB each; a thread rarely writes with more than one level.
_COMPRESSORS_MAX: Final = 4


class _Frame(NamedTuple):
    """A data frame: where it ends, how much comes out at most, and how much it declares."""

    end: int
    size_bound: int
    content_size: int | None


class _Contexts(threading.local):
    """The contexts of one thread."""

    def __init__(self) -> None:
        self.compressors: dict[int, Any] = {}
        self.decompressor: Any = None


_contexts = _Contexts()


def compress(data: memoryview, level: int) -> bytes:
    """Return one frame that holds `data`."""
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        import zstandard

        if len(_contexts.compressors) >= _COMPRESSORS_MAX:
            _contexts.compressors.clear()
        compressor = zstandard.ZstdCompressor(level=level, write_content_size=False)
        _contexts.compressors[level] = compressor
    frame: bytes = compressor.compress(data)
    return frame


def decompress(data: memoryview, limit_bytes: int) -> bytes:
    """
    Return what the frames in `data` hold together.

    Raises:
        CorruptRecordError: no frame, a damaged one, or more than the limit comes out.
    """
    if len(data) == 0:
        raise _broken("it is empty")
    chunks: list[bytes] = []
    remaining = limit_bytes
    position = 0
    while position < len(data):
        if bytes(data[position : position + 4]) != _MAGIC:
            position = _skip(data, position)
            continue
        frame = _walk(data, position)
        chunk = _decode(data[position : frame.end], frame, remaining, limit_bytes)
        chunks.append(chunk)
        remaining -= len(chunk)
        position = frame.end
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _skip(data: memoryview, position: int) -> int:
    """Return the end of the skippable frame at `position`."""
    if len(data) - position < 4:
        raise _broken("the stream ends inside a magic number")
    if _uint(data, position, 4) & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
        raise _broken("a frame that does not begin with the magic number")
    if len(data) - position < 8 or _uint(data, position + 4, 4) > len(data) - position - 8:
        raise _broken("the stream ends inside a skippable frame")
    return position + 8 + _uint(data, position + 4, 4)


def _walk(data: memoryview, start: int) -> _Frame:
    """Find the end of the data frame at `start` from the headers of its blocks."""
    position = start + 4
    if position >= len(data):
        raise _broken("the stream ends inside a frame header")
    descriptor = data[position]
    if descriptor & _RESERVED:
        raise _broken("a reserved bit of a frame header is set")
    is_single = bool(descriptor & _SINGLE_SEGMENT)
    content_size_size = _CONTENT_SIZE_SIZES[descriptor >> 6] or int(is_single)
    position += 1
    window_position = position
    position += (0 if is_single else 1) + _DICTIONARY_SIZES[descriptor & 3]
    if len(data) - position < content_size_size:
        raise _broken("the stream ends inside a frame header")
    content_size = None
    if content_size_size:
        content_size = _uint(data, position, content_size_size)
        content_size += 256 if content_size_size == 2 else 0
    position += content_size_size
    window = content_size if is_single else _window_size(data[window_position])
    # A single segment needs no window: it is decoded into the output, which has its own bound.
    if window is None or not (is_single or window <= _WINDOW_BYTES_MAX):
        raise _broken(f"a window of {window} bytes, {_WINDOW_BYTES_MAX} are the most")
    end, size_bound = _walk_blocks(data, position, min(window, _BLOCK_BYTES_MAX))
    if descriptor & _CHECKSUM:
        end += 4
        if end > len(data):
            raise _broken("the stream ends before its checksum")
    return _Frame(end, size_bound, content_size)


def _walk_blocks(data: memoryview, position: int, block_bytes_max: int) -> tuple[int, int]:
    """Return (end of the last block, most bytes that come out of all blocks)."""
    size_bound = 0
    is_last = False
    while not is_last:
        if len(data) - position < 3:
            raise _broken("the stream ends before its last block")
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3
        if kind > _COMPRESSED:
            raise _broken("a block of a reserved type")
        if size > block_bytes_max:
            raise _broken(f"a block of {size} bytes, {block_bytes_max} are the most")
        stored = 1 if kind == _RUN else size
        if stored > len(data) - position:
            raise _broken("the stream ends inside a block")
        position += stored
        size_bound += block_bytes_max if kind == _COMPRESSED else size
    return position, size_bound


def _decode(frame_data: memoryview, frame: _Frame, remaining: int, limit_bytes: int) -> bytes:
    """Decode one frame whose blocks were walked."""
    import zstandard

    declared = frame.content_size
    if declared is not None and declared > remaining:
        raise _too_large(limit_bytes)
    if declared is not None and (declared > frame.size_bound or declared == 0 < frame.size_bound):
        raise _broken(f"its blocks cannot hold the {declared} bytes that it declares")
    if frame.size_bound == 0:
        return b""
    if _contexts.decompressor is None:
        _contexts.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    # One byte more than allowed tells "exactly the limit" from "more than the limit".
    capacity = min(frame.size_bound, remaining + 1)
    try:
        chunk: bytes = _contexts.decompressor.decompress(frame_data, max_output_size=capacity)
    except zstandard.ZstdError as error:
        if frame.size_bound > remaining and _is_cut_short(error):
            raise _too_large(limit_bytes) from error
        raise _broken("a frame does not decompress") from error
    if len(chunk) > remaining:
        raise _too_large(limit_bytes)
    return chunk


def _is_cut_short(error: Exception) -> bool:
    """Whether the library stopped because the output was full, the input being whole."""
    return "did not decompress full frame" in str(error)


def _window_size(descriptor: int) -> int:
    base = 1 << 10 + (descriptor >> 3)
    return base + (base >> 3) * (descriptor & 7)


def _uint(data: memoryview, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")


def _broken(why: str) -> CorruptRecordError:
    return CorruptRecordError(f"zstd data: {why}")


def _too_large(limit_bytes: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"zstd data: it decompresses to more than {limit_bytes} bytes")
