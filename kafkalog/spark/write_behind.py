"""A large staged file goes to the disk while its task writes it, and out of memory behind that.

The system begins with each stretch of some megabytes as soon as it is full; where the one before it
has been written, its pages are let go, and serve for what comes next. So a task has a few stretches
of a file in memory however large it becomes, displaces nothing that others read, and waits little
at its last sync.

What is kept: files up to a size, which a commit may have to copy; the page in which a batch begins,
which a commit has to stamp; batches that are little more than that page.

Thread-safety: none; a file has one writer. Nothing here is a promise: `sync` is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kafkalog.files.filesystem import FileHandle

__all__ = ["WriteBehind"]

_RANGE_BYTES: Final = 8 * 1024 * 1024
_PAGE_BYTES: Final = 4096
_BATCH_BYTES_MIN: Final = 64 * 1024


class WriteBehind:
    """
    How far one file has gone to the disk.

    Args:
        keep_bytes: files that are not larger stay in memory.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._begun = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def wrote(self, handle: FileHandle, position: int, size: int) -> None:
        """
        Take note of a batch that was written behind the others.

        Raises:
            OSError: the disk has refused what was written before.
        """
        if size >= _BATCH_BYTES_MIN:
            self._waiting.append((position + _PAGE_BYTES, size - _PAGE_BYTES))
        begun, end = self._begun, position + size
        if end - begun < _RANGE_BYTES:
            return
        handle.begin_write_back(begun, end - begun)
        self._begun = end
        if end <= self._keep_bytes:
            return
        while self._waiting and self._waiting[0][0] < begun:
            handle.drop_cache(*self._waiting.popleft())
