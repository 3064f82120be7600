"""Syncs of segments in this process, counted and held."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from kafkalog.files import posix

__all__ = ["WAIT_SECONDS", "Syncs", "is_segment"]

WAIT_SECONDS = 20


class Syncs:
    """
    The syncs of segments: counts those in flight, and holds them until they may end.

    Attributes:
        most: largest number in flight at once.
        count: of those that began.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.count = 0
        self._in_flight = 0
        # Syncs may end up to this number.
        self._last = sys.maxsize
        self._condition = threading.Condition()
        monkeypatch.setattr(posix, "sync_descriptor", self._sync)

    def hold(self) -> None:
        """Let no sync end that begins from now on."""
        self._last = self.count

    def release(self) -> None:
        """Let all syncs end."""
        self._release(sys.maxsize)

    def release_begun(self) -> None:
        """Let the syncs end that have begun, and no others."""
        self._release(self.count)

    def wait_for(self, count: int) -> None:
        """Wait until so many syncs have begun."""
        with self._condition:
            assert self._condition.wait_for(lambda: self.count >= count, WAIT_SECONDS)

    def _release(self, last: int) -> None:
        with self._condition:
            self._last = last
            self._condition.notify_all()

    def _sync(self, descriptor: int) -> None:
        if not is_segment(descriptor):
            return
        with self._condition:
            self.count += 1
            number = self.count
            self._in_flight += 1
            self.most = max(self.most, self._in_flight)
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: number <= self._last, WAIT_SECONDS)
            self._in_flight -= 1


def is_segment(descriptor: int) -> bool:
    """Return whether an open file is the `.log` of a segment."""
    return Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".log"
