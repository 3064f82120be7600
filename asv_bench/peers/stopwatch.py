"""A clock for cases that measure themselves: another process's time, or part of what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Seconds(NamedTuple):
    """Duration of an action."""

    wall: float
    cpu: float


class Stopwatch:
    """Clock that advances only by the reported durations of cases."""

    def __init__(self, *, by_wall: bool) -> None:
        self._by_wall = by_wall
        self._seconds = 0.0

    def read(self) -> float:
        """Return the seconds so far."""
        return self._seconds

    def time(self, action: Callable[[], Seconds]) -> Callable[[], None]:
        """Return a case that adds the reported duration of `action`."""

        def case() -> None:
            taken = action()
            self._seconds += taken.wall if self._by_wall else taken.cpu

        return case
