"""Tests of `GateState`: reasons of a closed gate, offline errors, and forked children."""

from __future__ import annotations

import os

import pytest

from kafkalog._engine.gate_state import GateState


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
