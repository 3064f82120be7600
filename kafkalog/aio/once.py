"""A right that exactly one thread gets.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading

__all__ = ["Once"]


class Once:
    """
    A right that exactly one caller gets, for example to begin a call or to withdraw it.

    A lock that is never released decides it: no caller waits.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def is_taken(self) -> bool:
        """True once a caller has the right."""
        return self._lock.locked()

    def try_take(self) -> bool:
        """Return True to the first caller, and False to all others."""
        return self._lock.acquire(blocking=False)
