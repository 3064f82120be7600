"""Limits of micro-batches: shares of partitions, minimum sizes and delays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import LogConfig, Record
from kafkalog.spark.admission_control import AdmissionControl, ByteEstimator, share_out
from kafkalog.spark.options import ReadOptions, StreamLimits
from kafkalog.spark.plan import QuerySnapshot
from kafkalog.spark.plan import size_estimator as size_estimator_module
from kafkalog.spark.plan.size_estimator import SizeEstimator
from tests.support.manual_time import ManualClock
from tests.support.planned import snapshot_of


def admitted(
    control: AdmissionControl,
    starts: list[int],
    ends: list[int],
    *,
    may_wait: bool = True,
    estimator: ByteEstimator | None = None,
) -> list[int]:
    """Return the ends of a micro-batch."""

    def measure() -> ByteEstimator:
        assert estimator is not None
        return estimator

    columns = np.array(starts, np.int64), np.array(ends, np.int64)
    found: list[int] = control.admit(*columns, measure, may_wait=may_wait).tolist()
    return found


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**12), max_size=50))
def test_share_out_uses_the_whole_limit(limit: int, backlogs: list[int]) -> None:
    """No share exceeds its backlog, and every partition with a backlog gets one."""
    column = np.array(backlogs, np.int64)
    shares = share_out(limit, column)
    waiting = int((column > 0).sum())
    assert max(min(limit, sum(backlogs)), waiting) == int(shares.sum())
    assert ((shares > 0) == (column > 0)).all()
    assert (shares <= column).all()


@given(st.integers(100, 1000), st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_share_out_is_proportional_to_the_backlogs(limit: int, backlogs: list[int]) -> None:
    """Except for rounding and the smallest share."""
    shares = share_out(limit, np.array(backlogs, np.int64))
    if sum(backlogs) > limit:
        parts = np.array(backlogs) * limit / sum(backlogs)
        assert (np.abs(shares - parts) <= len(backlogs) + 1).all()


def test_admit_without_limits_ends_at_the_newest_offsets() -> None:
    """Without options there is no limit."""
    assert [5, 9] == admitted(AdmissionControl(StreamLimits()), [0, 9], [5, 9])


def test_admit_offset_limit_makes_the_fewest_batches() -> None:
    """Three partitions, 400 offsets, 100 per batch: four micro-batches, not five."""
    control = AdmissionControl(StreamLimits(max_offsets_per_trigger=100))
    starts, ends, batches = [0, 50, 7], [133, 183, 141], 0
    while starts != ends:
        reached = admitted(control, starts, ends)
        assert 100 == sum(reached) - sum(starts)
        starts, batches = reached, batches + 1
    assert 4 == batches


def test_admit_minimum_waits_until_the_delay_is_over() -> None:
    """The first batch does not wait, nor one of a stream that ends."""
    clock = ManualClock()
    limits = StreamLimits(min_offsets_per_trigger=10, max_trigger_delay_ms=60_000)
    control = AdmissionControl(limits, clock)
    assert [3] == admitted(control, [0], [3])
    clock.advance(59_999)
    assert [3] == admitted(control, [3], [8])
    assert [8] == admitted(control, [3], [8], may_wait=False)
    assert [13] == admitted(control, [3], [13])
    clock.advance(60_000)
    assert [14] == admitted(control, [13], [14])
    # Without new offsets the delay has not started.
    clock.advance(60_000)
    assert [14] == admitted(control, [14], [14])
    assert [15] == admitted(control, [14], [15])


def test_admit_byte_limit_uses_the_estimator() -> None:
    """Both limits apply; the estimator is used only for a byte limit."""
    snapshot = snapshot_of([("a", 0, 0, 1000), ("a", 1, 0, 1000)], segments=[[(0, 10**6)]] * 2)
    control = AdmissionControl(StreamLimits(max_bytes_per_trigger=200_000))
    estimator = SizeEstimator(snapshot)
    assert [100, 100] == admitted(control, [0, 0], [1000, 1000], estimator=estimator)
    assert [150, 600] == admitted(control, [0, 550], [150, 600], estimator=estimator)
    both = StreamLimits(max_bytes_per_trigger=200_000, max_offsets_per_trigger=10)
    assert [5, 5] == admitted(AdmissionControl(both), [0, 0], [1000, 1000], estimator=estimator)
    # One byte is less than any record; one offset of each partition is still admitted.
    least = AdmissionControl(StreamLimits(max_bytes_per_trigger=1))
    assert [1, 551] == admitted(least, [0, 550], [1000, 600], estimator=estimator)


@pytest.mark.parametrize("precise_rows", [64, 0])
def test_estimator_of_a_log_ends_near_the_requested_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precise_rows: int
) -> None:
    """With indexes at a batch, without them nearby; after the start, at most the end."""
    monkeypatch.setattr(size_estimator_module, "PRECISE_ROWS", precise_rows)
    directory = tmp_path / "a-0"
    config = LogConfig(segment_bytes=100_000, index_interval_bytes=1024)
    with kafkalog.open_log(directory, config=config) as log:
        for _ in range(400):
            log.append([Record(value=b"v" * 100)] * 10)
    options = ReadOptions.parse({"path": str(directory)})
    estimator = SizeEstimator(QuerySnapshot.take(options))
    end = np.array([4000], np.int64)
    whole = int(estimator.bytes_between(np.array([0]), end)[0])
    assert sum(path.stat().st_size for path in directory.glob("*.log")) == whole
    for start, size in ((0, 1), (5, 1), (100, 50_000), (999, 250_000), (3990, 10**9)):
        reached = int(estimator.advance(np.array([start]), end, np.array([size], np.int64))[0])
        assert start < reached <= 4000
        measured = estimator.bytes_between(np.array([start]), np.array([reached]))
        assert int(measured[0]) <= size + 3_000
        if precise_rows:
            # The index has batches; the last batch is included as a whole.
            assert 0 == reached % 10
        if size < 10**9:
            assert size <= int(measured[0]) + 1_500
