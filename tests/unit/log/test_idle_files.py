"""Tests of idle logs: no file open for writing, reads, and writes that reopen the files."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from kafkalog import Log, LogConfig, LogOfflineError, Record
from kafkalog.errors import LogStorageError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.idle_files import ReleasableFiles
from kafkalog.log.log import partition_of
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment
from kafkalog.log.partition_paths import find_partition_paths
from tests.support.logs import expected_indexes, index_files, numbered
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

CONFIG = LogConfig(
    segment_bytes=2_000,
    index_interval_bytes=100,
    segment_index_bytes=240,
    batch_bytes=200,
    message_timestamp_after_max_ms=2**62,
)


def open_sleepy(
    directory: Path,
    woken: list[ReleasableFiles] | None = None,
    filesystem: FileSystem | None = None,
    config: LogConfig = CONFIG,
) -> Log:
    """Open a log that may release its files; each reopening is added to `woken`."""
    disk = PosixFileSystem() if filesystem is None else filesystem
    if disk.stat(directory) is None:
        disk.make_directory(directory)
    clock = ManualClock()
    environment = LogEnvironment(
        clock=clock,
        scheduler=ManualScheduler(clock),
        on_reopen=(woken if woken is not None else []).append,
    )
    return Log(
        open_partition(
            FileCheckpointStore(find_partition_paths(disk, directory)), config, environment
        )
    )


def texts(log: Log) -> list[bytes | None]:
    """Return the values of a log."""
    return [record.value for record in log.records()]


@pytest.mark.parametrize("preallocate", [False, True])
def test_idle_log_reads_and_continues_at_its_end(tmp_path: Path, preallocate: bool) -> None:
    """The release trims the index files, and they grow after the reopening."""
    config = CONFIG.replace(preallocate=preallocate)
    woken: list[ReleasableFiles] = []
    directory = tmp_path / "orders-0"
    with open_sleepy(directory, woken, config=config) as log:
        for number in range(6):
            log.append(numbered(number, 1))
        assert partition_of(log).idle_files.try_release()
        assert partition_of(log).idle_files.is_released
        assert partition_of(log).idle_files.try_release()
        assert 6 == log.durable_offset == log.flush()
        assert [b"v%d" % number for number in range(6)] == texts(log)
        assert expected_indexes(directory, 0, 100) == index_files(directory, 0)
        assert [] == woken
        for number in range(6, 9):
            log.append(numbered(number, 1))
        assert [partition_of(log).idle_files] == woken
        assert not partition_of(log).idle_files.is_released
        assert 9 == log.log_end_offset
        assert [b"v%d" % number for number in range(9)] == texts(log)
        record = log.get(7)
        assert record is not None
        assert b"v7" == record.value
    with open_sleepy(directory) as log:
        assert log.recovery_report.clean
        assert [b"v%d" % number for number in range(9)] == texts(log)


def test_cleanly_closed_log_opens_idle_and_writes_nothing(tmp_path: Path) -> None:
    """Closing it again writes nothing either, except for the marker."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/data"))
    disk.open(Path("/data/meta.properties"), create=True).close()
    directory = Path("/data/orders-0")
    with open_sleepy(directory, filesystem=disk) as log:
        log.append(numbered(0, 3))
        assert not partition_of(log).idle_files.is_released
    with open_sleepy(directory, filesystem=disk) as log:
        log.append([])
        assert 3 == len(texts(log))
        assert log.reconfigure(CONFIG.replace(retention_ms=5))
        log.apply_retention(now_ms=0)
        assert partition_of(log).idle_files.is_released is False
    with open_sleepy(directory, filesystem=disk) as log:
        disk.calls.clear()
        assert partition_of(log).idle_files.is_released
        assert 3 == len(texts(log)) == log.durable_offset
        assert log.reconfigure(CONFIG.replace(retention_ms=5))
        assert () == log.apply_retention(now_ms=0)
        assert 3 == log.flush()
        assert partition_of(log).idle_files.is_released
    changes = {"create", "pwrite", "pwritev", "rename", "sync", "truncate"}
    # The opening removed the clean shutdown marker, and the close writes it; nothing else changes.
    assert {"create": 1, "pwrite": 1, "sync": 1, "rename": 1} == {
        name: disk.calls[name] for name in changes if disk.calls[name]
    }


def test_retention_reopens_an_idle_log_only_to_delete(tmp_path: Path) -> None:
    """After the deletion the log is open for writing."""
    directory = tmp_path / "orders-0"
    with open_sleepy(directory, config=CONFIG.replace(retention_bytes=0)) as log:
        log.append(numbered(0, 3))
        assert partition_of(log).idle_files.try_release()
        assert 1 == len(log.apply_retention(now_ms=0))
        assert not partition_of(log).idle_files.is_released
        assert 3 == log.log_start_offset == log.log_end_offset


