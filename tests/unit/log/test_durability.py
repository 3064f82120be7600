"""Durable bytes after an append, a flush, a roll or a timer, and after failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, LogOfflineError, LogStorageError, Record
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import RECOVERY_POINT_CHECKPOINT
from kafkalog.files.posix import PosixFileHandle, PosixFileSystem
from kafkalog.log.log import partition_of
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualScheduler
from tests.support.simulated_disk import SimulatedDisk

SYNC = frozenset({"sync"})
PARTITION = Path("/data/orders-0")
WAIT_SECONDS = 30


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """A disk that counts its calls."""
    disk = SimulatedDisk()
    disk.make_directory(PARTITION.parent)
    disk.sync_directory(PARTITION.parent.parent)
    return disk


@pytest.fixture(name="scheduler")
def fixture_scheduler() -> ManualScheduler:
    """A scheduler whose background work runs when a test calls it."""
    return ManualScheduler()


@pytest.fixture(name="log")
def fixture_log(disk: SimulatedDisk, scheduler: ManualScheduler) -> Iterator[Log]:
    """A log on that disk."""
    with manual_log(PARTITION, filesystem=disk, scheduler=scheduler, segment_bytes=1000) as log:
        yield log


def recovery_checkpoint(disk: SimulatedDisk) -> int | None:
    """Return the recovery point that a crash would find."""
    found = OffsetCheckpoint(disk, PARTITION / RECOVERY_POINT_CHECKPOINT).read()
    return found.get(TopicPartition("orders", 0))


def test_append_written_does_not_sync(disk: SimulatedDisk, log: Log) -> None:
    """The bytes are in the page cache. Only the first append syncs, for the epoch."""
    log.append(numbered(0, 1))
    before = disk.calls["sync"]
    log.append(numbered(0, 10))
    assert before == disk.calls["sync"]
    assert (0, 11) == (log.durable_offset, log.log_end_offset)


def test_append_durable_syncs_its_segment_once(disk: SimulatedDisk, log: Log) -> None:
    """One call per segment; the directory is synced only for a new name."""
    log.append(numbered(0, 1), wait="durable")
    before, directories = disk.calls["sync"], disk.calls["sync_directory"]
    log.append(numbered(1, 10), wait="durable")
    assert before + 1 == disk.calls["sync"]
    assert directories == disk.calls["sync_directory"]
    assert 11 == log.durable_offset


def test_append_durable_syncs_earlier_segments_and_names(disk: SimulatedDisk, log: Log) -> None:
    """Segments that were rolled since the last sync are synced, and the directory."""
    log.append(numbered(0, 10), wait="durable")
    for first in range(10, 100, 10):
        log.append(numbered(first, 10))
    before, directories = disk.calls["sync"], disk.calls["sync_directory"]
    log.append(numbered(100, 1), wait="durable")
    count = len(log.segments())
    assert count > 1
    assert before + count == disk.calls["sync"]
    assert directories + 1 == disk.calls["sync_directory"]
    assert 101 == log.durable_offset


def test_append_durable_survives_a_power_cut(disk: SimulatedDisk, log: Log) -> None:
    """Later bytes may be lost; the records that were reported durable are read back."""
    log.append(numbered(0, 10), wait="durable")
    log.append(numbered(10, 10))
    after = disk.crash()
    with manual_log(PARTITION, filesystem=after) as again:
        offsets = [record.offset for record in again.records()]
        assert list(range(10)) == offsets[:10]
        assert not again.recovery_report.corrupt_ranges


def test_flush_messages_syncs_when_the_count_is_reached(disk: SimulatedDisk) -> None:
    """Counted from the durable offset: at the third record, and three records later."""
    with manual_log(PARTITION, filesystem=disk, flush_messages=3) as log:
        durable = []
        for number in range(7):
            log.append(numbered(number, 1))
            durable.append(log.durable_offset)
        assert [0, 0, 3, 3, 3, 6, 6] == durable


def test_flush_ms_syncs_when_the_time_has_passed(
    disk: SimulatedDisk, scheduler: ManualScheduler
) -> None:
    """The timer does nothing if all is flushed."""
    with manual_log(PARTITION, filesystem=disk, scheduler=scheduler, flush_ms=500) as log:
        log.append(numbered(0, 4))
        scheduler.advance(499)
        assert 0 == log.durable_offset
        scheduler.advance(1)
        assert 4 == log.durable_offset
        before = disk.calls["sync"]
        scheduler.advance(5000)
        assert before == disk.calls["sync"]
        log.append(numbered(4, 1))
        scheduler.advance(500)
        assert 5 == log.durable_offset
        assert [] == scheduler.errors
    assert [] == scheduler.pending


def test_roll_flushes_in_the_background_and_checkpoints(
    disk: SimulatedDisk, log: Log, scheduler: ManualScheduler
) -> None:
    """The roll does not wait; the scheduled flush moves the recovery point."""
    log.append(numbered(0, 5))
    before = disk.calls["sync"]
    log.roll()
    assert before == disk.calls["sync"]
    assert 0 == (recovery_checkpoint(disk) or 0)
    assert [("flush-log", 0)] == [task for task in scheduler.pending if task[0] == "flush-log"]
    scheduler.run_due()
    assert 5 == log.durable_offset
    assert 5 == recovery_checkpoint(disk)
    assert [] == scheduler.errors


def test_flush_makes_all_durable_and_returns_the_log_end(disk: SimulatedDisk, log: Log) -> None:
    """Also names of an empty log."""
    assert 0 == log.flush()
    log.append(numbered(0, 7))
    assert 7 == log.flush()
    assert (7, 7) == (log.durable_offset, log.durable_offset)


def test_close_leaves_everything_durable(disk: SimulatedDisk, log: Log) -> None:
    """A power cut after the close loses nothing, and the next opening scans nothing."""
    log.append(numbered(0, 30))
    log.close()
    with manual_log(PARTITION, filesystem=disk.crash()) as again:
        assert again.recovery_report.clean
        assert list(range(30)) == [record.offset for record in again.records()]
        assert 30 == again.durable_offset


def test_failed_sync_takes_the_log_offline(disk: SimulatedDisk, log: Log) -> None:
    """No later append is reported durable, all writes are refused, and reads continue."""
    log.append(numbered(0, 5), wait="durable")
    disk.fail_at(1, only=SYNC, suffix=".log")
    with pytest.raises(LogStorageError):
        log.append(numbered(5, 5), wait="durable")
    assert 5 == log.durable_offset
    for change in (
        lambda: log.append(numbered(10, 1)),
        lambda: log.append(numbered(10, 1), wait="durable"),
        log.flush,
        log.roll,
        lambda: log.truncate_to(1),
        lambda: log.delete_records(1),
    ):
        with pytest.raises(LogOfflineError, match="reopen it"):
            change()
    assert list(range(10)) == [record.offset for record in log.records()]
    log.close()
    assert 5 == log.durable_offset


def test_offline_log_is_recovered_by_the_next_opening(disk: SimulatedDisk, log: Log) -> None:
    """It was not cleanly closed, so its bytes are scanned."""
    log.append(numbered(0, 5), wait="durable")
    disk.fail_at(1, only=SYNC, suffix=".log")
    with pytest.raises(LogStorageError):
        log.append(numbered(5, 5), wait="durable")
    log.close()
    with manual_log(PARTITION, filesystem=disk) as again:
        assert not again.recovery_report.clean
        assert 10 == again.log_end_offset
        assert 10 == again.append(numbered(10, 1), wait="durable").first_offset


def test_failed_background_sync_takes_the_log_offline(
    disk: SimulatedDisk, log: Log, scheduler: ManualScheduler
) -> None:
    """No caller waited for the sync; the next append raises."""
    log.append(numbered(0, 5))
    log.roll()
    disk.fail_at(1, only=SYNC, suffix=".log")
    scheduler.run_due()
    assert ["flush-log"] == [name for name, _error in scheduler.errors]
    with pytest.raises(LogOfflineError):
        log.append(numbered(5, 1))


class FlushingRenames(PosixFileSystem):
    """A file system that calls `then` at every rename, in the middle of a truncation."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] = int

    def rename(self, source: Path, target: Path) -> None:
        self.then()
        super().rename(source, target)


