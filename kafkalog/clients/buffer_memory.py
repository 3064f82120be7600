"""How many bytes of batches may be on their way: keeps a fast program from a slow disk.

Memory is taken a batch at a time, so that it costs nothing per record. Whoever waits is served when
there is room for what it wants; there is no queue.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading

__all__ = ["BufferMemory"]


class BufferMemory:
    """
    A number of bytes, some of them taken.

    Args:
        limit_bytes: how many there are.

    A batch that alone is larger than all of them is let through when nothing else is on its way.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._reserved_bytes = 0
        self._freed = threading.Condition()

    @property
    def reserved_bytes(self) -> int:
        """How many are taken."""
        return self._reserved_bytes

    def try_reserve(self, size: int) -> bool:
        """Take bytes if they are there; say whether they were."""
        with self._freed:
            return self._try_reserve(size)

    def reserve(self, size: int, timeout_ms: int) -> bool:
        """Take bytes, waiting for them that long; say whether they came."""
        with self._freed:
            return self._freed.wait_for(
                lambda: self._try_reserve(size), min(timeout_ms / 1000, threading.TIMEOUT_MAX)
            )

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._freed:
            self._reserved_bytes -= size
            self._freed.notify_all()

    def _try_reserve(self, size: int) -> bool:
        if self._reserved_bytes and self._reserved_bytes + size > self.limit_bytes:
            return False
        self._reserved_bytes += size
        return True
