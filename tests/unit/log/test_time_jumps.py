"""Tests of scans of a time range from a position of the time index: no row is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import Log, Record
from kafkalog.log.log import partition_of
from kafkalog.log.scan.batch_slices import BatchSlice, read_batch_slices
from kafkalog.log.scan.conditions import Integers
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log
from tests.support.scanning import rows_of_scan, slow_rows

COLUMNS = ("offset", "timestamp")
SMALL: dict[str, Any] = {"index_interval_bytes": 100, "batch_bytes": 250}


def append(log: Log, times: Sequence[int]) -> None:
    """Append a record for each time."""
    log.append([Record(value=b"v" * 30, timestamp_ms=time) for time in times])


def batch_slices(log: Log, first: int, last: int = 2**62) -> Iterator[BatchSlice]:
    """Return the batch slices that a scan of a time range reads."""
    snapshot = partition_of(log).view.snapshot()
    return read_batch_slices(
        snapshot,
        snapshot.start_offset,
        snapshot.end_offset,
        on_corrupt="raise",
        timestamps=Integers(first, last),
    )


def first_position(log: Log, first: int) -> int:
    """Return the position at which a scan from a time on begins."""
    found = next(batch_slices(log, first))
    return found.origin + found.start_position


def time_index(directory: Path) -> Path:
    """Return the time index of the first segment."""
    return log_file(directory).with_suffix(".timeindex")


@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    bounds=st.lists(st.tuples(st.integers(0, 65), st.integers(0, 65)), min_size=1, max_size=4),
    compression=st.sampled_from(["producer", "gzip"]),
    segment_bytes=st.sampled_from([600, 1 << 20]),
    spoiling=st.sampled_from(["nothing", "missing", "flipped", "cut", "zeros"]),
    place=st.integers(0, 2**20),
    read_only=st.booleans(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_scan_of_a_time_range_has_the_right_rows_in_any_order(
    times: list[int],
    bounds: list[tuple[int, int]],
    compression: str,
    segment_bytes: int,
    spoiling: str,
    place: int,
    read_only: bool,
    tmp_path: Path,
) -> None:
    """With any damage of the time index, in the active segment and in sealed ones."""
    directory = tmp_path / f"{len(list(tmp_path.iterdir()))}-0"
    options = SMALL | {"segment_bytes": segment_bytes, "compression_type": compression}
    with manual_log(directory, **options) as log:
        for first in range(0, len(times), 7):
            append(log, times[first : first + 7])
        check_ranges(log, bounds)
    spoil(time_index(directory), spoiling, place)
    with manual_log(directory, read_only=read_only, **options) as log:
        check_ranges(log, bounds)


def check_ranges(log: Log, bounds: list[tuple[int, int]]) -> None:
    """Compare scans of time ranges with a check of every record."""
    for first, last in bounds:
        filters = [("timestamp", ">=", first), ("timestamp", "<", last)]
        inside = partial(is_inside, first, last)
        expected = slow_rows(log, COLUMNS, condition=inside)
        assert expected == rows_of_scan(log.scan(columns=COLUMNS, filters=filters))


def is_inside(first: int, last: int, record: Record) -> bool:
    """Return whether a record's time is in the range."""
    return first <= record.timestamp_ms < last


def spoil(path: Path, how: str, place: int) -> None:
    """Damage an index."""
    size = path.stat().st_size
    if how == "missing":
        path.unlink()
    elif how == "flipped" and size:
        flip(path, place % size, 1 << place % 8)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: place % (size + 1)])
    elif how == "zeros":
        path.write_bytes(bytes(size))


@pytest.mark.parametrize("is_sealed", [False, True])
def test_scan_from_a_time_begins_near_its_first_record(tmp_path: Path, is_sealed: bool) -> None:
    """Not at the base of the segment; a time after the last record needs almost no read."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **SMALL) as log:
        for first in range(0, 400, 4):
            append(log, range(first, first + 4))
        if is_sealed:
            log.roll()
        positions = batch_positions(log_file(directory))
        assert 101 == len(positions)
        assert 0 == first_position(log, 0) == first_position(log, 1)
        # Batch 50 has the time; the index entry below it is of one or two batches before.
        assert first_position(log, 200) in positions[48:51]
        assert first_position(log, 399) in positions[97:100]
        if is_sealed:
            assert [] == list(batch_slices(log, 400))
        else:
            assert first_position(log, 400) in positions[97:100]


def test_scan_from_a_time_begins_before_an_early_outlier(tmp_path: Path) -> None:
    """Older records after the outlier do not matter: it is the first one at or above the time."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **SMALL) as log:
        times = [*range(100), 1000, *range(100, 200)]
        for first in range(0, len(times), 4):
            append(log, times[first : first + 4])
        positions = batch_positions(log_file(directory))
        for time in (150, 199, 1000):
            assert first_position(log, time) in positions[22:26]
        # The index has no entry after the last one, so the scan begins there.
        assert first_position(log, 1001) in positions[22:26]


def test_scan_from_a_time_skips_earlier_damage(tmp_path: Path) -> None:
    """As in a segment that it skips; a scan from an earlier time reports it."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **SMALL) as log:
        for first in range(0, 40, 4):
            append(log, range(first, first + 4))
    flip(log_file(directory), batch_positions(log_file(directory))[2] + 70)
    with manual_log(directory, read_only=True, **SMALL) as log:
        rows, error = rows_of_scan(log.scan(columns=COLUMNS, filters=[("timestamp", ">", 30)]))
        assert ([(n, n) for n in range(31, 40)], None) == (rows, error)
        rows, error = rows_of_scan(log.scan(columns=COLUMNS, filters=[("timestamp", ">", 1)]))
        assert [(n, n) for n in range(2, 8)] == rows
        assert error is not None


def test_time_index_entry_after_the_snapshot_is_not_used(tmp_path: Path) -> None:
    """The snapshot ends before it; the entry does not mean that the index is damaged."""
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for first in range(0, 40, 4):
            append(log, range(first, first + 4))
        snapshot = partition_of(log).view.snapshot()
        bound = snapshot.read_bound(0)
        for first in range(40, 80, 4):
            append(log, range(first, first + 4))
        segment = log.segments()[0]
        start = segment.start_for_time(75, bound)
        assert 0 < start < bound.end
        assert start < segment.start_for_time(75, partition_of(log).view.snapshot().read_bound(0))
        assert not segment.time_index.was_rebuilt