@pytest.mark.parametrize("fully", [False, True])
def test_sync_during_truncation_does_not_make_the_old_end_durable(
    directory: Path, fully: bool
) -> None:
    """It synced the records that are cut; those appended at their offsets are not synced."""
    files = FlushingRenames()
    with manual_log(directory, filesystem=files, segment_bytes=200) as log:
        for number in range(20):
            log.append(numbered(number, 1))
        files.then = log.flush
        if fully:
            log.truncate_fully_and_start_at(3)
        else:
            log.truncate_to(3)
        files.then = int
        assert (3, 3) == (log.log_end_offset, log.durable_offset)
        log.append(numbered(3, 1))
        assert 3 == log.durable_offset
    with manual_log(directory) as log:
        assert 4 == log.log_end_offset
        assert () == log.corrupt_ranges()


class AppendingSyncs(SimulatedDisk):
    """A disk that calls `then` once, right after the next sync of a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] | None = None

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        then, self.then = self.then, None
        if then is not None:
            then()


def test_flush_leaves_names_of_later_segments_to_the_next_flush() -> None:
    """A flush covers the names that existed when it began."""
    disk = AppendingSyncs()
    disk.make_durable(PARTITION.parent)
    log = manual_log(PARTITION, filesystem=disk, segment_bytes=200)
    log.append(numbered(0, 1))
    log.roll()
    disk.then = lambda: (log.append(numbered(1, 1)), log.roll(), log.append(numbered(2, 1)))
    assert 1 == log.flush()
    assert disk.then is None
    assert 3 == log.flush()
    with manual_log(PARTITION, filesystem=disk.crash()) as again:
        assert 3 == again.log_end_offset
    log.close()


class SlowSyncs(PosixFileSystem):
    """Real files whose syncs wait for `gate` and are counted, with the bytes that they cover."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.sizes: list[int] = []

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        handle = super().open(path, create=create, write=write)
        return self._slowed(path, handle) if write else handle

    def create_new(self, path: Path) -> FileHandle:
        return self._slowed(path, super().create_new(path))

    def _slowed(self, path: Path, handle: FileHandle) -> FileHandle:
        if path.suffix != ".log":
            return handle
        assert isinstance(handle, PosixFileHandle)
        return _SlowHandle(self, handle)


