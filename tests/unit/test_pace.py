"""Tests of the pauses of busy threads."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kafkalog.pace import Pace, pause_for


class User:
    """An object of kafkalog.aio."""


def test_pace_pauses_only_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of a millisecond is followed by one pause; a thread that has waited makes none."""
    now, worked, pauses, user = [0.0], [0.0], list[float](), User()
    pause_for(user)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", lambda: worked[0])
    monkeypatch.setattr(time, "sleep", pauses.append)
    pace = Pace()

    def count_after(seconds: float, *, is_work: bool = True) -> int:
        now[0] += seconds
        worked[0] += seconds * is_work
        pace.step()
        return len(pauses)

    assert count_after(0) == 0
    assert count_after(0.001) == 1
    assert count_after(0) == 1
    assert count_after(10, is_work=False) == 1
    assert count_after(0.0004) == 1
    assert count_after(0.0002) == 2
    worked[0] += 0.001
    now[0] += 0.001
    pace.restart()
    pace.step()
    assert len(pauses) == 2
    assert 0 < pauses[0] < 0.001


# A separate process has no other objects of kafkalog.aio.
PROGRAM = """
import gc, time
from kafkalog.pace import Pace, paced, pause_for

class User:
    pass

now, pauses = [0.0], []
time.perf_counter = time.thread_time = lambda: now[0]
time.sleep = pauses.append
pace, users = Pace(), []

def work():
    now[0] += 0.001
    assert list(paced(range(20), pace)) == list(range(20))
    return len(pauses)

print(work())
for _ in range(2):
    users.append(User())
    pause_for(users[-1])
    print(work())
for _ in range(2):
    users.pop()
    gc.collect()
    print(work())
"""


def test_no_pause_without_a_loop() -> None:
    """Objects of two loops: the last of them ends the pauses."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert ["0", "1", "2", "3", "3"] == done.stdout.split()
