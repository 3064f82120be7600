"""Limit of logs with files open for writing or following; files are released above it.

A log that is appended to holds four files open. If the limit is exceeded, the files of another log
are released, which costs a sync if that log was written since its last sync. A log without appends
since its last check is preferred.

Invariants: the limit is exceeded only for moments, and while every log that could be released is
inside a call.

Thread-safety: `add` from any thread, which may hold the lock of its log: only a lock that is held
for moments is waited for.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from kafkalog.files.machine import LocalMachine
from kafkalog.log.idle_files import FILES_OF_OPEN_LOG, ReleasableFiles

__all__ = ["OpenLogLimit", "default_open_log_limit"]

_LEAST: Final = 16
_MOST: Final = 4096


def default_open_log_limit(files_of_readers: int) -> int:
    """
    Return the number of logs with open files that the process's limit of descriptors permits.

    Args:
        files_of_readers: descriptors of readers; half of the remaining ones is for other uses.
    """
    soft, _hard = LocalMachine().descriptor_limits()
    if soft is None:
        return _MOST
    free = (soft - files_of_readers) // 2
    return min(max(free // FILES_OF_OPEN_LOG, _LEAST), _MOST)


class OpenLogLimit:
    """
    Logs with files open for writing, up to a limit.

    Args:
        limit: their largest number, at least 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be >= 1, got {limit}")
        self.limit = limit
        self._guard = threading.Lock()
        # Each log with its end offset at its last check; the oldest check first.
        self._open_logs: deque[tuple[ReleasableFiles, int]] = deque()

    def __len__(self) -> int:
        return len(self._open_logs)

    def add(self, log: ReleasableFiles) -> None:
        """Add a log whose files were opened; release the files of other logs above the limit."""
        with self._guard:
            self._open_logs.append((log, _end_of(log)))
            chances = len(self._open_logs)
        while len(self._open_logs) > self.limit and chances > -len(self._open_logs):
            with self._guard:
                if not self._open_logs:
                    return
                candidate, seen_end = self._open_logs.popleft()
            # The second round also releases logs that were appended to.
            if self._keeps_open(candidate, log, seen_end, is_spared=chances > 0):
                with self._guard:
                    self._open_logs.append((candidate, _end_of(candidate)))
            chances -= 1

    def remove(self, log: ReleasableFiles) -> None:
        """Remove a log that was closed."""
        with self._guard:
            self._open_logs = deque(entry for entry in self._open_logs if entry[0] is not log)

    @staticmethod
    def _keeps_open(
        log: ReleasableFiles, reopening: ReleasableFiles, seen_end: int, *, is_spared: bool
    ) -> bool:
        if log is reopening:
            return True
        if log.is_closed or log.is_released:
            return False
        if is_spared and _end_of(log) != seen_end:
            return True
        return not log.try_release()


def _end_of(log: ReleasableFiles) -> int:
    """Return a log's end offset, also while the log is being closed."""
    return log.end_offset
