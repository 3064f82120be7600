"""Marker of a clean shutdown: removed before any change, written at a clean close."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import LogManager, LogStorageError, Record
from tests.support.managers import append_texts, has_marker, manual_manager, scheduler_of, values
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DATA = Path("/data")


def closed_directory() -> SimulatedDisk:
    """Return a disk with a data directory of two partitions, closed cleanly."""
    disk = SimulatedDisk()
    manager = manual_manager(DATA, filesystem=disk)
    manager.create_topic("orders", 2)
    for number in range(2):
        append_texts(manager, "orders", number, "one")
    manager.close()
    assert has_marker(DATA, disk)
    return disk


def reopened(disk: SimulatedDisk) -> LogManager:
    """Return a manager of that directory."""
    return manual_manager(DATA, filesystem=disk)


def test_manager_that_opens_no_log_keeps_the_marker() -> None:
    """After its crash the next start has nothing to recover."""
    disk = closed_directory()
    manager = reopened(disk)
    scheduler_of(manager).advance(5_000)
    after = disk.crash(CrashChoice("all"))
    assert has_marker(DATA, after)
    assert 0 == reopened(after).health().directories[0].open_count
    manager.close()
    assert has_marker(DATA, disk)


@pytest.mark.parametrize("choice", ["nothing", "all"])
def test_marker_is_durably_removed_before_a_log_is_opened_for_writing(choice: str) -> None:
    """Whatever later writes survive a crash, every log is recovered."""
    disk = closed_directory()
    manager = reopened(disk)
    append_texts(manager, "orders", 0, "two")
    after = disk.crash(CrashChoice(choice))
    assert not has_marker(DATA, after)
    other = reopened(after)
    for number in range(2):
        assert not other.log("orders", number).recovery_report.clean
        assert "one" == values(other, "orders", number)[0]
    other.close()
    assert has_marker(DATA, after)


def test_log_is_not_opened_if_the_marker_cannot_be_removed() -> None:
    """The error is that partition's; the next call tries again."""
    disk = closed_directory()
    manager = reopened(disk)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"unlink"}), suffix=".kafka_cleanshutdown")
    with pytest.raises(LogStorageError):
        manager.log("orders", 0)
    assert has_marker(DATA, disk)
    append_texts(manager, "orders", 0, "two")
    assert not has_marker(DATA, disk)
    manager.close()


def test_marker_is_not_written_if_a_log_was_not_closed_cleanly() -> None:
    """The marker is for all logs, so the others are recovered too."""
    disk = closed_directory()
    manager = reopened(disk)
    append_texts(manager, "orders", 1, "two")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(LogStorageError):
        manager.log("orders", 0).append([Record(value=b"lost")], wait="durable")
    manager.close()
    assert not has_marker(DATA, disk)
    manager = reopened(disk)
    assert ["one", "two"] == values(manager, "orders", 1)
    assert "one" == values(manager, "orders", 0)[0]
    manager.close()
    assert has_marker(DATA, disk)


def test_log_reopened_by_the_same_manager_is_clean() -> None:
    """The manager remembers the clean close, although the marker is removed."""
    disk = closed_directory()
    manager = reopened(disk)
    append_texts(manager, "orders", 0, "two")
    manager.log("orders", 0).close()
    assert manager.log("orders", 0).recovery_report.clean
    assert ["one", "two"] == values(manager, "orders", 0)
    manager.close()


def test_close_raises_if_the_marker_cannot_be_written() -> None:
    """All logs are closed; the next start recovers."""
    disk = closed_directory()
    manager = reopened(disk)
    append_texts(manager, "orders", 0, "two")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".kafka_cleanshutdown.tmp")
    with pytest.raises(LogStorageError):
        manager.close()
    assert not has_marker(DATA, disk)
    manager = reopened(disk)
    assert ["one", "two"] == values(manager, "orders", 0)
    manager.close()
