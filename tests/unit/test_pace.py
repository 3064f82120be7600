"""Tests of the pauses of busy threads."""

from __future__ import annotations

import time

import pytest

from kafkalog.pace import Pace


def test_pace_pauses_only_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of a millisecond is followed by one pause; a thread that has waited makes none."""
    now, pauses = [0.0], list[float]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", pauses.append)
    pace = Pace()
    pace.step()
    now[0] += 0.001
    pace.step()
    pace.step()
    assert len(pauses) == 1
    now[0] += 10
    pace.restart()
    pace.step()
    assert len(pauses) == 1
    assert 0 < pauses[0] < 0.001
