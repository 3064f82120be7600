"""Tests of `EpochState`: current and written epochs."""

from __future__ import annotations

from kafkalog._engine.epoch_state import EpochState


def test_epoch_state_set_values_are_kept() -> None:
    """Nothing is written while the file lacks a change."""
    state = EpochState(3)
    assert (3, None, False) == (state.current, state.written, state.has_unwritten)
    state.set_current(4)
    state.set_written(2, False)
    assert (4, 2, False) == (state.current, state.written, state.has_unwritten)
    state.set_written(None, True)
    assert (4, None, True) == (state.current, state.written, state.has_unwritten)
