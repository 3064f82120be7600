"""A log on a disk without mappings equals a mapped one, and never reads a whole file.

Files that other machines see are read without mappings: a mapped file that is cut kills the
process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import Log, LogConfig, open_log
from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.cleaner.segment_runs import read_runs
from kafkalog.errors import CorruptRecordError
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log import batch_walk
from kafkalog.log.conversion.source import sources
from kafkalog.log.log import partition_of
from tests.support.compacted_logs import fill
from tests.support.manual_time import ManualClock

CONFIG = LogConfig(segment_bytes=12_000, index_interval_bytes=500)
NOW_MS = 1_700_000_000_000
WINDOW_BYTES = 700


class WatchedDisk:
    """A disk without mappings that records the largest read of `.log` files."""

    def __init__(self) -> None:
        self._disk = PosixFileSystem()
        self.largest_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        handle = self._disk.open(path, create=create, write=write)
        return cast("FileHandle", WatchedHandle(self, handle, path.suffix == ".log"))

    def create_new(self, path: Path) -> FileHandle:
        handle = self._disk.create_new(path)
        return cast("FileHandle", WatchedHandle(self, handle, path.suffix == ".log"))


class WatchedHandle:
    """A file of a `WatchedDisk`."""

    def __init__(self, disk: WatchedDisk, handle: FileHandle, is_log: bool) -> None:
        self._disk = disk
        self._handle = handle
        self._is_log = is_log

    def __getattr__(self, name: str) -> Any:
        assert name != "map"
        return getattr(self._handle, name)

    def pread_into(self, target: memoryview, position: int) -> int:
        if self._is_log:
            self._disk.largest_read = max(self._disk.largest_read, len(target))
        return self._handle.pread_into(target, position)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log of several segments with transactions, without a clean close."""
    directory = tmp_path_factory.mktemp("unmapped") / "orders-0"
    clock = ManualClock(NOW_MS)
    with open_log(directory, config=CONFIG, clock=clock) as log:
        fill(log, clock.now_ms, batch_count=400, seed=3)
        log.flush()
        return Path(shutil.copytree(directory, directory.parent / "copy" / "orders-0"))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make windows smaller than a segment, and some smaller than a batch."""
    monkeypatch.setattr(batch_walk, "WINDOW_BYTES", WINDOW_BYTES)


def opened(directory: Path, disk: WatchedDisk | None = None) -> Log:
    filesystem = None if disk is None else without_mappings(cast("FileSystem", disk))
    return open_log(
        directory, config=CONFIG, clock=ManualClock(NOW_MS), read_only=True, filesystem=filesystem
    )


def runs_of(log: Log, run_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield position and bytes of each run of each segment."""
    for source in sources(partition_of(log).view.snapshot()):
        for run in read_runs(source, run_bytes):
            yield run.position, bytes(run.data)


def test_unmapped_log_equals_mapped_log_and_reads_windows(made: Path) -> None:
    """Recovery, facts for cleaning, producers, transactions; a window or a batch at a time."""
    disk = WatchedDisk()
    with opened(made) as log, opened(made, disk) as other:
        target, unmapped_target = log_to_clean(log), log_to_clean(other)
        segments, others = (
            partition_of(log).view.snapshot().segments,
            partition_of(other).view.snapshot().segments,
        )

        assert len(segments) > 3
        assert target.facts == unmapped_target.facts
        assert target.last_batches == unmapped_target.last_batches
        assert target.open_transactions == unmapped_target.open_transactions
        for segment, its in zip(segments.segments, others.segments, strict=True):
            assert segment.scan() == its.scan()
        assert list(runs_of(log, 2_000)) == list(runs_of(other, 2_000))
        largest = max(each.header.size_bytes for each in log.batches())
        # The window includes one more header, which shows whether another batch follows.
        assert disk.largest_read <= max(2 * largest, 2_000 + RECORD_BATCH_OVERHEAD)
        assert list(log.records()) == list(other.records())


@settings(max_examples=15)
@given(st.integers(0, 12_000), st.integers(0, 255), st.integers(1, 4_000))
def test_damage_in_unmapped_log_equals_that_in_a_mapped_log(
    tmp_path_factory: pytest.TempPathFactory,
    made: Path,
    position: int,
    value: int,
    run_bytes: int,
) -> None:
    """The same runs before it, the same range, and the same result of a scan after it."""
    directory = tmp_path_factory.mktemp("damaged") / "orders-0"
    shutil.copytree(made, directory)
    first = min(directory.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[position % len(data)] = value
    first.write_bytes(data)
    results: list[Any] = []
    with opened(directory) as log, opened(directory, WatchedDisk()) as other:
        for each in (log, other):
            found: list[Any] = [
                segment.scan() for segment in partition_of(each).view.snapshot().segments.segments
            ]
            runs = runs_of(each, run_bytes)
            try:
                found += runs
            except CorruptRecordError as error:
                found.append(str(error))
            try:
                found.append(log_to_clean(each).last_batches)
            except CorruptRecordError as error:
                found.append(str(error))
            results.append(found)
    assert results[0] == results[1]


def test_cut_file_without_mapping_reads_as_zeros(made: Path, tmp_path: Path) -> None:
    """Bytes that another process cuts are damage, and kill no process."""
    directory = Path(shutil.copytree(made, tmp_path / "orders-0"))
    with opened(directory, WatchedDisk()) as log:
        segment = partition_of(log).view.snapshot().segments.segments[0]
        size = segment.size_bytes
        with segment.path.open("r+b") as file:
            file.truncate(100)
        whole = segment.file.whole()

        assert size == len(whole)
        assert not any(whole[100:])
        with pytest.raises(CorruptRecordError):
            list(runs_of(log, 2_000))


def test_unlinked_segment_without_mapping_is_still_read(made: Path, tmp_path: Path) -> None:
    """By its open descriptor: a replacement needs no memory for the old segments."""
    directory = Path(shutil.copytree(made, tmp_path / "orders-0"))
    with opened(directory, WatchedDisk()) as log:
        segment = partition_of(log).view.snapshot().segments.segments[0]
        expected = segment.path.read_bytes()
        segment.file.pin()
        segment.path.unlink()
        segment.path.write_bytes(b"another")

        assert expected == bytes(segment.file.whole())
        assert expected[61:99] == bytes(segment.file.read(61, 38))
        assert 0 == segment.file.unsynced_bytes
