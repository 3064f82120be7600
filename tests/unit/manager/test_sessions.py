"""The marker of a clean shutdown: gone before anything changes, back when all is in order."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import LogStorageError, Record
from tests.support.managers import ManualManager, has_marker, manual_manager, values
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DATA = Path("/data")


def closed_directory() -> SimulatedDisk:
    """Return a disk with a data directory of two partitions, closed in order."""
    disk = SimulatedDisk()
    manager = manual_manager(DATA, filesystem=disk)
    manager.create_topic("orders", 2)
    for number in range(2):
        manager.append("orders", number, "one")
    manager.close()
    assert has_marker(DATA, disk)
    return disk


def reopened(disk: SimulatedDisk) -> ManualManager:
    """Return a manager of that directory."""
    return manual_manager(DATA, filesystem=disk)


def test_manager_that_opens_no_log_leaves_the_marker() -> None:
    """A crash of it costs the next start nothing."""
    disk = closed_directory()
    manager = reopened(disk)
    manager.scheduler.advance(5_000)
    after = disk.crash(CrashChoice("all"))
    assert has_marker(DATA, after)
    assert 0 == reopened(after).health().directories[0].open_count
    manager.close()
    assert has_marker(DATA, disk)


@pytest.mark.parametrize("choice", ["nothing", "all"])
def test_marker_is_off_the_disk_before_a_log_is_opened_for_writing(choice: str) -> None:
    """Whatever survives of what follows, every log is recovered."""
    disk = closed_directory()
    manager = reopened(disk)
    manager.append("orders", 0, "two")
    after = disk.crash(CrashChoice(choice))
    assert not has_marker(DATA, after)
    other = reopened(after)
    for number in range(2):
        assert not other.log("orders", number).recovery_report.clean
        assert "one" == values(other, "orders", number)[0]
    other.close()
    assert has_marker(DATA, after)


def test_log_is_not_opened_where_the_marker_cannot_be_taken_away() -> None:
    """The error is that partition's; the next call tries again."""
    disk = closed_directory()
    manager = reopened(disk)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"unlink"}), suffix=".kafka_cleanshutdown")
    with pytest.raises(LogStorageError):
        manager.log("orders", 0)
    assert has_marker(DATA, disk)
    manager.append("orders", 0, "two")
    assert not has_marker(DATA, disk)
    manager.close()


def test_marker_stays_away_where_a_log_was_not_closed_in_order() -> None:
    """The others are in order, and recovered all the same: the marker speaks for all."""
    disk = closed_directory()
    manager = reopened(disk)
    manager.append("orders", 1, "two")
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


def test_log_closed_and_opened_again_while_the_manager_runs_is_clean() -> None:
    """The manager remembers what the marker says no longer."""
    disk = closed_directory()
    manager = reopened(disk)
    manager.append("orders", 0, "two")
    manager.log("orders", 0).close()
    assert manager.log("orders", 0).recovery_report.clean
    assert ["one", "two"] == values(manager, "orders", 0)
    manager.close()


def test_marker_that_cannot_be_written_is_told_and_missing() -> None:
    """Everything else is closed; the next start recovers."""
    disk = closed_directory()
    manager = reopened(disk)
    manager.append("orders", 0, "two")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".kafka_cleanshutdown.tmp")
    with pytest.raises(LogStorageError):
        manager.close()
    assert not has_marker(DATA, disk)
    manager = reopened(disk)
    assert ["one", "two"] == values(manager, "orders", 0)
    manager.close()
