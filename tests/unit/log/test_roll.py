"""The end of a segment: each of Kafka's conditions at its exact boundary."""

from __future__ import annotations

import struct
from pathlib import Path

from kafkalog import Log, Record
from kafkalog.files.names import SegmentFiles
from tests.support.logs import append_sized, index_files, manual_log, numbered
from tests.support.manual_time import START_MS, ManualClock

HOUR_MS = 3_600_000
INT32_MAX = 2**31 - 1


def bases(log: Log) -> list[int]:
    """Return the base offsets of all segments."""
    return [segment.base_offset for segment in log.segments()]


# -- size --------------------------------------------------------------------------------------


def test_roll_by_size_exact_fit_does_not_roll(directory: Path) -> None:
    """A segment may be filled to its last byte; one more begins the next."""
    with manual_log(directory, segment_bytes=300) as log:
        append_sized(log, 100)
        append_sized(log, 100)
        append_sized(log, 100)
        assert [0] == bases(log)
        append_sized(log, 80)
        assert [0, 3] == bases(log)


def test_roll_by_size_one_byte_too_many_rolls(directory: Path) -> None:
    """299 bytes have space for two batches of 100, not for a third."""
    with manual_log(directory, segment_bytes=299) as log:
        append_sized(log, 100)
        append_sized(log, 100)
        append_sized(log, 100)
        assert [0, 2] == bases(log)
        assert [200, 100] == [segment.size_bytes for segment in log.segments()]


def test_roll_within_one_append_keeps_offsets_and_records(directory: Path) -> None:
    """An append of many batches fills as many segments as it needs."""
    with manual_log(directory, segment_bytes=500, batch_bytes=100) as log:
        log.append(numbered(0, 200))
        assert len(bases(log)) > 5
        assert [b"v%d" % number for number in range(200)] == [r.value for r in log.records()]
        for segment in log.segments():
            assert segment.size_bytes <= 500
    names = sorted(path.name for path in directory.glob("*.log"))
    with manual_log(directory) as log:
        assert names == [segment.path.name for segment in log.segments()]
        assert list(range(200)) == [record.offset for record in log.records()]


# -- time --------------------------------------------------------------------------------------


def test_roll_by_time_counts_from_the_first_timestamp(directory: Path) -> None:
    """Exactly `segment.ms` later does not roll, one more does; the clock does not matter."""
    clock = ManualClock()
    with manual_log(directory, clock=clock, segment_ms=HOUR_MS) as log:
        append_sized(log, 100, START_MS)
        clock.advance(10 * HOUR_MS)
        append_sized(log, 100, START_MS + HOUR_MS)
        assert [0] == bases(log)
        append_sized(log, 100, START_MS + HOUR_MS + 1)
        assert [0, 2] == bases(log)


def test_roll_by_time_older_timestamp_does_not_roll(directory: Path) -> None:
    """A timestamp below the first one adds no age."""
    with manual_log(directory, segment_ms=HOUR_MS) as log:
        append_sized(log, 100, START_MS)
        append_sized(log, 100, START_MS - 5 * HOUR_MS)
        append_sized(log, 100, START_MS + HOUR_MS)
        assert [0] == bases(log)


def test_roll_by_time_without_first_timestamp_uses_the_clock(directory: Path) -> None:
    """The segment is timed by the clock for all its life."""
    clock = ManualClock()
    with manual_log(directory, clock=clock, segment_ms=HOUR_MS) as log:
        log.append([Record(value=b"no time")], timestamp_ms=-1)
        append_sized(log, 100, START_MS + 100 * HOUR_MS)
        clock.advance(HOUR_MS)
        append_sized(log, 100, START_MS + 100 * HOUR_MS)
        assert [0] == bases(log)
        clock.advance(1)
        append_sized(log, 100, START_MS)
        assert [0, 3] == bases(log)


def test_roll_by_time_survives_reopening(directory: Path) -> None:
    """The first timestamp is read from the file again, not lost with the process."""
    with manual_log(directory, segment_ms=HOUR_MS) as log:
        append_sized(log, 100, START_MS)
        append_sized(log, 100, START_MS + HOUR_MS)
    with manual_log(directory, segment_ms=HOUR_MS) as log:
        append_sized(log, 100, START_MS + HOUR_MS)
        assert [0] == bases(log)
        append_sized(log, 100, START_MS + HOUR_MS + 1)
        assert [0, 3] == bases(log)


