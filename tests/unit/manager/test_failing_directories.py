"""Directories that fail: offline, recovered by `bring_online`, or refused at the start."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import (
    ConfigError,
    CorruptStateError,
    DiskFullError,
    LogClosedError,
    LogLockedError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    NotALogError,
    Record,
    TopicPartition,
)
from kafkalog.files.locking import acquire_directory_lock
from kafkalog.files.posix import PosixFileSystem
from tests.support.managers import append_texts, has_marker, manual_manager, values
from tests.support.simulated_disk import SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")


def two_directories() -> tuple[SimulatedDisk, LogManager]:
    """Return a manager with one written partition in each of two directories."""
    disk = SimulatedDisk()
    manager = manual_manager(A, B, filesystem=disk)
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one")
    append_texts(manager, "orders", 1, "two")
    assert [A, B] == [manager.directory_of("orders", number) for number in (0, 1)]
    return disk, manager


def fail_sync(disk: SimulatedDisk, manager: LogManager) -> None:
    """Let the disk of the first directory fail in an append that waits for the sync."""
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(LogStorageError):
        manager.log("orders", 0).append([Record(value=b"lost")], wait="durable")


def test_disk_error_takes_the_directory_offline_and_the_other_works() -> None:
    """Every log in it refuses writes, also logs without an error; reads still work."""
    disk, manager = two_directories()
    manager.create_topic("payments", 1)
    append_texts(manager, "payments", 0, "three")
    neighbour = manager.log("payments", 0)
    assert A == manager.directory_of("payments", 0)
    fail_sync(disk, manager)
    health = manager.health()
    assert [False, True] == [each.is_online for each in health.directories]
    assert isinstance(health.directories[0].error, LogStorageError)
    assert not health.is_healthy
    with pytest.raises(LogOfflineError):
        neighbour.append([Record(value=b"refused")])
    assert [b"three"] == [record.value for record in neighbour.records()]
    with pytest.raises(LogOfflineError, match="offline"):
        manager.log("orders", 0)
    append_texts(manager, "orders", 1, "still")
    assert ["two", "still"] == values(manager, "orders", 1)
    manager.create_topic("new", 2)
    assert {B} == {manager.directory_of("new", number) for number in (0, 1)}
    with pytest.raises(LogOfflineError):
        manager.delete_partition("orders", 0)
    assert (0, 1) == manager.topics()["orders"]
    manager.close()
    assert not has_marker(A, disk)
    assert has_marker(B, disk)


def test_bring_online_recovers_the_directory() -> None:
    """Durable records are kept; old logs are closed, and new ones work."""
    disk, manager = two_directories()
    held = manager.log("orders", 0)
    held.flush()
    fail_sync(disk, manager)
    manager.reconfigure("orders", {"retention.bytes": "77"})
    manager.bring_online(A)
    assert manager.health().is_healthy
    with pytest.raises(LogClosedError):
        list(held.records())
    assert "one" == values(manager, "orders", 0)[0]
    assert 77 == manager.log("orders", 0).config.retention_bytes
    assert not manager.log("orders", 0).recovery_report.clean
    append_texts(manager, "orders", 0, "again")
    manager.bring_online(A)
    manager.close()
    assert has_marker(A, disk)
    with manual_manager(A, B, filesystem=disk) as manager:
        assert "again" == values(manager, "orders", 0)[-1]
        assert 77 == manager.log("orders", 0).config.retention_bytes


def test_start_directory_that_cannot_be_opened_is_offline() -> None:
    """`bring_online` tries again; until then its partitions are not known."""
    disk, manager = two_directories()
    manager.close()
    disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="a/meta.properties")
    manager = manual_manager(A, B, filesystem=disk)
    assert [False, True] == [each.is_online for each in manager.health().directories]
    assert {"orders": (1,)} == manager.topics()
    with pytest.raises(ConfigError, match="not a data directory of this manager"):
        manager.bring_online("/elsewhere")
    disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="a/meta.properties")
    with pytest.raises(LogStorageError):
        manager.bring_online(A)
    assert not manager.health().directories[0].is_online
    manager.bring_online(A)
    assert {"orders": (0, 1)} == manager.topics()
    assert ["one"] == values(manager, "orders", 0)
    manager.close()


def test_start_without_any_directory_that_opens_is_refused() -> None:
    """With the error of the first directory; no lock is kept."""
    disk, manager = two_directories()
    manager.close()
    for path in (A, B):
        disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix=f"{path}/meta.properties")
    with pytest.raises(LogStorageError, match="disks/a"):
        manual_manager(A, B, filesystem=disk)
    manual_manager(A, B, filesystem=disk).close()


def test_start_damaged_meta_properties_take_the_directory_offline() -> None:
    """After a repair, `bring_online` works."""
    disk, manager = two_directories()
    manager.close()
    handle = disk.open(A / "meta.properties", write=True)
    before = handle.pread(1000, 0)
    handle.truncate(0)
    handle.pwrite(b"version=9\n", 0)
    manager = manual_manager(A, B, filesystem=disk)
    assert isinstance(manager.health().directories[0].error, CorruptStateError)
    handle.truncate(0)
    handle.pwrite(before, 0)
    manager.bring_online(A)
    assert ["one"] == values(manager, "orders", 0)
    manager.close()


def test_start_damaged_topic_settings_take_the_directory_offline() -> None:
    """With default settings, retention could delete records that must be kept."""
    disk, manager = two_directories()
    manager.reconfigure("orders", {"retention.ms": "-1"})
    manager.close()
    handle = disk.open(A / ".kafkalog_topics", write=True)
    handle.truncate(handle.size() - 30)
    manager = manual_manager(A, B, filesystem=disk)
    error = manager.health().directories[0].error
    assert isinstance(error, CorruptStateError)
    assert "generation" in str(error)
    disk.unlink(A / ".kafkalog_topics")
    manager.bring_online(A)
    assert -1 == manager.log("orders", 0).config.retention_ms
    manager.close()


def test_full_disk_takes_nothing_offline() -> None:
    """Appends raise `DiskFullError`, and succeed when there is free space."""
    disk, manager = two_directories()
    manager.log("orders", 0).flush()
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".log")
    with pytest.raises(DiskFullError):
        append_texts(manager, "orders", 0, "too much")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"make_directory"}))
    disk.fail_at(2, errno.ENOSPC, only=frozenset({"make_directory"}))
    with pytest.raises(DiskFullError):
        manager.create_topic("new")
    assert all(each.is_online for each in manager.health().directories)
    append_texts(manager, "orders", 0, "fits")
    manager.create_topic("new")
    assert ["one", "fits"] == values(manager, "orders", 0)
    manager.close()
    assert has_marker(A, disk)


def test_log_offline_after_a_full_disk_is_recovered_by_the_next_call() -> None:
    """Its directory stays online; `log` returns a new object."""
    disk, manager = two_directories()
    log = manager.log("orders", 0)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(DiskFullError):
        log.append([Record(value=b"two")], wait="durable")
    assert (TopicPartition("orders", 0),) == manager.health().partitions
    assert manager.health().directories[0].is_online
    other = manager.log("orders", 0)
    assert other is not log
    assert log.is_closed
    assert not other.recovery_report.clean
    assert manager.health().is_healthy
    other.append([Record(value=b"three")], wait="durable")
    manager.close()


def test_damaged_partition_does_not_affect_other_partitions(tmp_path: Path) -> None:
    """`health` lists it; after a repair it is opened."""
    manager = manual_manager(tmp_path)
    manager.create_topic("orders", 3)
    for number in range(3):
        append_texts(manager, "orders", number, "one")
    manager.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    log_file = tmp_path / "orders-1" / f"{0:020d}.log"
    log_file.rename(tmp_path / "kept")
    log_file.mkdir()
    manager = manual_manager(tmp_path)
    assert (TopicPartition("orders", 1),) == manager.health().partitions
    assert ["one"] == values(manager, "orders", 0) == values(manager, "orders", 2)
    with pytest.raises(LogStorageError):
        manager.log("orders", 1)
    log_file.rmdir()
    (tmp_path / "kept").rename(log_file)
    assert ["one"] == values(manager, "orders", 1)
    assert manager.health().is_healthy
    manager.close()


def test_partition_in_two_directories_is_not_opened(tmp_path: Path) -> None:
    """Only the operator knows which copy is right; the other partitions are served."""
    first, second = tmp_path / "first", tmp_path / "second"
    manager = manual_manager(first, second)
    manager.create_topic("orders", 2)
    for number in range(2):
        append_texts(manager, "orders", number, "one")
    manager.close()
    (second / "orders-0").mkdir()
    with manual_manager(first, second) as manager:
        with pytest.raises(LogOfflineError, match="move one"):
            manager.log("orders", 0)
        assert ["one"] == values(manager, "orders", 1)
        assert (TopicPartition("orders", 0),) == manager.health().partitions
        with pytest.raises(LogOfflineError, match="move one"):
            manager.delete_partition("orders", 0)
        (second / "orders-0").rmdir()
        assert ["one"] == values(manager, "orders", 0)
        assert manager.health().is_healthy
    assert has_marker(first)
    with manual_manager(first, second) as manager:
        assert manager.log("orders", 0).recovery_report.clean


def test_duplicate_partition_is_opened_after_one_copy_is_removed(tmp_path: Path) -> None:
    """Also in the second directory, and for `delete_partition`."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, text in ((first, "old"), (second, "new")):
        with manual_manager(directory) as manager:
            manager.create_topic("orders", 2)
            append_texts(manager, "orders", 0, text)
    for directory in (first, second):
        (directory / "meta.properties").unlink()
    for number in range(2):
        metadata = Path(f"orders-{number}") / "partition.metadata"
        (first / metadata).write_bytes((second / metadata).read_bytes())
    with manual_manager(first, second) as manager:
        for number in range(2):
            (first / f"orders-{number}").rename(tmp_path / f"orders-{number}")
        assert ["new"] == values(manager, "orders", 0)
        assert second == manager.directory_of("orders", 0)
        manager.delete_partition("orders", 1)
        assert {"orders": (0,)} == manager.topics()
        assert [0, 1] == [each.partition_count for each in manager.health().directories]
        assert manager.health().is_healthy
    assert has_marker(first)
    assert has_marker(second)