def test_release_with_failing_sync_takes_the_log_offline(tmp_path: Path) -> None:
    """The files stay open, and writes are refused, as after a failed `flush`."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/alone"))
    log = open_sleepy(Path("/alone/orders-0"), filesystem=disk)
    log.append(numbered(0, 1))
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    assert not partition_of(log).idle_files.try_release()
    assert not partition_of(log).idle_files.is_released
    with pytest.raises(LogOfflineError):
        log.append(numbered(1, 1))
    assert not partition_of(log).idle_files.try_release()
    log.close()
    assert not partition_of(log).idle_files.try_release()


def test_reopening_fails_log_stays_idle_and_next_append_retries(tmp_path: Path) -> None:
    """The append is refused, and no record is lost."""
    disk = SimulatedDisk()
    disk.make_durable(Path("/alone"))
    with open_sleepy(Path("/alone/orders-0"), filesystem=disk) as log:
        log.append(numbered(0, 1))
        assert partition_of(log).idle_files.try_release()
        disk.fail_at(1, errno.EMFILE, only=frozenset({"open"}), suffix=".log")
        with pytest.raises(LogStorageError):
            log.append(numbered(1, 1))
        assert partition_of(log).idle_files.is_released
        log.append(numbered(1, 1))
        assert [b"v0", b"v1"] == texts(log)


def test_log_without_on_reopen_never_releases_its_files(tmp_path: Path) -> None:
    """A log that was opened without a manager."""
    partition = open_partition(
        FileCheckpointStore(find_partition_paths(PosixFileSystem(), _made(tmp_path / "orders-0"))),
        CONFIG,
        LogEnvironment(clock=ManualClock(), scheduler=ManualScheduler()),
    )
    with Log(partition) as log:
        log.append([Record(value=b"one")])
        assert not partition.idle_files.try_release()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_crash_during_release_or_reopening_loses_nothing_durable() -> None:
    """At every changing call of release, reopening and append, with each set of writes."""
    directory = Path("/alone/orders-0")
    for moment in range(1, 40):
        disk = SimulatedDisk()
        disk.make_durable(directory)
        log = open_sleepy(directory, filesystem=disk)
        log.append(numbered(0, 4), wait="durable")
        log.append(numbered(4, 2))
        disk.crash_at(moment)
        finished = False
        with contextlib.suppress(PowerCut):
            assert partition_of(log).idle_files.try_release()
            log.append(numbered(6, 2), wait="durable")
            assert partition_of(log).idle_files.try_release()
            finished = True
        durable = log.durable_offset
        for choice in (CrashChoice("nothing"), CrashChoice("all"), CrashChoice("names")):
            after = open_sleepy(directory, filesystem=disk.crash(choice))
            found = texts(after)
            assert [b"v%d" % number for number in range(len(found))] == found
            assert 4 <= durable <= len(found) <= 8
            after.append(numbered(len(found), 1), wait="durable")
            assert [b"v%d" % number for number in range(len(found) + 1)] == texts(after)
            after.close()
        if finished:
            break
    else:
        pytest.fail("the scenario never came to its end")


def closed_log(directory: Path, config: LogConfig = CONFIG, size: int = 10) -> Path:
    """Write ten records, close cleanly, and return the `.log` file of the only segment."""
    with open_sleepy(directory, config=config) as log:
        for number in range(10):
            log.append([Record(value=b"%d" % number + bytes(size), timestamp_ms=number)])
    return directory / f"{0:020d}.log"


@pytest.mark.parametrize("size", [10, 20_000])
def test_idle_log_finds_its_end_without_time_index(tmp_path: Path, size: int) -> None:
    """A small file is read as a whole, a large one from its last index entry on."""
    config = CONFIG.replace(segment_bytes=2**20, max_message_bytes=2**20)
    path = closed_log(tmp_path / "orders-0", config, size)
    path.with_suffix(".timeindex").unlink()
    with open_sleepy(path.parent, config=config) as log:
        assert partition_of(log).idle_files.is_released
        assert 10 == log.log_end_offset
        assert 9 == log.append([Record(value=b"more")]).first_offset - 1
        found = log.offset_for_timestamp(7)
        assert found is not None
        assert 7 == found.offset
    with open_sleepy(path.parent, config=config) as log:
        assert 11 == log.log_end_offset
        assert path.with_suffix(".timeindex").exists()


@pytest.mark.parametrize("size", [10, 20_000])
def test_log_with_damaged_end_does_not_open_idle(tmp_path: Path, size: int) -> None:
    """The damage becomes a corrupt range although the clean shutdown marker exists."""
    config = CONFIG.replace(segment_bytes=2**20, max_message_bytes=2**20)
    path = closed_log(tmp_path / "orders-0", config, size)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with open_sleepy(path.parent, config=config) as log:
        assert not partition_of(log).idle_files.is_released
        assert log.recovery_report.found_damage
        (corrupt_range,) = log.corrupt_ranges()
        assert (9, 10) == (corrupt_range.first_offset, corrupt_range.next_offset)
        assert 10 == log.append([Record(value=b"more")]).first_offset


def test_log_with_lost_end_does_not_open_idle(tmp_path: Path) -> None:
    """Offsets that are below the recovery point, and missing, are a corrupt range."""
    path = closed_log(tmp_path / "orders-0")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with open_sleepy(path.parent) as log:
        assert not partition_of(log).idle_files.is_released
        assert log.recovery_report.found_damage
        assert 10 == log.log_end_offset


@pytest.mark.parametrize("when", ["before the opening", "at rest"])
def test_idle_log_with_damaged_first_batch_takes_appends(tmp_path: Path, when: str) -> None:
    """The time of the first batch is unknown then; an append does not need it."""
    directory = tmp_path / "orders-0"
    path = directory / f"{0:020d}.log"

    def damage() -> None:
        data = bytearray(path.read_bytes())
        data[57] ^= 1
        path.write_bytes(data)

    with open_sleepy(directory) as log:
        for number in range(5):
            log.append(numbered(number, 1))
    if when == "before the opening":
        (directory / ".kafka_cleanshutdown").unlink()
        damage()
    with open_sleepy(directory) as log:
        assert partition_of(log).idle_files.try_release()
        if when == "at rest":
            damage()
        assert log.append(numbered(5, 1)).first_offset == 5
        served = [record.offset for record in log.records(on_corrupt="skip")]
        assert served == [1, 2, 3, 4, 5]
