"""Tests of look-ups by time: the first record by offset at or above the time."""

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


def test_time_look_up_finds_the_next_timestamp(directory: Path) -> None:
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


def test_time_look_up_of_equal_timestamps_finds_the_first(directory: Path) -> None:
    """Also over several batches and segments, each with index entries."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for _time in range(3):
            for _batch in range(4):
                log.append(at(5, 5))
            log.roll()
        assert (START_MS + 5, 0) == lookup(log, START_MS + 5)
        assert (START_MS + 5, 0) == lookup(log, 0)


def test_time_look_up_with_falling_timestamps_finds_the_first_offset(directory: Path) -> None:
    """Offset order decides, not the nearest time."""
    with manual_log(directory, index_interval_bytes=0, segment_bytes=400) as log:
        for delta in range(50, 0, -1):
            log.append(at(delta))
        for delta in range(55):
            assert truth(log, START_MS + delta) == lookup(log, START_MS + delta)


def test_time_look_up_with_too_large_max_timestamp_continues(directory: Path) -> None:
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


def test_time_look_up_begins_at_the_log_start(directory: Path) -> None:
    """Deleted records are not found, although their segment still exists."""
    with manual_log(directory) as log:
        log.append(at(10, 20, 30))
        log.append(at(5, 15))
        log.delete_records(2)
        assert (START_MS + 30, 2) == lookup(log, START_MS)
        log.delete_records(3)
        assert (START_MS + 5, 3) == lookup(log, START_MS)
        assert log.offset_for_timestamp(START_MS + 20) is None


def test_look_up_of_earliest_and_latest_has_no_timestamp(directory: Path) -> None:
    """With their leader epochs, as in ListOffsets."""
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


def test_look_up_of_the_largest_time_finds_its_first_record(directory: Path) -> None:
    """In any segment; a log without timestamps has none."""
    with manual_log(directory, index_interval_bytes=0) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
        log.append(at(10, 40, 20))
        log.roll()
        log.append(at(30, 40))
        assert (START_MS + 40, 1) == lookup(log, MAX_TIMESTAMP)
        log.append(at(41))
        assert (START_MS + 41, 5) == lookup(log, MAX_TIMESTAMP)


def test_look_up_of_the_largest_time_ignores_emptied_batches(directory: Path) -> None:
    """A batch that compaction emptied keeps its time, in this segment or another."""
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


def test_time_look_up_without_timestamps_finds_nothing(directory: Path) -> None:
    """A record with -1 is below every time, also below 0."""
    with manual_log(directory) as log:
        log.append([Record(value=b"x")], timestamp_ms=-1)
        log.roll()
        log.append([Record(value=b"y")], timestamp_ms=-1)
        assert log.offset_for_timestamp(0) is None
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None


@pytest.mark.parametrize("timestamp_ms", [-4, -5, -(2**63)])
def test_time_look_up_of_invalid_time_is_refused(directory: Path, timestamp_ms: int) -> None:
    """Kafka's values for remote storage have no meaning here."""
    with manual_log(directory) as log, pytest.raises(ValueError, match="timestamp must be >= 0"):
        log.offset_for_timestamp(timestamp_ms)


def test_time_look_up_returns_the_leader_epoch_of_the_batch(directory: Path) -> None:
    """As a broker does."""
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
def test_time_look_up_equals_a_read_of_all_records(
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


def test_look_up_of_the_largest_time_begins_at_the_log_start(directory: Path) -> None:
    """It ignores batches below, and earlier records of the batch with the log start."""
    with manual_log(directory) as log:
        log.append(at(90, 10))
        log.append(at(80, 20, 30))
        log.append(at(25))
        for start, latest in ((0, (90, 0)), (1, (80, 2)), (3, (30, 4)), (5, (25, 5))):
            log.delete_records(start)
            assert (START_MS + latest[0], latest[1]) == lookup(log, MAX_TIMESTAMP)
        log.delete_records(6)
        assert lookup(log, MAX_TIMESTAMP) is None
