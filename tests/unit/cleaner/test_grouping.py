"""Tests of groups of segments that become one, and of the memory for keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.cleaner.grouping import group_segments, map_bytes_for, parts_for
from kafkalog.cleaner.selection import SegmentCleaningFacts
from tests.support.cleaning import offset_map_of


def groups_of(
    *segments: SegmentCleaningFacts,
    segment_bytes: int = 100,
    index_bytes: int = 50,
    end: int = 1000,
) -> list[list[int]]:
    """Return the bases of each group."""
    groups = group_segments(
        segments, segment_bytes=segment_bytes, index_bytes=index_bytes, end_offset=end
    )
    return [[segment.base_offset for segment in group] for group in groups]


def sized(*sizes: int) -> list[SegmentCleaningFacts]:
    """Return segments of these sizes, ten offsets each."""
    return [SegmentCleaningFacts(10 * slot, size) for slot, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), []),
        ((60, 40, 1), [[0, 10], [20]]),
        ((60, 41), [[0], [10]]),
        ((200, 10, 10), [[0], [10, 20]]),
        ((10, 200, 10), [[0], [10], [20]]),
        ((0, 0, 100, 0), [[0, 10, 20, 30]]),
    ],
)
def test_groups_fill_a_segment(sizes: tuple[int, ...], expected: list[list[int]]) -> None:
    """To the byte; a segment above the limit stays alone, an empty one joins any group."""
    assert expected == groups_of(*sized(*sizes))


@pytest.mark.parametrize("name", ["offset_index_bytes", "time_index_bytes"])
def test_groups_stay_within_the_limit_of_an_index(name: str) -> None:
    """Either index bounds a group."""
    segments = [
        SegmentCleaningFacts(10 * slot, 1, **{name: size}) for slot, size in enumerate((30, 20, 1))
    ]
    assert [[0, 10], [20]] == groups_of(*segments)


def test_groups_stay_within_relative_offsets() -> None:
    """By the base of the next segment, or the end for the last; an empty one may be beyond."""
    far = 2**31
    first, second = SegmentCleaningFacts(0, 1), SegmentCleaningFacts(10, 1)
    assert [[0, 10], [far]] == groups_of(first, second, SegmentCleaningFacts(far, 1), end=far + 10)
    assert [[0], [10], [far + 1]] == groups_of(
        first, second, SegmentCleaningFacts(far + 1, 1), end=far + 20
    )
    assert [[0, 10]] == groups_of(first, second, end=far)
    assert [[0], [10]] == groups_of(first, second, end=far + 1)
    assert [[0, 10]] == groups_of(first, SegmentCleaningFacts(10, 0), end=far + 1)


@given(sizes=st.lists(st.integers(0, 120), max_size=30))
def test_groups_keep_all_segments_in_order(sizes: list[int]) -> None:
    """No segment is lost; no group could hold the first segment of the next."""
    groups = groups_of(*sized(*sizes))
    assert [10 * slot for slot in range(len(sizes))] == [base for group in groups for base in group]
    totals = [sum(sizes[base // 10] for base in group) for group in groups]
    for group, total, following in zip(groups, totals, groups[1:], strict=False):
        assert total + sizes[following[0] // 10] > 100
        assert total <= 100 or len(group) == 1


@given(keys=st.integers(1, 10_000), load_factor=st.floats(0.1, 1.0))
def test_memory_for_keys_is_the_smallest_sufficient(keys: int, load_factor: float) -> None:
    """One entry less would not suffice."""
    slots = map_bytes_for(keys, load_factor) // 24
    assert int(slots * load_factor) >= keys
    assert int((slots - 1) * load_factor) < keys


@pytest.mark.parametrize(
    ("keys", "usable", "parts"), [(0, 10, 1), (10, 10, 1), (11, 10, 2), (90, 10, 10), (91, 10, 11)]
)
def test_passes_leave_a_tenth_of_the_map_free(keys: int, usable: int, parts: int) -> None:
    """As many passes as needed; hashes do not divide keys evenly."""
    assert parts == parts_for(keys, usable)
    assert offset_map_of(usable).usable == usable
