"""Tests of `split_ranges`, against an obvious division of the records."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from kafkalog._core.sent_ranges import split_ranges


class Range(NamedTuple):
    """Range of a batch."""

    partition: int
    first_offset: int
    record_count: int
    is_duplicate: bool


def plain_split(batches: list[tuple[Any, ...]], counts: list[int]) -> list[list[Range]]:
    """Look up each record by itself."""
    found, first = [], 0
    for count in counts:
        ranges: dict[int, Range] = {}
        for row in range(first, first + count):
            for sent, rows in ((batch[2], batch[3]) for batch in batches):
                if row in rows:
                    offset = sent.first_offset + list(rows).index(row)
                    before = ranges.get(
                        sent.partition, sent._replace(first_offset=offset, record_count=0)
                    )
                    ranges[sent.partition] = before._replace(record_count=before.record_count + 1)
        found.append(list(ranges.values()))
        first += count
    return found


@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_groups_are_those_of_their_records(seed: int) -> None:
    """Partitions of one record and of all, groups without records, records in no batch."""
    random = Random(seed)
    counts = [random.choice((0, 1, 2, 10)) for _ in range(random.randrange(30))]
    total, partitions = sum(counts), random.choice((1, 2, 7, 100))
    rows: dict[int, list[int]] = {}
    for row in range(total):
        if random.randrange(10):
            rows.setdefault(random.randrange(partitions), []).append(row)
    batches: list[tuple[Any, ...]] = []
    for partition, own in sorted(rows.items()):
        sent = Range(partition, random.randrange(10**12), len(own), random.randrange(2) == 1)
        batches.append((None, None, sent, tuple(own)))
    found = split_ranges(batches, counts, Range)
    assert plain_split(batches, counts) == found
    assert all(type(each) is Range for group in found for each in group)


def test_ranges_of_a_whole_call_take_rows_of_a_range() -> None:
    """As of a call to one partition."""
    sent = Range(3, 100, 4, False)
    batches = [(None, None, sent, range(4))]
    assert [[Range(3, 100, 1, False)], [Range(3, 101, 3, False)]] == split_ranges(
        batches, [1, 3], Range
    )


def test_records_above_the_groups_are_refused() -> None:
    """And batches that are none."""
    with pytest.raises(IndexError, match="row must be below 2, got 2"):
        split_ranges([(None, None, Range(0, 0, 3, False), range(3))], [2], Range)
    with pytest.raises(TypeError):
        split_ranges([(None, None, None, range(3))], [3], Range)
