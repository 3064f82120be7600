"""A file in memory for `AppendFile`."""

from __future__ import annotations

from typing_extensions import Buffer


class MemoryFile:
    """A file in memory whose writes fail once it is full."""

    def __init__(self, capacity: int = 2**31) -> None:
        self.data = b""
        self.capacity = capacity

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write at the end."""
        assert len(self.data) == position
        if position + memoryview(data).nbytes > self.capacity:
            raise OSError("no room")
        self.data += bytes(data)
