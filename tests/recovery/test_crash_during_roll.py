"""Power cuts while a log rolls, by hand and by size, and flushes behind it."""

from __future__ import annotations

import pytest

from tests.recovery.scenarios import SCENARIOS
from tests.support.crash_rig import MANY_STATES, PLACES, Place, explore

# Crash states of each moment: none survives, all do, and one between; the slow run has more.
LIMIT = 3


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_roll_crashed_at_any_call_reopens_legally(place: Place) -> None:
    """Every moment of a roll leaves a legal log."""
    moments, states = explore(SCENARIOS["roll"](), place, limit=LIMIT)
    assert 30 <= moments
    assert moments <= states


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_roll_crashed_at_any_call_reopens_legally_from_many_states(place: Place) -> None:
    """The same, with many more survivors of each crash."""
    explore(SCENARIOS["roll"](), place, limit=MANY_STATES, beyond=LIMIT)
