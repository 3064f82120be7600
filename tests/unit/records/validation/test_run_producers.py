"""Tests of `has_producers` of a run of batches, which decides if producer state is checked."""

from __future__ import annotations

import pytest

from kafkalog import AppendOrigin, LogConfig
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.follower import validate_as_follower
from kafkalog.records.validation.leader import validate_as_leader
from tests.support.producer_batches import Produced, encoded

RULES = AppendRules.of(LogConfig(message_timestamp_before_max_ms=2**62))
NOW_MS = 10_000


@pytest.mark.parametrize("producer_id", [-1, 0, 7])
def test_run_of_a_leader_has_producers_if_a_batch_names_one(producer_id: int) -> None:
    """Producer 0 is one, too."""
    data = encoded([Produced(-1), Produced(producer_id)])
    assert (producer_id >= 0) is validate_as_leader(data, RULES, NOW_MS).has_producers


@pytest.mark.parametrize("producer_id", [-1, 0, 7])
def test_run_of_a_follower_has_producers_if_a_batch_names_one(producer_id: int) -> None:
    """In any of its batches."""
    data = encoded([Produced(producer_id), Produced(-1)], base_offset=5)
    assert (producer_id >= 0) is validate_as_follower(data, RULES).has_producers


def test_transactional_batch_of_a_producer_is_accepted() -> None:
    """Its coordinator, or `Log.abort_transaction`, ends the transaction."""
    data = encoded([Produced(3, transactional=True)])
    run = validate_as_leader(data, RULES, NOW_MS, AppendOrigin.CLIENT)
    assert (True, 1) == (run.has_producers, run.record_count)
