"""The records of some batches, decompressed by a library side by side into memory that is kept.

A fresh page of memory costs more than to decompress what it holds, and who takes turns with another
thread at every batch waits longer than a batch takes: so some go together. Nothing is refused here:
a batch that its library does not take ends the run before it, and who takes it alone says why.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.zstd_frames import decompress_into, only_frame

__all__ = ["DecompressedBatches"]

# So many bytes are enough for one run, if there are as many. They, and what they become, fit a
# common second-level cache.
_ENOUGH_BYTES: Final = 256 * 1024
# What the memory has to begin with, and the most that it keeps.
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
            data: where they lie.
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
        """Decompress one batch behind the others; return where it ends, -1 for no room."""
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
        """Say whether so many bytes go behind those that are there; the first always do."""
        if len(self._kept) - size >= more:
            return True
        if size:
            return False
        self.memory = self._kept = bytearray(max(more, _FIRST_BYTES))
        return True