def test_roll_by_time_jitter_shortens_the_time(directory: Path) -> None:
    """The segment's random jitter is subtracted; the boundary moves by exactly that."""
    with manual_log(directory, segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS // 2) as log:
        jitter_ms = log.segments()[0].roll_jitter_ms
        assert 0 <= jitter_ms < HOUR_MS // 2
        append_sized(log, 100, START_MS)
        append_sized(log, 100, START_MS + HOUR_MS - jitter_ms)
        assert [0] == bases(log)
        append_sized(log, 100, START_MS + HOUR_MS - jitter_ms + 1)
        assert [0, 2] == bases(log)


def test_roll_by_time_of_compacted_log_uses_the_compaction_lag(directory: Path) -> None:
    """`max.compaction.lag.ms` limits `segment.ms` if the policy has `compact`."""
    with manual_log(
        directory, segment_ms=HOUR_MS, max_compaction_lag_ms=1000, cleanup_policy=("compact",)
    ) as log:
        for timestamp_ms, expected in ((0, [0]), (1000, [0]), (1001, [0, 2])):
            log.append([Record(key=b"k", timestamp_ms=START_MS + timestamp_ms)])
            assert expected == bases(log)


# -- full index --------------------------------------------------------------------------------


def test_roll_by_full_offset_index(directory: Path) -> None:
    """Eight entries fit in 67 bytes; the ninth entry rolls instead."""
    with manual_log(directory, index_interval_bytes=0, segment_index_bytes=67) as log:
        for _number in range(9):
            append_sized(log, 100, START_MS)
        assert [0] == bases(log)
        append_sized(log, 100, START_MS)
        assert [0, 9] == bases(log)
    assert 64 == len(index_files(directory, 0)[0])


def test_roll_by_full_time_index_leaves_the_last_slot(directory: Path) -> None:
    """Appends fill four of five slots; the fifth gets the entry of the roll."""
    with manual_log(directory, index_interval_bytes=150, segment_index_bytes=67) as log:
        # An entry for every second batch, and a larger timestamp for each batch.
        for number in range(9):
            append_sized(log, 100, START_MS + number)
        assert [0] == bases(log)
        assert 4 == len(log.segments()[0].time_index.view)
        append_sized(log, 100, START_MS + 100)
        assert [0, 9] == bases(log)
    offsets, times = index_files(directory, 0)
    assert 32 == len(offsets)
    assert 48 == len(times)


def test_roll_by_full_time_index_writes_the_reserved_slot(directory: Path) -> None:
    """A time index of one slot is full from the start, and the roll writes that slot."""
    with manual_log(directory, segment_index_bytes=12) as log:
        for number in range(3):
            append_sized(log, 100, START_MS + number)
        assert [0, 1, 2] == bases(log)
    for base in range(3):
        assert (START_MS + base, 0) == struct.unpack(">qi", index_files(directory, base)[1])


def test_roll_with_too_small_index_gives_each_batch_a_segment(directory: Path) -> None:
    """`segment.index.bytes` of 4 has no space for an entry; the log still works."""
    with manual_log(directory, index_interval_bytes=0, segment_index_bytes=4) as log:
        for _number in range(3):
            append_sized(log, 100)
        assert [0, 1, 2] == bases(log)
        assert [0, 1, 2] == [record.offset for record in log.records()]


# -- offsets -----------------------------------------------------------------------------------


def test_roll_by_offset_largest_relative_offset_does_not_roll(directory: Path) -> None:
    """2^31-1 above the base fits the index; one more begins a segment."""
    with manual_log(directory) as log:
        append_sized(log, 100)
        log.append_batches(moved(log, INT32_MAX), assign_offsets=False)
        assert [0] == bases(log)
        append_sized(log, 100)
        assert [0, INT32_MAX + 1] == bases(log)
        assert [0, INT32_MAX, INT32_MAX + 1] == [record.offset for record in log.records()]
    with manual_log(directory) as log:
        assert INT32_MAX + 2 == log.log_end_offset


def test_roll_by_offset_batch_beyond_the_index_rolls_first(directory: Path) -> None:
    """A gap of 2^31 offsets is kept."""
    with manual_log(directory) as log:
        append_sized(log, 100)
        log.append_batches(moved(log, INT32_MAX + 1), assign_offsets=False)
        assert [0, INT32_MAX + 1] == bases(log)


def moved(log: Log, offset: int) -> bytes:
    """Return the first batch of a log with another base offset."""
    batch = bytes(next(log.batches()).data)
    return offset.to_bytes(8, "big") + batch[8:]


# -- by a call ---------------------------------------------------------------------------------


def test_roll_call_begins_a_segment_at_the_log_end(directory: Path) -> None:
    """The sealed segment takes no more; the new one is empty and named by the next offset."""
    with manual_log(directory) as log:
        log.append(numbered(0, 5))
        segment = log.roll()
        assert 5 == segment.base_offset
        assert (True, False) == (segment.is_active, log.segments()[0].is_active)
        assert 0 == SegmentFiles(directory, 5).log.stat().st_size


def test_roll_call_of_an_empty_segment_changes_nothing(directory: Path) -> None:
    """Two rolls in a row create one segment."""
    with manual_log(directory) as log:
        assert log.segments()[0] is log.roll()
        log.append(numbered(0, 1))
        assert log.roll() is log.roll()
        assert [0, 1] == bases(log)


def test_roll_of_a_preallocated_segment_cuts_its_tail(directory: Path) -> None:
    """With `preallocate` an active file has its full size, a sealed one has its bytes."""
    with manual_log(directory, preallocate=True, segment_bytes=4096) as log:
        append_sized(log, 100)
        path = SegmentFiles(directory, 0).log
        assert 4096 == path.stat().st_size
        log.roll()
        assert 100 == path.stat().st_size
        assert 4096 == SegmentFiles(directory, 1).log.stat().st_size
    assert 0 == SegmentFiles(directory, 1).log.stat().st_size
