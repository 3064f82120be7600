"""Tests of `BatchTotals`, compared with a loop in Python over the same rows."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.batch_totals import BatchTotals
from kafkalog.log.scanner import NO_EPOCH
from tests.support.encoded_batches import batch
from tests.support.examples import examples

CONTROL = 0x20
TRANSACTIONAL = 0x10
ROWS_MAX = 12
DATA = b"".join(batch(base_offset=3 * number) for number in range(ROWS_MAX))


class Row(NamedTuple):
    """The fields of a batch that `BatchTotals` reads."""

    magic: int = 2
    epoch: int = 0
    producer_id: int = -1
    attributes: int = 0
    record_count: int = 3
    max_timestamp: int = 7


ROWS = st.builds(
    Row,
    magic=st.sampled_from([2, 2, 2, 1, 0]),
    epoch=st.integers(-1, 4),
    producer_id=st.sampled_from([-1, -1, 0, 9]),
    attributes=st.sampled_from([0, TRANSACTIONAL, CONTROL, CONTROL | TRANSACTIONAL]),
    record_count=st.integers(-1, 50),
    max_timestamp=st.integers(-1, 5),
)


def columns_of(rows: list[Row], first: int = 0) -> BatchColumns:
    """Return columns of consecutive batches of a log; `first` is the number of the first."""
    columns = BatchColumns(ROWS_MAX)
    size = len(DATA) // ROWS_MAX
    scan_batches(DATA[first * size : (first + len(rows)) * size], columns=columns)
    for row, each in enumerate(rows):
        columns.magic[row], columns.leader_epoch[row] = each.magic, each.epoch
        columns.producer_id[row], columns.attributes[row] = each.producer_id, each.attributes
        columns.record_count[row] = each.record_count
        columns.max_timestamp[row] = each.max_timestamp
    return columns


def slow_epochs(rows: list[Row]) -> list[tuple[int, int]]:
    """Return the leader epochs found by a loop."""
    found: list[tuple[int, int]] = []
    for number, row in enumerate(rows):
        last_epoch = found[-1][0] if found else None
        if row.magic < 2:
            if last_epoch != NO_EPOCH:
                found.append((NO_EPOCH, 3 * number))
        elif row.epoch > (NO_EPOCH if last_epoch is None else last_epoch):
            found.append((row.epoch, 3 * number))
    return found


@settings(max_examples=examples(150))
@given(st.lists(ROWS, max_size=ROWS_MAX), st.integers(0, ROWS_MAX))
def test_batch_totals_of_any_rows_equal_the_loop(rows: list[Row], cut: int) -> None:
    """The totals are equal for rows added in one call or in two."""
    tally = BatchTotals()
    for first, part in ((0, rows[:cut]), (cut, rows[cut:])):
        tally.add(columns_of(part, first), len(part))
    producers = [row for row in rows if row.producer_id >= 0]
    assert len(rows) == tally.batch_count
    assert sum(max(row.record_count, 0) for row in rows) == tally.record_count
    assert (rows[0].max_timestamp if rows else -1) == tally.first_max_timestamp
    assert bool(producers) is tally.has_producers
    assert any(row.attributes & CONTROL for row in producers) is tally.has_markers
    assert slow_epochs(rows) == tally.leader_epochs


def test_batch_totals_add_only_the_given_count_of_rows() -> None:
    """A walk may drop its last rows."""
    tally = BatchTotals()
    tally.add(columns_of([Row(epoch=1), Row(epoch=2, producer_id=5)]), 1)
    assert (1, 3, [(1, 0)]) == (tally.batch_count, tally.record_count, tally.leader_epochs)
    assert not tally.has_producers


@pytest.mark.parametrize("count", [-1, 3])
def test_batch_totals_of_a_count_out_of_range_raise(count: int) -> None:
    """The count is negative or larger than the columns."""
    tally = BatchTotals()
    with pytest.raises(ValueError, match=f"count must be in 0 to 2, got {count}"):
        tally.add(columns_of([Row(), Row()]), count)
    assert 0 == tally.batch_count
