"""Early write-back of a large staged file: to the disk during its task, then out of memory.

The system begins to write each range of some megabytes as soon as it is full; when the range before
it has been written, its pages are dropped, and serve for the next one. So a task has a few ranges
of a file in memory however large it becomes, displaces no pages that others read, and waits little
at its last sync.

Kept in memory are: files up to a size, which a commit may have to copy; the page in which a batch
begins, to which a commit writes offsets; batches that are little more than that page.

Thread-safety: none; a file has one writer. Nothing here is a guarantee: `sync` is.
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
    Write-back of one file.

    Args:
        keep_bytes: files that are not larger stay in memory.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._begun = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def wrote(self, handle: FileHandle, position: int, size: int) -> None:
        """
        Record a batch that was written at the end.

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
