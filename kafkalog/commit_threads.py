"""Threads that may commit for other threads, too: to lead a round of a group commit.

An exception in the middle of a commit leaves its outcome unknown. In the main thread it may come at
any line, as by Ctrl-C: Python runs handlers of signals there, and nowhere else. So that thread lets
another one commit, and waits for it; every other thread commits by itself, which saves two switches
of threads.
"""

from __future__ import annotations

import threading

__all__ = ["can_lead"]


def can_lead() -> bool:
    """Return whether the calling thread may commit for others: it is not the main thread."""
    return threading.current_thread() is not threading.main_thread()
