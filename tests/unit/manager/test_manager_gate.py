"""`ManagerGate` alone: closed managers, other processes, paused cleanings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog.errors import ForkedLogError, LogClosedError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.manager.cleaning.states import CleaningStates, Phase
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.manager_gate import ManagerGate
from kafkalog.manager.registry import ManagedPartition
from kafkalog.model import TopicPartition


def partitions(tmp_path: Path, count: int) -> list[ManagedPartition]:
    """Return partitions of one directory that was not opened."""
    directory = DataDirectory(tmp_path, PosixFileSystem())
    return [ManagedPartition(TopicPartition("t", number), directory) for number in range(count)]


def test_changing_after_mark_closed_is_refused() -> None:
    """Only the first call of `mark_closed` finds an open manager."""
    gate = ManagerGate(CleaningStates())
    with gate.changing():
        assert not gate.is_closed
    assert [True, False] == [gate.mark_closed(), gate.mark_closed()]
    with pytest.raises(LogClosedError), gate.changing():
        raise AssertionError("not to be reached")


def test_changing_in_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check comes before the lock, which a thread of the parent may have held."""
    gate = ManagerGate(CleaningStates())
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    assert not gate.is_owner_process
    with pytest.raises(ForkedLogError, match=f"process {own}"), gate.changing():
        raise AssertionError("not to be reached")
    with pytest.raises(ForkedLogError), gate.without_cleaning(list):
        raise AssertionError("not to be reached")


def test_without_cleaning_partition_added_during_the_wait_is_paused(tmp_path: Path) -> None:
    """The pause is repeated until the partitions are the same under the lock."""
    states = CleaningStates()
    gate = ManagerGate(states)
    first, second = partitions(tmp_path, 2)
    answers = [[first], [first, second], [first, second], [first, second]]
    with gate.without_cleaning(lambda: answers.pop(0)):
        phases = [states.state_of(each.topic_partition).phase for each in (first, second)]
    assert [Phase.PAUSED, Phase.PAUSED] == phases
    assert not answers
    assert not states.is_busy(first.topic_partition)


def test_block_same_rival_twice_lists_it_once(tmp_path: Path) -> None:
    """A rival directory that comes back is blocked again, and is still one other copy."""
    (partition,) = partitions(tmp_path, 1)
    rival = DataDirectory(tmp_path / "rival", PosixFileSystem())
    for _ in range(2):
        partition.block(LogClosedError("as asked"), rival)
    assert (True, (rival,)) == (partition.is_duplicate, partition.rivals)
    partition.free()
    assert (False, ()) == (partition.is_duplicate, partition.rivals)
