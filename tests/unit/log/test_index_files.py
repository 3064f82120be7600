"""Bytes of `.index` and `.timeindex` during appends, at a roll and at the close."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import Log, LogConfig, Record
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT, SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from tests.support.logs import (
    SMALL_INDEX_BYTES,
    append_sized,
    expected_indexes,
    index_files,
    manual_log,
    numbered,
    sized_record,
)
from tests.support.manual_time import START_MS


def offset_entries(data: bytes) -> list[tuple[int, int]]:
    """Return (relative offset, position) of every slot of an offset index file."""
    return list(struct.iter_unpack(">ii", data))


def time_entries(data: bytes) -> list[tuple[int, int]]:
    """Return (timestamp, relative offset) of every slot of a time index file."""
    return list(struct.iter_unpack(">qi", data))


def entries_in_use(log: Log) -> list[tuple[int, int]]:
    """Return the entries of the active segment's offset index that look-ups use."""
    view = log.segments()[-1].offset_index.view
    return [view.entry(slot) for slot in range(len(view))]


def test_index_first_append_adds_no_entry(directory: Path) -> None:
    """However large it is: no bytes precede it in the segment."""
    with manual_log(directory, index_interval_bytes=1) as log:
        append_sized(log, 5000)
        assert [] == entries_in_use(log)
    assert b"" == index_files(directory, 0)[0]


def test_index_entry_is_added_after_more_bytes_than_the_interval(directory: Path) -> None:
    """Exactly the interval is not enough; the entry has last offset and start position."""
    with manual_log(directory, index_interval_bytes=200) as log:
        append_sized(log, 200)
        append_sized(log, 100)
        assert [] == entries_in_use(log)
        append_sized(log, 100)
        assert [(2, 300)] == entries_in_use(log)
        append_sized(log, 101)
        append_sized(log, 100)
        assert [(2, 300), (4, 501)] == entries_in_use(log)


def test_index_interval_zero_indexes_every_batch_but_the_first(directory: Path) -> None:
    """The first batch has zero bytes before it, which is not more than zero."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for _number in range(4):
            append_sized(log, 100)
    assert [(1, 100), (2, 200), (3, 300)] == offset_entries(index_files(directory, 0)[0])


def test_index_entry_has_the_last_offset_of_its_batch(directory: Path) -> None:
    """In a batch of several records all offsets are at or below the entry."""
    with manual_log(directory, index_interval_bytes=0) as log:
        append_sized(log, 100)
        log.append([Record(value=b"a"), Record(value=b"b"), Record(value=b"c")])
    assert [(3, 100)] == offset_entries(index_files(directory, 0)[0])


def test_index_entries_are_relative_to_the_base_offset(directory: Path) -> None:
    """A segment that begins at 10,000,000,000 has entries that begin near zero."""
    base = 10_000_000_000
    with manual_log(directory, index_interval_bytes=0) as log:
        log.truncate_fully_and_start_at(base)
        for number in range(3):
            append_sized(log, 100, START_MS + number)
    offsets, times = index_files(directory, base)
    assert [(1, 100), (2, 200)] == offset_entries(offsets)
    assert [(START_MS + 1, 1), (START_MS + 2, 2)] == time_entries(times)


def test_time_index_has_rising_times_with_their_first_offset(directory: Path) -> None:
    """Falling and equal timestamps add nothing: an entry has the largest so far."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for delta in (5, 5, 3, 9, 9, 1):
            append_sized(log, 100, START_MS + delta)
    assert [(START_MS + 5, 0), (START_MS + 9, 3)] == time_entries(index_files(directory, 0)[1])


