"""Looking up by time, against the plain truth: the first record by offset that is late enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Log,
    Record,
    TimestampOffset,
)
from tests.support import reference
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS


def truth(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or above a time, found by reading all."""
    late = (record for record in log.records() if record.timestamp_ms >= timestamp_ms)
    found = next(late, None)
    return None if found is None else (found.timestamp_ms, found.offset)


def lookup(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the log's answer."""
    found = log.offset_for_timestamp(timestamp_ms)
    return None if found is None else (found.timestamp_ms, found.offset)


def at(*deltas: int) -> list[Record]:
    """Return a record for each time after the start."""
    return [Record(value=b"%d" % delta, timestamp_ms=START_MS + delta) for delta in deltas]


def test_lookup_between_timestamps_finds_the_next(directory: Path) -> None:
    """Before, at, between, after; within a batch and over segments."""
    with manual_log(directory, index_interval_bytes=0) as log:
        log.append(at(10, 20, 30))
        log.append(at(40))
        log.roll()
        log.append(at(50, 60))
        for delta in range(65):
            assert truth(log, START_MS + delta) == lookup(log, START_MS + delta)
        assert log.offset_for_timestamp(START_MS + 61) is None
        assert TimestampOffset(START_MS + 30, 2, 0) == log.offset_for_timestamp(START_MS + 21)


def test_lookup_of_equal_timestamps_finds_the_first(directory: Path) -> None:
    """Also where the equal ones lie in several batches and segments, each with index entries."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for _time in range(3):
            for _batch in range(4):
                log.append(at(5, 5))
            log.roll()
        assert (START_MS + 5, 0) == lookup(log, START_MS + 5)
        assert (START_MS + 5, 0) == lookup(log, 0)


def test_lookup_with_falling_timestamps_finds_the_first_by_offset(directory: Path) -> None:
    """Time runs backwards: offset order decides, not the nearest time."""
    with manual_log(directory, index_interval_bytes=0, segment_bytes=400) as log:
        for delta in range(50, 0, -1):
            log.append(at(delta))
        for delta in range(55):
            assert truth(log, START_MS + delta) == lookup(log, START_MS + delta)


def test_lookup_where_a_header_claims_too_much_goes_on(directory: Path) -> None:
    """A producer's largest timestamp may be larger than any of its records'."""
    with manual_log(directory, index_interval_bytes=0) as log:
        log.append(at(10))
        batch = bytes(next(log.batches()).data)
        _verdict, header = reference.parse_header(batch)
        assert header is not None
        lying = reference.encode_batch(replace(header, max_timestamp=START_MS + 1000), batch[61:])
        log.truncate_to(0)
        log.append_batches(lying, assign_offsets=False)
        log.append(at(20))
        log.roll()
        log.append(at(30))
        for delta in (0, 10, 11, 20, 21, 30):
            assert truth(log, START_MS + delta) == lookup(log, START_MS + delta)
        assert log.offset_for_timestamp(START_MS + 31) is None


def test_lookup_honours_the_log_start_offset(directory: Path) -> None:
    """Records that were deleted are not found, though their segment is still there."""
    with manual_log(directory) as log:
        log.append(at(10, 20, 30))
        log.append(at(5, 15))
        log.delete_records(2)
        assert (START_MS + 30, 2) == lookup(log, START_MS)
        log.delete_records(3)
        assert (START_MS + 5, 3) == lookup(log, START_MS)
        assert log.offset_for_timestamp(START_MS + 20) is None


def test_lookup_of_the_ends_gives_offsets_without_time(directory: Path) -> None:
    """Earliest and latest with their leader epochs, as ListOffsets has them."""
    with manual_log(directory) as log:
        assert TimestampOffset(-1, 0, None) == log.offset_for_timestamp(EARLIEST_TIMESTAMP)
        assert TimestampOffset(-1, 0, None) == log.offset_for_timestamp(LATEST_TIMESTAMP)
        log.append(at(10, 20, 30))
        log.delete_records(1)
        log.append(at(40))
        log.truncate_to(3)
        log.append(at(40))
        assert TimestampOffset(-1, 1, 0) == log.offset_for_timestamp(EARLIEST_TIMESTAMP)
        assert TimestampOffset(-1, 4, 1) == log.offset_for_timestamp(LATEST_TIMESTAMP)
    with manual_log(directory, read_only=True) as log:
        assert TimestampOffset(-1, 1, 0) == log.offset_for_timestamp(EARLIEST_TIMESTAMP)
        assert TimestampOffset(-1, 4, 1) == log.offset_for_timestamp(LATEST_TIMESTAMP)


def test_lookup_of_the_largest_finds_the_first_that_has_it(directory: Path) -> None:
    """Over segments, whichever of them holds it; nothing in a log without timestamps."""
    with manual_log(directory, index_interval_bytes=0) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
        log.append(at(10, 40, 20))
        log.roll()
        log.append(at(30, 40))
        assert (START_MS + 40, 1) == lookup(log, MAX_TIMESTAMP)
        log.append(at(41))
        assert (START_MS + 41, 5) == lookup(log, MAX_TIMESTAMP)


def test_lookup_of_the_largest_passes_over_times_that_no_record_has(directory: Path) -> None:
    """A batch that a compaction left empty keeps its time, in this segment or another."""
    empty = reference.Header(base_offset=4, last_offset_delta=1, max_timestamp=START_MS + 90)
    behind = reference.Header(base_offset=7, max_timestamp=START_MS + 80)
    with manual_log(directory) as log:
        log.append(at(10, 40, 20, 40))
        log.append_batches(reference.encode_batch(empty), assign_offsets=False)
        assert (START_MS + 40, 1) == lookup(log, MAX_TIMESTAMP)
        log.roll()
        log.append_batches(reference.encode_batch(behind), assign_offsets=False)
        assert (START_MS + 40, 1) == lookup(log, MAX_TIMESTAMP)
        log.delete_records(2)
        assert (START_MS + 40, 3) == lookup(log, MAX_TIMESTAMP)
        log.delete_records(4)
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
        assert log.offset_for_timestamp(0) is None


def test_lookup_without_any_timestamp_finds_nothing(directory: Path) -> None:
    """Records of -1 are never late enough, not even for the time zero."""
    with manual_log(directory) as log:
        log.append([Record(value=b"x")], timestamp_ms=-1)
        log.roll()
        log.append([Record(value=b"y")], timestamp_ms=-1)
        assert log.offset_for_timestamp(0) is None
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None


@pytest.mark.parametrize("timestamp_ms", [-4, -5, -(2**63)])
def test_lookup_of_a_time_that_is_none_is_refused(directory: Path, timestamp_ms: int) -> None:
    """Kafka's names for remote storage mean nothing here."""
    with manual_log(directory) as log, pytest.raises(ValueError, match="timestamp must be >= 0"):
        log.offset_for_timestamp(timestamp_ms)


def test_lookup_gives_the_leader_epoch_of_the_batch(directory: Path) -> None:
    """As a broker answers it."""
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n6 0\n")
    with manual_log(directory) as log:
        log.append(at(10))
        assert TimestampOffset(START_MS + 10, 0, 6) == log.offset_for_timestamp(START_MS)


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=30),
    interval=st.sampled_from([0, 150, 4096]),
    segment_bytes=st.sampled_from([300, 1000, 1 << 20]),
    start=st.integers(0, 20),
)
def test_lookup_equals_the_truth(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    interval: int,
    segment_bytes: int,
    start: int,
) -> None:
    """Any timestamps in any order, any indexes, any log start; before and after a reopening."""
    directory = tmp_path_factory.mktemp("time") / "orders-0"
    settings: dict[str, Any] = {"index_interval_bytes": interval, "segment_bytes": segment_bytes}
    with manual_log(directory, **settings) as log:
        for batch in batches:
            log.append([Record(value=b"x", timestamp_ms=time) for time in batch])
        log.delete_records(min(start, log.log_end_offset))
        expected = [truth(log, time) for time in range(14)]
        assert expected == [lookup(log, time) for time in range(14)]
    with manual_log(directory, read_only=True, **settings) as log:
        assert expected == [lookup(log, time) for time in range(14)]


def test_lookup_of_the_latest_leaves_out_what_lies_below_the_log_start(directory: Path) -> None:
    """Batches below it, and the records below it of the batch that it lies in."""
    with manual_log(directory) as log:
        log.append(at(90, 10))
        log.append(at(80, 20, 30))
        log.append(at(25))
        for start, latest in ((0, (90, 0)), (1, (80, 2)), (3, (30, 4)), (5, (25, 5))):
            log.delete_records(start)
            assert (START_MS + latest[0], latest[1]) == lookup(log, MAX_TIMESTAMP)
        log.delete_records(6)
        assert lookup(log, MAX_TIMESTAMP) is None