class _SlowHandle:
    """A handle that forwards all calls and delays `sync`."""

    def __init__(self, files: SlowSyncs, handle: PosixFileHandle) -> None:
        self._files = files
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def sync(self) -> None:
        size = self._handle.size()
        self._files.begun.set()
        assert self._files.gate.wait(WAIT_SECONDS)
        self._handle.sync()
        self._files.sizes.append(size)


def test_one_sync_covers_all_waiting_appends(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads that arrive during a sync share the next one."""
    files = SlowSyncs()
    written = threading.Semaphore(0)
    with manual_log(directory, filesystem=files) as log:

        def work(number: int) -> None:
            log.append([Record(value=b"%d" % number)], wait="durable")

        flusher = partition_of(log).flusher
        original = flusher.wait_until_durable

        def counted(end_offset: int) -> int:
            written.release()
            return original(end_offset)

        monkeypatch.setattr(flusher, "wait_until_durable", counted)
        leader = threading.Thread(target=work, args=(0,))
        leader.start()
        assert files.begun.wait(WAIT_SECONDS)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for _thread in range(9):
            assert written.acquire(timeout=WAIT_SECONDS)
        assert 0 == log.durable_offset
        assert 9 == log.log_end_offset
        files.gate.set()
        for thread in (leader, *threads):
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        assert 2 == len(files.sizes)
        assert 9 == log.durable_offset


def test_durable_offset_rises_and_never_exceeds_synced_bytes(directory: Path) -> None:
    """A thread watches it while others append: each value is in a synced file."""
    files = SlowSyncs()
    files.gate.set()
    seen: list[tuple[int, int]] = []
    done = threading.Event()
    with manual_log(directory, filesystem=files) as log:
        size = log.append([Record(value=b"0")]).size_bytes

        def watch() -> None:
            while not done.is_set():
                durable = log.durable_offset
                seen.append((durable, max(files.sizes, default=0) // size))

        def work() -> None:
            for _number in range(40):
                log.append([Record(value=b"1")], wait="durable")

        watcher = threading.Thread(target=watch)
        workers = [threading.Thread(target=work) for _thread in range(3)]
        for thread in (watcher, *workers):
            thread.start()
        for thread in workers:
            thread.join(WAIT_SECONDS)
        done.set()
        watcher.join(WAIT_SECONDS)
        assert 121 == log.durable_offset
    assert all(durable <= synced for durable, synced in seen)
    assert sorted(seen) == seen


class FlushingCreations(SimulatedDisk):
    """A disk that calls `then` once, right before the next creation of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] | None = None

    def create_new(self, path: Path) -> FileHandle:
        then, self.then = self.then, None
        if then is not None:
            then()
        return super().create_new(path)


def test_flush_before_the_file_of_a_segment_leaves_its_name_to_the_next() -> None:
    """The roll had begun, and there was no name yet that the flush could put on the disk."""
    disk = FlushingCreations()
    disk.make_durable(PARTITION.parent)
    log = manual_log(PARTITION, filesystem=disk)
    log.append(numbered(0, 1))
    disk.then = log.flush
    log.roll()
    assert disk.then is None
    log.append(numbered(1, 1))
    assert 2 == log.flush()
    with manual_log(PARTITION, filesystem=disk.crash()) as again:
        assert 2 == again.log_end_offset
    log.close()
