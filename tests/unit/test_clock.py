"""The machine's own clocks."""

from __future__ import annotations

import pickle
import time

from kafkalog import SystemClock


def test_system_clock_tells_what_python_tells() -> None:
    """Milliseconds, rounded down; of the time of day, and of one that never goes back."""
    clock = SystemClock()
    before = time.time_ns() // 10**6, time.monotonic_ns() // 10**6
    told = clock.now_ms(), clock.monotonic_ms()
    behind = time.time_ns() // 10**6, time.monotonic_ns() // 10**6
    assert before[0] <= told[0] <= behind[0]
    assert before[1] <= told[1] <= behind[1]


def test_system_clock_goes_to_other_processes() -> None:
    """With whatever holds one."""
    assert isinstance(pickle.loads(pickle.dumps(SystemClock())), SystemClock)
