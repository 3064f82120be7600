"""Gate state, epoch state and snapshots: what they keep, and what they refuse."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog._engine.epoch_state import EpochState
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot, ReadBound


def test_gate_state_new_is_open_until_closed() -> None:
    """Each of four reasons alone; an idle log is open again when it has its files."""
    assert GateState().is_open()
    assert not GateState(is_read_only=True).is_open()
    gate = GateState(is_idle=True)
    assert not gate.is_open()
    gate.set_idle(False)
    assert gate.is_open()
    assert (gate.is_own_process(), gate.process_id) == (True, os.getpid())
    gate.close()
    assert gate.is_closed
    assert not gate.is_open()


def test_gate_state_first_offline_error_stays() -> None:
    """Later ones follow from it."""
    gate, first = GateState(), OSError("first")
    assert gate.offline_error is None
    assert gate.mark_offline(first)
    assert not gate.mark_offline(OSError("second"))
    assert gate.offline_error is first
    assert not gate.is_open()
    with pytest.raises(TypeError):
        gate.mark_offline(None)


def test_gate_state_in_a_forked_child_is_not_open() -> None:
    """The child has the parent's object, and another process id."""
    gate = GateState()
    child = os.fork()
    if not child:
        os._exit(10 * gate.is_open() + gate.is_own_process())
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_epoch_state_set_values_are_kept() -> None:
    """Nothing is written while the file lacks a change."""
    state = EpochState(3)
    assert (3, None, False) == (state.current, state.written, state.has_unwritten)
    state.set_current(4)
    state.set_written(2, False)
    assert (4, 2, False) == (state.current, state.written, state.has_unwritten)
    state.set_written(None, True)
    assert (4, None, True) == (state.current, state.written, state.has_unwritten)


def segments() -> Any:
    """Return two segments at 0 and 10."""
    return SimpleNamespace(
        segments=(SimpleNamespace(size_bytes=500), SimpleNamespace(size_bytes=700)),
        base_after=lambda slot: [10, None][slot],
    )


def test_snapshot_replace_returns_a_new_snapshot() -> None:
    """Equal are those of the same segments with the same numbers."""
    found = segments()
    first = LogSnapshot(found, 20, 600, 5)
    other = first.replace(end_offset=21)
    assert LogSnapshot(found, 21, 600, 5) == other
    assert hash(other) == hash(LogSnapshot(found, 21, 600, 5))
    assert first != other
    assert first != LogSnapshot(segments(), 20, 600, 5)
    assert first != (found, 20, 600, 5)
    assert first == first.replace()
    with pytest.raises(AttributeError):
        first.end_offset = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="copied"):
        first.__reduce__()


def test_snapshot_read_bound_is_its_end_or_a_sealed_segment() -> None:
    """The last segment by what is published, the others by their size and their successor."""
    snapshot = LogSnapshot(segments(), 20, 600, 5)
    assert ReadBound(500, 10) == snapshot.read_bound(0)
    assert ReadBound(end=600, following_offset=20) == snapshot.read_bound(1)


def test_published_snapshot_is_the_latest() -> None:
    """A reader that holds an earlier one keeps it."""
    first = LogSnapshot(segments(), 20, 600, 5)
    published = PublishedSnapshot(first)
    assert first is published.snapshot
    published.publish(first.replace(end_offset=30))
    assert (20, 30) == (first.end_offset, published.snapshot.end_offset)
    with pytest.raises(TypeError):
        published.publish(None)  # type: ignore[arg-type]
