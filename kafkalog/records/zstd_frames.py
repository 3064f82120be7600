"""Zstandard as Kafka writes and reads it: frames one after the other, skippable ones in between.

    data frame: u32 0xFD2FB528 | descriptor | [window] | [dictionary] | [content size] | blocks
    block: u24 (bit 0 last, bits 1-2 type, the rest size) | data        all little-endian
    skippable: u32 0x184D2A50..5F | u32 size | bytes

Written: one frame without content size and checksum, as the Java library's stream does. Read:
the blocks are walked first, header by header, which gives the exact end of the frame and a bound
of what comes out; only then is memory taken, and the frame is decoded in one call. A reader of
many batches passes reused memory (`decompress_into`): a fresh page costs more than decompressing
its content.

Invariants: nothing is read past the end; no more than the bound or the limit is allocated for the
output, whatever a frame declares. Safe in any thread: contexts are kept one for each thread.

End to end, a scan of a zstd topic takes 1.7 to 2.3 times as long if the package gets the limit
instead of the bound (`python -m asv_bench.peers.own_codecs`): it allocates as much as it gets.
Errors are CorruptRecordError.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Final, NamedTuple

from kafkalog._core.zstd_frames import WINDOW_SIZE_MAX, walk_frame
from kafkalog.errors import BatchTooLargeError, CorruptRecordError

__all__ = ["Frame", "compress", "decompress", "decompress_into", "only_frame"]

_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFF_FFF0

# The stream of the library allocates separate memory for the window, and keeps it.
_STREAM_WINDOW_BYTES_MAX: Final = 8 << 20

# Contexts cost some 100 KiB each; a thread rarely writes with more than one level.
_COMPRESSORS_MAX: Final = 4


class Frame(NamedTuple):
    """A data frame: where it ends, how much comes out at most, how much it declares, its window."""

    end: int
    size_bound: int
    content_size: int | None
    window_bytes: int


class _Contexts(threading.local):
    """The contexts of one thread."""

    def __init__(self) -> None:
        self._compressors: dict[int, Any] = {}
        self._decompressor: Any = None

    def compressor(self, level: int) -> Any:
        """Return the context that compresses with a level."""
        compressor = self._compressors.get(level)
        if compressor is None:
            if len(self._compressors) >= _COMPRESSORS_MAX:
                self._compressors.clear()
            compressor = _package().ZstdCompressor(level=level, write_content_size=False)
            self._compressors[level] = compressor
        return compressor

    def decompressor(self) -> Any:
        """Return the context that decompresses."""
        if self._decompressor is None:
            self._decompressor = _package().ZstdDecompressor(max_window_size=WINDOW_SIZE_MAX)
        return self._decompressor


_contexts = _Contexts()


@cache
def _package() -> Any:
    """Return the package, which is imported when it is first needed."""
    import zstandard

    return zstandard


def compress(data: memoryview, level: int) -> bytes:
    """Return one frame that holds `data`."""
    frame: bytes = _contexts.compressor(level).compress(data)
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
        walked = walk_frame(data, position)
        if walked is None:
            position = _skip(data, position)
            continue
        frame = Frame._make(walked)
        chunk = _decode(data[position : frame.end], frame, remaining, limit_bytes)
        chunks.append(chunk)
        remaining -= len(chunk)
        position = frame.end
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def only_frame(data: memoryview, limit_bytes: int) -> Frame | None:
    """
    Return the one frame that `data` is, if `decompress_into` may be tried; else None.

    Raises:
        CorruptRecordError: it is a damaged frame.
    """
    walked = walk_frame(data, 0)
    if walked is None:
        return None
    frame = Frame._make(walked)
    if frame.end < len(data) or frame.window_bytes > _STREAM_WINDOW_BYTES_MAX:
        return None
    declared = frame.content_size
    if declared is not None and not 0 < declared <= frame.size_bound:
        return None
    return frame if 0 < frame.size_bound <= limit_bytes else None


def decompress_into(data: memoryview, target: memoryview) -> int:
    """
    Decompress one whole frame to the beginning of `target`; return how many bytes that is.

    Args:
        data: a frame for which `only_frame` returned one.
        target: larger than its `size_bound`.

    Raises:
        CorruptRecordError: the frame is damaged.
    """
    try:
        size: int = _contexts.decompressor().stream_reader(data).readinto(target)
    except _package().ZstdError as error:
        raise _broken("a frame does not decompress") from error
    return size


def _skip(data: memoryview, position: int) -> int:
    """Return the end of the skippable frame at `position`."""
    if len(data) - position < 4:
        raise _broken("the stream ends inside a magic number")
    if _uint(data, position, 4) & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
        raise _broken("a frame that does not begin with the magic number")
    if len(data) - position < 8 or _uint(data, position + 4, 4) > len(data) - position - 8:
        raise _broken("the stream ends inside a skippable frame")
    return position + 8 + _uint(data, position + 4, 4)


def _decode(frame_data: memoryview, frame: Frame, remaining: int, limit_bytes: int) -> bytes:
    """Decode one frame whose blocks were walked."""
    declared = frame.content_size
    if declared is not None and declared > remaining:
        raise _too_large(limit_bytes)
    if declared is not None and (declared > frame.size_bound or declared == 0 < frame.size_bound):
        raise _broken(f"its blocks cannot hold the {declared} bytes that it declares")
    if frame.size_bound == 0:
        return b""
    # One byte more than allowed distinguishes "exactly the limit" from "more than the limit".
    capacity = min(frame.size_bound, remaining + 1)
    try:
        chunk: bytes = _contexts.decompressor().decompress(frame_data, max_output_size=capacity)
    except _package().ZstdError as error:
        if frame.size_bound > remaining and _is_cut_short(error):
            raise _too_large(limit_bytes) from error
        raise _broken("a frame does not decompress") from error
    if len(chunk) > remaining:
        raise _too_large(limit_bytes)
    return chunk


def _is_cut_short(error: Exception) -> bool:
    """Return whether the library stopped because the output was full, with a whole input."""
    return "did not decompress full frame" in str(error)


def _uint(data: memoryview, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")


def _broken(why: str) -> CorruptRecordError:
    return CorruptRecordError(f"zstd data: {why}")


def _too_large(limit_bytes: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"zstd data: it decompresses to more than {limit_bytes} bytes")
