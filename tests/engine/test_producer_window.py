"""Tests of the next batch of a producer, against the functions for any batch."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kafkalog._engine.producer_window import after_next, is_next
from kafkalog.state.producer_entry import MAX_SEQUENCE, ProducedBatch, ProducerEntry


@pytest.mark.parametrize("start", [0, 1000, MAX_SEQUENCE - 20])
def test_entry_after_the_next_batch_equals_that_of_any_batch(start: int) -> None:
    """Over more batches than an entry keeps, and over the end of the sequence numbers."""
    random = Random(start)
    last = ProducedBatch(start, 7, 0, 5)
    entry = expected = ProducerEntry(42, 3, 9, 5, None, (last,))
    offset = 8
    for _ in range(40):
        delta = random.randrange(6)
        sequence = (expected.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        assert is_next(entry, 3, sequence)
        assert not is_next(entry, 3, (sequence + 1) & MAX_SEQUENCE)
        assert not is_next(entry, 4, sequence)
        last_offset, time_ms = offset + delta, random.randrange(2**40)
        entry = after_next(entry, last_offset, delta, time_ms)
        expected = expected.with_batch(
            3, (sequence + delta) & MAX_SEQUENCE, last_offset, delta, time_ms, None
        )
        assert expected == entry
        assert type(entry) is ProducerEntry
        assert {ProducedBatch} == {type(each) for each in entry.batches}
        offset = last_offset + 1 + random.randrange(3)
    assert 5 == len(entry.batches)


def test_batches_in_transactions_or_of_new_producers_are_not_next() -> None:
    """The checks of any batch decide."""
    batch = ProducedBatch(4, 7, 0, 5)
    assert not is_next(ProducerEntry(1), -1, 0)
    assert not is_next(ProducerEntry(1, 0, -1, 5, 7, (batch,)), 0, 5)
    assert is_next(ProducerEntry(1, 0, -1, 5, None, (batch,)), 0, 5)


def test_entries_of_other_types_raise() -> None:
    """Nothing is read beyond their end."""
    wrongs: list[Any] = [(), (1, 2, 3), (1, 0, -1, 5, None, []), (1, 0, -1, 5, None, (7,)), None]
    for wrong in wrongs:
        with pytest.raises((IndexError, TypeError)):
            is_next(wrong, 0, 0)
        with pytest.raises((IndexError, TypeError)):
            after_next(wrong, 1, 0, 1)
    with pytest.raises(ValueError, match="must have a batch"):
        after_next(ProducerEntry(1), 1, 0, 1)
