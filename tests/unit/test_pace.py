"""Tests of the pauses of busy threads."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kafkalog.pace import Pace


def test_pace_pauses_only_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of a millisecond is followed by one pause; a thread that has waited makes none."""
    now, pauses = [0.0], list[float]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", pauses.append)
    with Pace() as pace:
        pace.step()
        now[0] += 0.001
        pace.step()
        pace.step()
        assert len(pauses) == 1
        pace.end()
        now[0] += 10
        pace.begin()
        pace.step()
    assert len(pauses) == 1
    assert 0 < pauses[0] < 0.001


def test_pace_of_a_thread_that_is_stuck_stops_no_other_thread() -> None:
    """The turn is a courtesy: a thread works without it if another keeps it, as at a disk."""
    worked = threading.Event()

    def work() -> None:
        with Pace() as pace:
            pace.step()
            worked.set()

    with Pace():
        other = threading.Thread(target=work)
        other.start()
        assert worked.wait(60)
        other.join()


@pytest.mark.parametrize("is_ended_twice", [False, True])
def test_pace_that_has_ended_gives_the_turn_back(is_ended_twice: bool) -> None:
    """After an error in its work, too, and however often it ends."""
    pace = Pace()
    with pytest.raises(ValueError, match="work"), pace:
        raise ValueError("work")
    if is_ended_twice:
        pace.end()
    with Pace():
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: the system has no fork")
def test_pace_in_a_forked_child_has_its_own_turn() -> None:
    """A child that is forked while a thread of the parent has the turn ends its own work."""
    with Pace():
        child = os.fork()
        if child == 0:
            with Pace():
                pass
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