def test_start_locked_directory_raises_and_releases_the_others(tmp_path: Path) -> None:
    """With `LogLockedError`."""
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    with acquire_directory_lock(PosixFileSystem(), second), pytest.raises(LogLockedError):
        manual_manager(first, second)
    manual_manager(first, second).close()


def test_start_file_instead_of_a_data_directory_raises(tmp_path: Path) -> None:
    """It is a mistake of the caller, not a failure of a disk."""
    (tmp_path / "file").touch()
    with pytest.raises(NotALogError, match="not a data directory"):
        manual_manager(tmp_path / "file")


def test_foreign_directories_are_listed_in_health_and_not_changed(tmp_path: Path) -> None:
    """Stray and future partitions of a broker, a controller's log, and unknown names."""
    moving = "orders-0.0123456789abcdef0123456789abcdef"
    for name in (f"{moving}-stray", f"{moving}-future", "__cluster_metadata-0", "lost+found"):
        (tmp_path / name).mkdir()
    with manual_manager(tmp_path) as manager:
        assert {} == manager.topics()
        health = manager.health().directories[0]
        assert {f"{moving}-stray", f"{moving}-future"} == set(health.kept_aside)
        assert ("lost+found",) == health.unknown
        manager.create_topic("orders")
    assert (tmp_path / "lost+found").is_dir()
