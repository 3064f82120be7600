"""Source of bytes that returns the minimum and overwrites the bytes that it returned before."""

from __future__ import annotations

from typing import Final

__all__ = ["SimulatedSource"]


class SimulatedSource:
    """
    Bytes that are read in windows, each of exactly the size that was asked for.

    A window is overwritten when the next one is read, as by a source that has one buffer.

    Attributes:
        windows: position and size of each window that was read.
    """

    whole_is_free: Final = False

    def __init__(self, data: bytes, *, cut_to: int | None = None) -> None:
        self.windows: list[tuple[int, int]] = []
        self.size_bytes = len(data)
        self._data = data if cut_to is None else data[:cut_to]
        self._buffer = bytearray()

    def window(self, position: int, size: int) -> memoryview:
        """Return `size` bytes from `position` on, fewer only where the bytes end."""
        self._buffer[:] = b"\xff" * len(self._buffer)
        self._buffer = bytearray(self._data[position : position + size])
        self.windows.append((position, size))
        if len(self._buffer) < size:
            self.size_bytes = position + len(self._buffer)
        return memoryview(self._buffer).toreadonly()

    def close(self) -> None:
        """Nothing is held."""
