"""Interface of the clock: all code of kafkalog gets its clock as an argument, also in tests."""

from __future__ import annotations

from typing import Protocol

from kafkalog._engine.system_clock import SystemClock

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Source of wall-clock time (for records, retention) and of monotonic time (for waiting)."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds from an arbitrary start; never goes back."""
        ...
