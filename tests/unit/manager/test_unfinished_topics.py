"""Topics created or deleted in part: the completion, and when it has to wait."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from kafkalog import DiskFullError, LogManager, LogStorageError, TopicExistsError
from kafkalog.files.names import TOPIC_OVERRIDES
from kafkalog.manager.overrides import read_overrides
from tests.support.managers import append_texts, manual_manager, values
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")


def after_power_cut(disk: SimulatedDisk) -> SimulatedDisk:
    """Return the disk after a power cut, without unsynced writes."""
    ((_choice, after),) = disk.crash_states(limit=1)
    return after


def half_made() -> SimulatedDisk:
    """Return a disk after a power cut when two of four partitions were created."""
    disk = SimulatedDisk()
    manager = manual_manager(A, B, filesystem=disk)
    disk.crash_at(3, only=frozenset({"make_directory"}))
    with contextlib.suppress(PowerCut):
        manager.create_topic("orders", 4, {"retention.ms": "-1"})
    return after_power_cut(disk)


def begun(disk: SimulatedDisk, directory: Path = A) -> tuple[dict[str, int], set[str]]:
    """Return the topics that a directory notes as being created, and as being deleted."""
    found = read_overrides(disk, directory)
    assert found is not None
    return dict(found.creating), set(found.deleting)


def test_topic_half_created_is_completed_by_the_next_start() -> None:
    """With its settings and id, and its partitions in their directories."""
    disk = half_made()
    with manual_manager(A, B, filesystem=disk) as manager:
        assert {"orders": (0, 1, 2, 3)} == manager.topics()
        assert [2, 2] == [each.partition_count for each in manager.health().directories]
        assert -1 == manager.log("orders", 3).config.retention_ms
    assert ({}, set()) == begun(disk)


def test_completion_of_a_topic_waits_for_an_offline_directory() -> None:
    """Its missing partitions may be there."""
    disk = half_made()
    disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="b/meta.properties")
    with manual_manager(A, B, filesystem=disk) as manager:
        assert {"orders": (0,)} == manager.topics()
        assert ({"orders": 4}, set()) == begun(disk)
        manager.bring_online(B)
        assert {"orders": (0, 1, 2, 3)} == manager.topics()
        assert manager.health().is_healthy


def test_topic_without_any_created_partition_is_dropped() -> None:
    """Its caller got no result, so it cannot have been used."""
    disk = SimulatedDisk()
    manager = manual_manager(A, filesystem=disk)
    disk.crash_at(1, only=frozenset({"make_directory"}))
    with contextlib.suppress(PowerCut):
        manager.create_topic("orders", 4)
    disk = after_power_cut(disk)
    assert ({"orders": 4}, set()) == begun(disk)
    with manual_manager(A, filesystem=disk) as manager:
        assert {} == manager.topics()
        assert ({}, set()) == begun(disk)
        manager.create_topic("orders", 2)
        assert {"orders": (0, 1)} == manager.topics()


def deleted_in_part(disk: SimulatedDisk) -> LogManager:
    """Return a manager that could delete only the first of four partitions."""
    manager = manual_manager(A, filesystem=disk)
    manager.create_topic("orders", 4, {"retention.ms": "-1"})
    disk.fail_at(1, errno.EACCES, only=frozenset({"rename"}), suffix="/orders-1")
    with contextlib.suppress(LogStorageError):
        manager.delete_topic("orders")
    assert {"orders": (1, 2, 3)} == manager.topics()
    return manager


def test_topic_half_deleted_is_deleted_by_the_next_call() -> None:
    """Until then it cannot be created again."""
    with deleted_in_part(SimulatedDisk()) as manager:
        for number in (0, 4):
            with pytest.raises(TopicExistsError, match="delete it again"):
                manager.create_partition("orders", number)
        manager.delete_topic("orders")
        assert {} == manager.topics()
        manager.create_topic("orders", 2)
        assert manager.topic_configs.defaults == manager.log("orders", 1).config


def test_topic_half_deleted_is_deleted_by_the_next_start() -> None:
    """Also after a clean close."""
    disk = SimulatedDisk()
    deleted_in_part(disk).close()
    with manual_manager(A, filesystem=disk) as manager:
        assert {} == manager.topics()
        assert frozenset() == manager.topic_configs.topics
    assert ({}, set()) == begun(disk)


def test_delete_topic_on_a_full_disk_frees_space() -> None:
    """It needs no write."""
    disk = SimulatedDisk()
    with manual_manager(A, filesystem=disk) as manager:
        manager.create_topic("orders", 2, {"retention.ms": "-1"})
        before = read_overrides(disk, A)
        for number in range(1, 9):
            disk.fail_at(number, errno.ENOSPC, only=frozenset({"pwrite"}))
        manager.delete_topic("orders")
        assert {} == manager.topics()
        assert frozenset() == manager.topic_configs.topics
        assert before == read_overrides(disk, A)
        disk.clear_faults()
        manager.create_topic("bills", 2)
        assert ({}, set()) == begun(disk)


def test_delete_partition_of_a_topic_with_a_creation_note_is_not_undone() -> None:
    """The deletion removes the note, so that the next start does not create the partition."""
    disk = SimulatedDisk()
    with manual_manager(A, filesystem=disk) as manager:
        disk.fail_at(2, errno.ENOSPC, only=frozenset({"create"}), suffix=f"{TOPIC_OVERRIDES}.tmp")
        manager.create_topic("orders", 3)
        assert ({"orders": 3}, set()) == begun(disk)
        append_texts(manager, "orders", 0, "one")
        manager.delete_partition("orders", 1)
        assert ({}, set()) == begun(disk)
    with manual_manager(A, filesystem=disk) as manager:
        assert {"orders": (0, 2)} == manager.topics()
        assert ["one"] == values(manager, "orders")


def test_topic_that_could_not_be_created_is_not_created_later() -> None:
    """Its caller got the error; also if the disk was too full to remove the note."""
    disk = SimulatedDisk()
    manager = manual_manager(A, filesystem=disk)
    disk.fail_at(3, errno.ENOSPC, only=frozenset({"make_directory"}))
    disk.fail_at(2, errno.ENOSPC, only=frozenset({"create"}), suffix=f"{TOPIC_OVERRIDES}.tmp")
    with pytest.raises(DiskFullError):
        manager.create_topic("orders", 4)
    assert {} == manager.topics()
    assert ({"orders": 4}, set()) == begun(disk)
    with manual_manager(A, filesystem=after_power_cut(disk)) as manager:
        assert {} == manager.topics()
