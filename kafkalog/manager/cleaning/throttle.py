"""So many bytes a second for all cleaners together.

Each thread pays for what it has read or written, and waits until its bytes are over, counted from
the end of those that were paid before. The lock is held while that is reckoned, never while anybody
waits: in Kafka who waits keeps the others from reckoning. There is no window either, within which
the limit could be passed at first and made up for by a long stop: the pauses are as short as the
chunks. Time in which nobody paid gives nothing to spend later.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable

from kafkalog.clock import Clock

__all__ = ["Throttle"]

# Shorter waits are added up: they cost more than they save.
_LEAST_PAUSE_MS = 1.0


class Throttle:
    """
    A limit of bytes a second.

    Args:
        bytes_per_second: the limit, 1 at least; the largest number there is means none.
        clock: measures time.

    Attributes:
        waited_ms: how long threads have waited, all together.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self.waited_ms = 0
        self._clock = clock
        self._guard = threading.Lock()
        self._limit = 0.0
        # When all bytes that were paid for are over.
        self._over_ms = -math.inf
        self.set_limit(bytes_per_second)

    @property
    def is_limited(self) -> bool:
        """True if there is a limit."""
        return self._limit < sys.float_info.max

    def set_limit(self, bytes_per_second: float) -> None:
        """Let another limit count, for what is paid from now on; what was paid for is forgotten."""
        with self._guard:
            # Without any byte nothing could ever be cleaned, nor anybody be told why.
            self._limit = max(bytes_per_second, 1.0)
            self._over_ms = -math.inf

    def pay(
        self,
        byte_count: int,
        wait: Callable[[float], object],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Return when so many bytes are over, or earlier where `is_over` says so.

        Args:
            byte_count: bytes that were read or written.
            wait: waits so many milliseconds, or shorter.
            is_over: asked before each wait.
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
