"""Which logs hold files open for writing, and who goes to rest when they are too many.

A log that is appended to holds four files open. At most so many logs are awake; one more that wakes
puts another one to rest, which costs a sync where that one was written since its last. It is one
that nothing was appended to since it was last looked at, if there is one.

Invariants: more than the limit are awake only for moments, and while those that could rest are in
the middle of a call.

Thread-safety: `add` from any thread, which may hold the lock of its own log: no lock is waited for
here but one that is held for moments.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from kafkalog.files.machine import LocalMachine
from kafkalog.log.idle_files import FILES_OF_OPEN_LOG, IdleFiles

__all__ = ["OpenLogLimit", "default_open_log_limit"]

_LEAST: Final = 16
_MOST: Final = 4096


def default_open_log_limit(files_of_readers: int) -> int:
    """
    Return how many logs may be awake under the process's limit of descriptors.

    Args:
        files_of_readers: descriptors that reading takes; half of what is left is for others.
    """
    soft, _hard = LocalMachine().descriptor_limits()
    if soft is None:
        return _MOST
    free = (soft - files_of_readers) // 2
    return min(max(free // FILES_OF_OPEN_LOG, _LEAST), _MOST)


class OpenLogLimit:
    """
    Bounds how many logs are awake.

    Args:
        limit: how many, 1 and more.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("one log at least has to be awake")
        self.limit = limit
        self._guard = threading.Lock()
        # Each with its end when it was last looked at; the one looked at longest ago first.
        self._open_logs: deque[tuple[IdleFiles, int]] = deque()

    def __len__(self) -> int:
        return len(self._open_logs)

    def add(self, log: IdleFiles) -> None:
        """Take note of a log that wakes; put others to rest where they are too many."""
        with self._guard:
            self._open_logs.append((log, _end_of(log)))
            chances = len(self._open_logs)
        while len(self._open_logs) > self.limit and chances > -len(self._open_logs):
            with self._guard:
                if not self._open_logs:
                    return
                candidate, seen_end = self._open_logs.popleft()
            # In the second round nobody is spared for having been used.
            if self._keeps_open(candidate, log, seen_end, is_spared=chances > 0):
                with self._guard:
                    self._open_logs.append((candidate, _end_of(candidate)))
            chances -= 1

    def remove(self, log: IdleFiles) -> None:
        """Take note that a log was closed."""
        with self._guard:
            self._open_logs = deque(entry for entry in self._open_logs if entry[0] is not log)

    @staticmethod
    def _keeps_open(
        log: IdleFiles, reopening: IdleFiles, seen_end: int, *, is_spared: bool
    ) -> bool:
        if log is reopening:
            return True
        if log.is_closed or log.is_released:
            return False
        if is_spared and _end_of(log) != seen_end:
            return True
        return not log.try_release()


def _end_of(log: IdleFiles) -> int:
    """Return a log's end; of one that is being closed, whatever it was."""
    return log.end_offset
