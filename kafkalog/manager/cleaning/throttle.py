"""Limit of bytes per second for all cleaners together.

A thread pays for bytes after it has read or written them, and waits until their time is over,
counted from the end of the bytes paid before. The lock is held for the computation only, never
during a wait; in Kafka, a waiting thread blocks the others. The limit has no window in which it
could be exceeded first and compensated by a long stop: pauses are as short as the chunks. Idle time
is not credited.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable

from kafkalog.clock import Clock

__all__ = ["Throttle"]

# Shorter waits are accumulated, because a wait costs more.
_LEAST_PAUSE_MS = 1.0


class Throttle:
    """
    A limit of bytes per second.

    Args:
        bytes_per_second: the limit, at least 1; the largest float means unlimited.
        clock: measures time.

    Attributes:
        waited_ms: total time that threads have waited.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self.waited_ms = 0
        self._clock = clock
        self._guard = threading.Lock()
        self._limit = 0.0
        # End of the time of all paid bytes.
        self._over_ms = -math.inf
        self.set_limit(bytes_per_second)

    @property
    def is_limited(self) -> bool:
        """True unless the limit is the largest float."""
        return self._limit < sys.float_info.max

    def set_limit(self, bytes_per_second: float) -> None:
        """Change the limit; the remaining time of paid bytes is dropped."""
        with self._guard:
            # A limit of zero would block every cleaning without a report.
            self._limit = max(bytes_per_second, 1.0)
            self._over_ms = -math.inf

    def pay(
        self,
        byte_count: int,
        wait: Callable[[float], object],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Wait for the time of some bytes; return earlier if `is_over` returns True.

        Args:
            byte_count: bytes that were read or written.
            wait: waits for a number of milliseconds, or less.
            is_over: called before each wait.
        """
        if not self.is_limited:
            return
        with self._guard:
            start_ms = float(self._clock.monotonic_ms())
            self._over_ms = max(self._over_ms, start_ms) + byte_count * 1000 / self._limit
            end_ms = self._over_ms
        now_ms = start_ms
        while end_ms - now_ms >= _LEAST_PAUSE_MS and not is_over():
            wait(end_ms - now_ms)
            now_ms = float(self._clock.monotonic_ms())
        if now_ms > start_ms:
            with self._guard:
                self.waited_ms += int(now_ms - start_ms)
