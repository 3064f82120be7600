"""Splits of a plan: each offset once, in tasks of about the requested size."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import LogConfig, Record
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import (
    EVERYTHING,
    FilterSet,
    LogSplit,
    QuerySnapshot,
    resolve_bounds,
    split_and_pack,
    splitting,
)
from tests.support.planned import regular_snapshot, snapshot_of

BATCH = ReadOptions.parse({"path": "/data"})


def plan(snapshot: QuerySnapshot, split_bytes: int, **limits: int) -> list[LogSplit]:
    """Return the tasks for all records of a snapshot."""
    bounds = resolve_bounds(snapshot, BATCH)
    return split_and_pack(
        snapshot,
        bounds,
        split_bytes=split_bytes,
        min_partitions=limits.get("min_partitions"),
        max_records_per_partition=limits.get("max_records"),
    )


def offsets_of(splits: list[LogSplit]) -> dict[tuple[str, int], list[int]]:
    """Return the sorted offsets that the tasks read, by partition."""
    found: dict[tuple[str, int], list[int]] = {}
    for split in splits:
        for each in split.ranges:
            found.setdefault((each.topic, each.partition), []).extend(range(each.start, each.end))
    return {name: sorted(offsets) for name, offsets in found.items()}


LOGS = st.lists(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3000)), max_size=6),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(
    LOGS,
    st.integers(1, 6000),
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 50),
    st.sampled_from([1, 3, 1000]),
)
def test_tasks_of_any_logs_read_each_offset_once(
    logs: list[list[tuple[int, int]]],
    split_bytes: int,
    min_partitions: int | None,
    max_records: int | None,
    chunk_rows: int,
) -> None:
    """Both hints are followed, as long as there are enough offsets."""
    rows, segments = [], []
    for number, spans in enumerate(logs):
        base, of_log = number, []
        for span, size in spans:
            of_log.append((base, size))
            base += span
        rows.append(("t", number, number, base))
        segments.append(of_log)
    snapshot = snapshot_of(rows, segments=segments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "CHUNK_ROWS", chunk_rows)
        splits = split_and_pack(
            snapshot,
            resolve_bounds(snapshot, BATCH),
            split_bytes=split_bytes,
            min_partitions=min_partitions,
            max_records_per_partition=max_records,
        )
    expected = {("t", number): list(range(start, end)) for _, number, start, end in rows}
    assert {name: each for name, each in expected.items() if each} == offsets_of(splits)
    offset_count = sum(end - start for *_, start, end in rows)
    assert len(splits) >= min(min_partitions or 0, offset_count)
    if max_records is not None:
        assert all(split.offset_count <= max_records for split in splits)
    sizes = [split.size_bytes for split in splits]
    assert sorted(sizes, reverse=True) == sizes


def test_tasks_of_small_logs_are_packed_across_partitions() -> None:
    """A hundred small partitions become ten tasks."""
    snapshot = snapshot_of([("t", number, 0, 10) for number in range(100)])
    splits = plan(snapshot, 100)
    assert [100] * 10 == [split.size_bytes for split in splits]
    assert [10] * 10 == [len(split.ranges) for split in splits]


def test_tasks_join_neighbouring_segments_to_one_range() -> None:
    """A task opens a log once, and reads its segments in sequence."""
    segments = [[(0, 100), (10, 100), (20, 100), (30, 100)]]
    splits = plan(snapshot_of([("t", 0, 0, 40)], segments=segments), 200)
    ranges = [[(each.start, each.end) for each in split.ranges] for split in splits]
    assert [[(0, 20)], [(20, 40)]] == ranges


def test_tasks_of_large_segments_begin_at_batches(tmp_path: Path) -> None:
    """A segment larger than a task is split at batches of its index."""
    directory = tmp_path / "a-0"
    with kafkalog.open_log(directory, config=LogConfig(index_interval_bytes=1024)) as log:
        for _ in range(300):
            log.append([Record(value=b"v" * 100)] * 10)
    options = ReadOptions.parse({"path": str(directory)})
    snapshot = QuerySnapshot.take(options)
    size = int(snapshot.sizes.sum())
    splits = split_and_pack(snapshot, resolve_bounds(snapshot, options), split_bytes=size // 5)
    ranges = sorted((each.start, each.end) for split in splits for each in split.ranges)
    assert 5 == len(ranges)
    assert all(left[1] == right[0] and left[1] % 10 == 0 for left, right in pairwise(ranges))
    assert max(split.size_bytes for split in splits) < size // 5 * 1.1


def test_tasks_with_filters_leave_out_other_ranges() -> None:
    """Offsets by range, times by segment, partitions in the snapshot."""
    segments = [[(0, 100), (10, 100), (20, 100), (30, 100)]]
    snapshot = snapshot_of([("t", 0, 0, 40)], segments=segments)
    bounds = resolve_bounds(snapshot, BATCH)
    filters = FilterSet.of([("offset", ">=", 15), ("offset", "<", 22)])
    splits = split_and_pack(snapshot, bounds, split_bytes=1000, filters=filters)
    assert {("t", 0): list(range(15, 22))} == offsets_of(splits)
    assert 70 == splits[0].size_bytes
    timed = QuerySnapshot(
        **{
            **{name: getattr(snapshot, name) for name in snapshot.__dataclass_fields__},
            "largest_timestamps": snapshot.base_offsets * 100,
        }
    )
    filters = EVERYTHING.intersect(FilterSet.of([("timestamp", ">", 1000)]))
    splits = split_and_pack(timed, bounds, split_bytes=1000, filters=filters)
    assert {("t", 0): list(range(20, 40))} == offsets_of(splits)
    nothing = FilterSet.of([("offset", "==", 99)])
    assert [] == split_and_pack(snapshot, bounds, split_bytes=1000, filters=nothing)


def test_pickled_task_is_small() -> None:
    """Spark's planning may have a hundred thousand tasks."""
    split = plan(snapshot_of([("t", 0, 0, 10)]), 100)[0]
    data = pickle.dumps(split)
    assert split == pickle.loads(data)
    assert len(data) < 300


def test_scan_filters_are_those_not_applied_by_planning() -> None:
    """Filters can be pickled."""
    terms = [("topic", "in", ["a"]), ("partition", "==", 1), ("key", "==", b"k")]
    filters = FilterSet.of([*terms, ("topic", "startswith", "a")])
    assert filters == pickle.loads(pickle.dumps(filters))
    assert [("key", "==", b"k")] == filters.scan_filters()
    assert [True, False, False] == [
        filters.matches_partition(*name) for name in (("a", 1), ("a", 2), ("b", 1))
    ]


def test_plan_of_many_segments_uses_little_memory() -> None:
    """Per segment 16 bytes of columns, 19 of tasks, and below 75 at the peak."""
    count = 160_000
    tracemalloc.start()
    try:
        snapshot = regular_snapshot(count // 100, count, 2**30)
        columns, _ = tracemalloc.get_traced_memory()
        splits = plan(snapshot, 16 * 2**30)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count // 16 <= len(splits) <= count // 14
    assert columns < 18 * count
    assert held < 40 * count
    assert peak < 75 * count
