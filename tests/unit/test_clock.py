"""Tests of the clocks of the machine."""

from __future__ import annotations

import pickle
import time

from kafkalog import SystemClock


def test_system_clock_agrees_with_python() -> None:
    """Milliseconds, rounded down; of the time of day, and of a clock that never goes back."""
    clock = SystemClock()
    before = time.time_ns() // 10**6, time.monotonic_ns() // 10**6
    times = clock.now_ms(), clock.monotonic_ms()
    behind = time.time_ns() // 10**6, time.monotonic_ns() // 10**6
    assert before[0] <= times[0] <= behind[0]
    assert before[1] <= times[1] <= behind[1]


def test_system_clock_pickles() -> None:
    """With any object that holds it."""
    assert isinstance(pickle.loads(pickle.dumps(SystemClock())), SystemClock)