def test_time_index_timestamp_zero_has_its_first_offset(directory: Path) -> None:
    """1970 is a valid time: the second batch with it is not larger than the first."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for _number in range(3):
            append_sized(log, 100, 0)
        found = log.offset_for_timestamp(0)
        assert found is not None
        assert 0 == found.offset
    assert [(0, 0)] == time_entries(index_files(directory, 0)[1])


def test_time_index_without_timestamps_is_empty(directory: Path) -> None:
    """-1 means that a record has no time."""
    with manual_log(directory, index_interval_bytes=0) as log:
        for _number in range(3):
            log.append([Record(value=bytes(50))], timestamp_ms=-1)
    offsets, times = index_files(directory, 0)
    assert 2 == len(offset_entries(offsets))
    assert b"" == times


@pytest.mark.parametrize("how", ["roll", "close"])
def test_time_index_gets_the_largest_timestamp_at_roll_and_close(directory: Path, how: str) -> None:
    """Also if no interval is full: retention reads the timestamp from there."""
    with manual_log(directory) as log:
        append_sized(log, 100, START_MS + 7)
        append_sized(log, 100, START_MS + 2)
        if how == "roll":
            log.roll()
            assert [(START_MS + 7, 0)] == time_entries(index_files(directory, 0)[1])
    assert [(START_MS + 7, 0)] == time_entries(index_files(directory, 0)[1])


def test_time_index_last_entry_is_not_repeated(directory: Path) -> None:
    """Neither at the close nor after reopenings, if the last entry has the timestamp."""
    for _time in range(3):
        with manual_log(directory, index_interval_bytes=0) as log:
            if log.log_end_offset == 0:
                append_sized(log, 100, START_MS)
                append_sized(log, 100, START_MS + 1)
        assert [(START_MS + 1, 1)] == time_entries(index_files(directory, 0)[1])


@pytest.mark.parametrize(
    ("index_bytes", "offset_size", "time_size"),
    [(67, 64, 60), (64, 64, 60), (63, 56, 60), (12, 8, 12), (4096, 4096, 4092), (11, 8, 0)],
)
def test_active_index_files_are_preallocated_to_whole_entries(
    directory: Path, index_bytes: int, offset_size: int, time_size: int
) -> None:
    """`segment.index.bytes` rounded down to entries of each index; the files are sparse."""
    with manual_log(directory, segment_index_bytes=index_bytes):
        offsets, times = index_files(directory, 0)
        assert (offset_size, time_size) == (len(offsets), len(times))
        assert not any(offsets + times)
    assert (b"", b"") == index_files(directory, 0)


def test_default_index_files_occupy_no_disk_space(directory: Path) -> None:
    """Each has ten megabytes, and at most 16 blocks exist."""
    with manual_log(directory, config=LogConfig()):
        files = SegmentFiles(directory, 0)
        assert 10485760 == files.offset_index.stat().st_size
        assert 10485756 == files.time_index.stat().st_size
        assert files.offset_index.stat().st_blocks <= 16


def test_roll_trims_index_files_and_preallocates_new_ones(directory: Path) -> None:
    """The files of the sealed segment have its entries and nothing else."""
    with manual_log(directory, index_interval_bytes=0, segment_index_bytes=67) as log:
        for number in range(3):
            append_sized(log, 100, START_MS + number)
        log.roll()
        assert (16, 24) == tuple(map(len, index_files(directory, 0)))
        assert (64, 60) == tuple(map(len, index_files(directory, 3)))


def test_reopened_segment_continues_its_index_files(directory: Path) -> None:
    """The entries are kept, space is preallocated again, and new entries follow."""
    with manual_log(directory, index_interval_bytes=0) as log:
        append_sized(log, 100, START_MS)
        append_sized(log, 100, START_MS + 1)
    before = index_files(directory, 0)
    with manual_log(directory, index_interval_bytes=0) as log:
        assert log.recovery_report.clean
        offsets, times = index_files(directory, 0)
        assert before == (offsets[: len(before[0])], times[: len(before[1])])
        assert SMALL_INDEX_BYTES == len(offsets)
        append_sized(log, 100, START_MS + 2)
        append_sized(log, 100, START_MS + 3)
    assert [(1, 100), (3, 300)] == offset_entries(index_files(directory, 0)[0])
    assert [(START_MS + 1, 1), (START_MS + 3, 3)] == time_entries(index_files(directory, 0)[1])


@settings(max_examples=60)
@given(
    batches=st.lists(st.tuples(st.integers(0, 500), st.integers(-1, 20)), min_size=1, max_size=40),
    interval=st.sampled_from([0, 1, 100, 333, 1000, 4096]),
    segment_bytes=st.sampled_from([1000, 3000, 1 << 20]),
)
def test_index_files_equal_those_of_kafkas_recovery(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[int, int]],
    interval: int,
    segment_bytes: int,
) -> None:
    """For any sizes and timestamps."""
    directory = tmp_path_factory.mktemp("index") / "orders-0"
    with manual_log(directory, index_interval_bytes=interval, segment_bytes=segment_bytes) as log:
        for size, timestamp_ms in batches:
            log.append([Record(value=bytes(size), timestamp_ms=timestamp_ms)], timestamp_ms=-1)
        bases = [segment.base_offset for segment in log.segments()]
    for base in bases:
        assert expected_indexes(directory, base, interval) == index_files(directory, base)


def test_index_of_one_append_has_an_entry_per_interval(
    directory: Path,
) -> None:
    """Batches of one call are indexed one by one, as a recovery does."""
    with manual_log(directory, index_interval_bytes=500, batch_bytes=200) as log:
        info = log.append([sized_record(150, START_MS + number) for number in range(100)])
        assert info.batch_count > 40
    assert expected_indexes(directory, 0, 500) == index_files(directory, 0)
    assert len(index_files(directory, 0)[0]) > 80


class WrittenFiles(PosixFileSystem):
    """The machine's disk; records the names of files that are opened for writing."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a file, and record its name."""
        if create or write:
            self.names.append(path.name)
        return super().open(path, create=create, write=write)

    def create_new(self, path: Path) -> FileHandle:
        """Create a file, and record its name."""
        self.names.append(path.name)
        return super().create_new(path)


@pytest.mark.parametrize("tail", [bytes(240), bytes(90_000) + b"\1"])
@pytest.mark.parametrize("number", [0, 1])
def test_recovery_writes_each_index_once(directory: Path, number: int, tail: bytes) -> None:
    """Also of the last segment. The report depends on all bytes of an index, to its very end."""
    with manual_log(directory, index_interval_bytes=100) as log:
        for first in range(0, 60, 5):
            log.append(numbered(first, 5))
            if first == 30:
                log.roll()
    (directory / CLEAN_SHUTDOWN_MARKER).unlink()
    (directory / RECOVERY_POINT_CHECKPOINT).unlink()
    base_offset = (0, 35)[number]
    index = SegmentFiles(directory, base_offset).offset_index
    index.write_bytes(index.read_bytes() + tail)
    files = WrittenFiles()
    with manual_log(directory, index_interval_bytes=100, filesystem=files) as log:
        written = [name for name in files.names if ".index" in name or ".timeindex" in name]
        assert 2 == log.recovery_report.scanned_segments
        assert ([index] if any(tail) else []) == list(log.recovery_report.rebuilt)
        expected = []
        for base, suffix in ((0, ".tmp"), (35, "")):
            present = SegmentFiles(directory, base)
            expected += [
                f"{path.name}{suffix}" for path in (present.offset_index, present.time_index)
            ]
        assert expected == written
    for base in (0, 35):
        assert expected_indexes(directory, base, 100) == index_files(directory, base)
