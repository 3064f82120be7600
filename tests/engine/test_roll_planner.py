"""Tests of `RollPlanner`: a plan for all batches, compared with a decision for each batch."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch_metadata import BatchFacts, BatchMetadata
from kafkalog._engine.roll_planner import RollPlanner
from tests.support.examples import examples
from tests.support.kernel_staging import KernelStaging
from tests.support.slow_staging import SlowStaging, StagingRules

NOW_MS = 1_000_000

Drawn = tuple[int, int, int, int, bool]
# Size, offsets skipped before it, offsets that it takes less one, timestamp, whether it has a
# shallow offset.
BATCH = st.tuples(
    st.integers(61, 400),
    st.sampled_from([0, 0, 0, 0, 1, 500, 2**31 - 1, 2**31]),
    st.sampled_from([0, 0, 1, 9, 2**31 - 1]),
    st.integers(-1, 60) | st.sampled_from([2**40, 2**63 - 1]),
    st.booleans(),
)
RULES = st.builds(
    StagingRules,
    segment_bytes=st.sampled_from([100, 700, 3000, 2**31 - 1]),
    interval_bytes=st.sampled_from([0, 1, 90, 61, 500, 4096, 2**31 - 1]),
    roll_after_ms=st.sampled_from([0, 5, 40, 2**62]),
    index_bytes=st.sampled_from([0, 12, 24, 60, 2**16]),
)


def facts_of(drawn: list[Drawn], base_offset: int) -> list[BatchFacts]:
    """Return the facts of consecutive batches, from an offset on."""
    facts, next_offset = [], base_offset
    for size, skipped, more, timestamp, is_named in drawn:
        base, next_offset = next_offset + skipped, next_offset + skipped + more + 1
        last = next_offset - 1
        shallow = last if is_named or timestamp >= 0 else -1
        facts.append(BatchFacts(size, base, last, timestamp, shallow))
    return facts


@settings(max_examples=examples(150))
@given(
    RULES,
    st.sampled_from([0, 7, 2**40]),
    st.lists(st.lists(BATCH, min_size=1, max_size=12), max_size=5),
    st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_roll_planner_run_is_planned_as_single_batches(
    rules: StagingRules, base_offset: int, runs: list[list[Drawn]], pauses: list[int]
) -> None:
    """Rolls by offset, size, time and full indexes; entries; largest timestamps; taken back too."""
    slow, fast = SlowStaging(rules, base_offset, NOW_MS), KernelStaging(rules, base_offset, NOW_MS)
    now_ms, next_offset = NOW_MS, base_offset
    for run, pause in zip(runs, pauses, strict=False):
        now_ms += pause
        facts = facts_of(run, next_offset)
        next_offset = facts[-1].last_offset + 1
        slow.append(facts, now_ms)
        fast.append(facts, now_ms)
        newest = slow.segments[-1].newest
        assert newest == (fast.stage.max_timestamp, fast.stage.offset_of_max_timestamp)
        assert slow.segments[-1].first_timestamp == fast.stage.rolling_timestamp
    slow.close()
    fast.close()
    assert slow.files() == fast.segments


def test_roll_planner_continues_a_segment_with_batches() -> None:
    """Entries and timestamps of the segment count; bytes since the last entry start at 0."""
    stage = RollPlanner(
        100,
        offset_entries_max=5,
        time_entries_max=5,
        offset_count=4,
        time_count=2,
        last_time=50,
        max_timestamp=70,
        offset_of_max_timestamp=120,
        rolling_timestamp=40,
    )
    stage.set_limits(segment_bytes=2000, interval_bytes=99, roll_after_ms=1000)
    facts = BatchMetadata([(100, 130 + n, 130 + n, 60, 130 + n) for n in range(4)])
    # The second batch brings the fifth entry, and no more fit.
    assert (2, 200) == stage.plan(facts, 0, 800, 0)
    assert (struct.pack(">ii", 31, 900), struct.pack(">qi", 70, 20)) == stage.ready_entries()
    assert (2, 0) == stage.plan(facts, 2, 1000, 0)
    assert "offset_count=5, time_count=3" in repr(stage)


def test_roll_planner_many_rows_without_the_gil_give_the_same_plan() -> None:
    """Above the number of rows that releases the GIL, with an index entry for each row."""
    rules = StagingRules(2**31 - 1, 0, 2**62, 2**20)
    facts = facts_of([(61, 0, 0, number % 77, True) for number in range(9000)], 0)
    slow, fast = SlowStaging(rules, 0, NOW_MS), KernelStaging(rules, 0, NOW_MS)
    slow.append(facts, NOW_MS)
    fast.append(facts, NOW_MS)
    assert b"".join(slow.segments[0].offsets) == fast.segments[0][3]
    assert slow.segments[0].time_entries() == fast.segments[0][4]


def test_roll_planner_invalid_arguments_raise() -> None:
    """Rows outside the run, a negative interval, and a copy."""
    stage = RollPlanner(0, offset_entries_max=5, time_entries_max=5)
    facts = BatchMetadata([(100, 0, 0, 1, 0)])
    for first, size_bytes in ((-1, 0), (2, 0), (0, -1)):
        with pytest.raises(ValueError, match="bytes"):
            stage.plan(facts, first, size_bytes, 0)
    with pytest.raises(ValueError, match="interval_bytes"):
        stage.set_limits(segment_bytes=1, interval_bytes=-1, roll_after_ms=1)
    with pytest.raises(TypeError, match="copied"):
        stage.__reduce__()
