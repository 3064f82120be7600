"""Tests of `Histogram`: buckets, sums, and which calls are sampled."""

from __future__ import annotations

import copy
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._engine.histogram import Histogram

INT64_MAX = 2**63 - 1


@given(
    st.sets(st.integers(0, 10**12), min_size=1, max_size=32).map(sorted),
    st.lists(st.integers(-5, 2 * 10**12), max_size=50),
)
def test_histogram_counts_each_value_once(bounds: list[int], values: list[int]) -> None:
    """A value is in the first bucket whose bound is not below it."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    present = [max(value, 0) for value in values]
    edges = [-1, *bounds, INT64_MAX]
    expected = tuple(sum(low < value <= high for value in present) for low, high in pairwise(edges))
    assert (expected, sum(present)) == histogram.counts()
    assert (tuple(bounds), sum(present)) == (histogram.bounds, histogram.sum)


@pytest.mark.parametrize("bounds", [[], range(33), [1, 1], [2, 1]])
def test_histogram_wrong_bounds_are_refused(bounds: list[int]) -> None:
    """Bounds rise, and are 1 to 32."""
    with pytest.raises(ValueError, match="bounds must"):
        Histogram(bounds)


def test_histogram_samples_one_call_of_sixteen() -> None:
    """The first call is a sample; the others return 0, whose end is not counted."""
    histogram = Histogram([10**9])
    started = [histogram.start_sample() for _ in range(48)]
    assert [0, 16, 32] == [row for row, time in enumerate(started) if time]
    for time in started:
        histogram.end_sample(time)
    assert 3 == sum(histogram.counts()[0])


def test_histogram_cannot_be_copied() -> None:
    """Two histograms with the same counts would be added up twice."""
    with pytest.raises(TypeError, match="Histogram"):
        copy.copy(Histogram([1]))


def test_histogram_of_many_threads_loses_nothing() -> None:
    """An observation is one step for other threads."""
    histogram = Histogram([1, 2])

    def observe() -> None:
        for value in range(3000):
            histogram.observe(value % 3)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ((8000, 4000, 0), 12000) == histogram.counts()
