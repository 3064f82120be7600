"""Records of several batches, decompressed by a library into one reused buffer.

A fresh page of memory costs more than decompressing its content, and a thread that gives up the GIL
at every batch waits longer than a batch takes: so several are decompressed in one call. No batch is
refused here: a batch that its library refuses ends the run before it, and the caller that
decompresses it alone gets the error.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.zstd_frames import decompress_into, only_frame

__all__ = ["DecompressedBatches"]

# Enough bytes for one run. They and the decoded columns fit a common second-level cache.
_ENOUGH_BYTES: Final = 256 * 1024
# First size of the buffer, and the largest size that is kept.
_FIRST_BYTES: Final = 512 * 1024
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024


class DecompressedBatches:
    """
    Memory for the records of batches.

    Attributes:
        compressed_bytes: how many compressed bytes are worth asking for.
        memory: the records of the last run, back to back.
        ends: where those of each batch end in it.
    """

    compressed_bytes: Final = _ENOUGH_BYTES

    def __init__(self) -> None:
        self.memory: bytearray | bytes = b""
        self.ends: list[int] = []
        self._kept = bytearray()

    def fill(
        self, data: memoryview, parts: Sequence[tuple[int, int, int]], limit_bytes: int
    ) -> int:
        """
        Decompress the first of some batches; return how many.

        Args:
            data: the buffer of the batches.
            parts: codec, start and end of each.
            limit_bytes: largest size of the records of one.
        """
        self.ends = ends = []
        self.memory = self._kept
        size = 0
        for codec, start, end in parts:
            try:
                size = self._add(codec, data[start:end], size, limit_bytes)
            except KafkaLogError:
                break
            if size < 0:
                break
            ends.append(size)
            if size >= _ENOUGH_BYTES:
                break
        return len(ends)

    def _add(self, codec: int, data: memoryview, size: int, limit_bytes: int) -> int:
        """Decompress one batch after the others; return its end, -1 if it does not fit."""
        if codec == Codec.ZSTD:
            frame = only_frame(data, limit_bytes)
            if frame is not None and frame.size_bound < _KEPT_BYTES_MAX:
                if not self._has_space(size, frame.size_bound + 1):
                    return -1
                with memoryview(self._kept) as view, view[size:] as target:
                    return size + decompress_into(data, target)
        content = decompress(codec, data, limit_bytes=limit_bytes)
        if len(content) > _KEPT_BYTES_MAX:
            if size:
                return -1
            self.memory = content
        elif self._has_space(size, len(content)):
            self._kept[size : size + len(content)] = content
        else:
            return -1
        return size + len(content)

    def _has_space(self, size: int, more: int) -> bool:
        """Return whether `more` bytes fit after the first `size`; an empty buffer is enlarged."""
        if len(self._kept) - size >= more:
            return True
        if size:
            return False
        self.memory = self._kept = bytearray(max(more, _FIRST_BYTES))
        return True
