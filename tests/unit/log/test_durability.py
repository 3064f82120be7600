"""What is on the disk when an append, a flush, a roll or a timer says so, and after failures."""

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
    """Background work runs when a test says so."""
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


def test_written_append_syncs_nothing(disk: SimulatedDisk, log: Log) -> None:
    """The operating system has the bytes; the disk is left alone, once it has the epoch."""
    log.append(numbered(0, 1))
    before = disk.calls["sync"]
    log.append(numbered(0, 10))
    assert before == disk.calls["sync"]
    assert (0, 11) == (log.durable_offset, log.log_end_offset)


def test_durable_append_syncs_its_segment_once(disk: SimulatedDisk, log: Log) -> None:
    """One call a segment, the directory only while a name is new."""
    log.append(numbered(0, 1), wait="durable")
    before, directories = disk.calls["sync"], disk.calls["sync_directory"]
    log.append(numbered(1, 10), wait="durable")
    assert before + 1 == disk.calls["sync"]
    assert directories == disk.calls["sync_directory"]
    assert 11 == log.durable_offset


def test_durable_append_covers_what_was_written_before(disk: SimulatedDisk, log: Log) -> None:
    """Segments that rolled since the last sync are synced too, and their names."""
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


def test_durable_append_survives_a_power_cut(disk: SimulatedDisk, log: Log) -> None:
    """Whatever of the later bytes is lost: what was said to be durable is read back."""
    log.append(numbered(0, 10), wait="durable")
    log.append(numbered(10, 10))
    after = disk.crash()
    with manual_log(PARTITION, filesystem=after) as again:
        offsets = [record.offset for record in again.records()]
        assert list(range(10)) == offsets[:10]
        assert not again.recovery_report.corrupt_ranges


def test_flush_messages_syncs_with_the_record_that_reaches_it(disk: SimulatedDisk) -> None:
    """Counted from what is durable: the third of three, and then the next third."""
    with manual_log(PARTITION, filesystem=disk, flush_messages=3) as log:
        durable = []
        for number in range(7):
            log.append(numbered(number, 1))
            durable.append(log.durable_offset)
        assert [0, 0, 3, 3, 3, 6, 6] == durable


def test_flush_ms_syncs_when_its_time_has_come(
    disk: SimulatedDisk, scheduler: ManualScheduler
) -> None:
    """And does nothing where nothing is unflushed."""
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
    """The roll itself waits for nothing; the scheduled flush moves the recovery point."""
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


def test_flush_returns_the_log_end(disk: SimulatedDisk, log: Log) -> None:
    """And everything is durable then, names of an empty log too."""
    assert 0 == log.flush()
    log.append(numbered(0, 7))
    assert 7 == log.flush()
    assert (7, 7) == (log.durable_offset, log.durable_offset)


def test_close_leaves_everything_durable(disk: SimulatedDisk, log: Log) -> None:
    """A power cut after the close loses nothing, and the next start scans nothing."""
    log.append(numbered(0, 30))
    log.close()
    with manual_log(PARTITION, filesystem=disk.crash()) as again:
        assert again.recovery_report.clean
        assert list(range(30)) == [record.offset for record in again.records()]
        assert 30 == again.durable_offset


def test_failed_sync_latches_the_log(disk: SimulatedDisk, log: Log) -> None:
    """Nobody is told "durable" after it, no write is taken, and reads go on."""
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


def test_log_that_latched_is_recovered_by_the_next_opening(disk: SimulatedDisk, log: Log) -> None:
    """It was not closed in order, so its bytes are looked at again."""
    log.append(numbered(0, 5), wait="durable")
    disk.fail_at(1, only=SYNC, suffix=".log")
    with pytest.raises(LogStorageError):
        log.append(numbered(5, 5), wait="durable")
    log.close()
    with manual_log(PARTITION, filesystem=disk) as again:
        assert not again.recovery_report.clean
        assert 10 == again.log_end_offset
        assert 10 == again.append(numbered(10, 1), wait="durable").first_offset


def test_failed_sync_in_the_background_latches_the_log(
    disk: SimulatedDisk, log: Log, scheduler: ManualScheduler
) -> None:
    """Although no caller waited for it: the next one learns of it."""
    log.append(numbered(0, 5))
    log.roll()
    disk.fail_at(1, only=SYNC, suffix=".log")
    scheduler.run_due()
    assert ["flush-log"] == [name for name, _error in scheduler.errors]
    with pytest.raises(LogOfflineError):
        log.append(numbered(5, 1))


class FlushingRenames(PosixFileSystem):
    """Runs `then` at every renaming, in the middle of a truncation."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] = int

    def rename(self, source: Path, target: Path) -> None:
        self.then()
        super().rename(source, target)


@pytest.mark.parametrize("fully", [False, True])
def test_sync_during_a_truncation_does_not_make_the_old_end_durable(
    directory: Path, fully: bool
) -> None:
    """It saw the records that were about to go: what comes in their place is not on the disk."""
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
    """Runs `then` once, right behind the next sync of a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] | None = None

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        then, self.then = self.then, None
        if then is not None:
            then()


def test_segment_made_during_a_flush_has_its_name_synced_by_the_next() -> None:
    """The flush covered the names that were there when it began, not those that came meanwhile."""
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
    """Real files whose syncs wait for `gate` and are counted, with the bytes that they covered."""

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
    """Hands everything on, and lets `sync` wait."""

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


def test_one_sync_covers_all_who_wait(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that come while a sync runs share the next one, whatever their number."""
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


def test_durable_offset_rises_and_never_leads_the_syncs(directory: Path) -> None:
    """Seen by a thread that watches while others append: what it says is in a synced file."""
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
