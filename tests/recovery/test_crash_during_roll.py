"""Power cuts while a log rolls, by a call and by size, and flushes after it."""

from __future__ import annotations

import pytest

from tests.recovery.scenarios import SCENARIOS
from tests.support.crash_rig import MANY_STATES, PLACES, LogSetup, explore

# Crash states of each moment: none survives, all do, and one between; the slow run has more.
LIMIT = 3


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_roll_power_cut_at_any_call_leaves_a_legal_log(place: LogSetup) -> None:
    """A cut at every changing call, with three crash states of each."""
    moments, states = explore(SCENARIOS["roll"](), place, limit=LIMIT)
    assert 30 <= moments
    assert moments <= states


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_roll_power_cut_many_states_leave_a_legal_log(place: LogSetup) -> None:
    """The same cuts, with many more crash states of each."""
    explore(SCENARIOS["roll"](), place, limit=MANY_STATES, beyond=LIMIT)
