"""Leader epochs of a manager's logs: after kills, after power cuts, lowered for a hand-over."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from kafkalog import TopicPartition
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.files.names import SESSION_NOTE, SYNC_JOURNAL
from tests.support.managers import ONE_PARTITION, ManualManager, manual_manager
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DATA = Path("/data")


def opened(disk: SimulatedDisk, **arguments: Any) -> ManualManager:
    """Open a manager on the disk."""
    return manual_manager(DATA, filesystem=disk, **arguments)


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Return a disk with a data directory that was closed in order: three partitions."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    with opened(disk) as manager:
        manager.create_topic("orders", 3)
        for partition in range(3):
            manager.append("orders", partition, "a", "b")
    return disk


def epochs(manager: ManualManager) -> list[int]:
    """Return the leader epochs of the partitions."""
    return [manager.log("orders", partition).leader_epoch for partition in range(3)]


def test_kills_of_a_manager_leave_all_epochs_as_they_are(disk: SimulatedDisk) -> None:
    """INT-3: also of partitions that were at rest, never opened, or just closed."""
    for number in range(5):
        manager = opened(disk)
        assert [0, 0, 0] == epochs(manager), number
        manager.append("orders", 0, "c")
        if number == 2:
            # A kill in the middle of the closing.
            manager.log("orders", 0).close()
        disk = disk.killed()
    assert [0, 0, 0] == epochs(opened(disk))


def test_kill_after_a_writer_without_notes_leaves_the_epochs(disk: SimulatedDisk) -> None:
    """INT-3: a broker writes none, and what it wrote in this boot is as safe."""
    assert [0, 0, 0] == epochs(opened(disk))
    disk = disk.killed()
    for partition in range(3):
        path = DATA / f"orders-{partition}" / SYNC_JOURNAL
        if disk.stat(path) is not None:
            disk.unlink(path)
    assert [0, 0, 0] == epochs(opened(disk))


def test_power_cut_raises_the_epochs_of_all_partitions(disk: SimulatedDisk) -> None:
    """INT-3: nothing tells what was at their ends."""
    assert [0, 0, 0] == epochs(opened(disk))
    left = disk.crash(CrashChoice("all"))
    assert [1, 1, 1] == epochs(opened(left))


def test_session_note_is_of_this_cache_and_this_file_alone(disk: SimulatedDisk) -> None:
    """INT-3: a copy says nothing, nor one that is damaged, nor none."""
    assert [0, 0, 0] == epochs(opened(disk))
    disk = disk.killed()
    content = disk.snapshot()[str(DATA / SESSION_NOTE)]
    assert content is not None
    assert (b"kafkalog", 28) == (content[:8], len(content))
    disk.create_new(DATA / SESSION_NOTE).pwrite(content[:-1] + b"\0", 0)
    assert [1, 1, 1] == epochs(opened(disk))


def test_log_that_goes_on_without_its_note_withdraws_the_session(disk: SimulatedDisk) -> None:
    """INT-3: it alone knows where offsets were taken back."""
    manager = opened(disk)
    log = manager.log("orders", 0)
    manager.append("orders", 0, "c")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix=SYNC_JOURNAL)
    log.flush()
    assert disk.stat(DATA / "orders-0" / SYNC_JOURNAL) is None
    assert disk.stat(DATA / SESSION_NOTE) is None
    log.truncate_to(1)
    assert 1 <= opened(disk.killed()).log("orders", 0).leader_epoch


def test_lowered_epochs_of_a_manager_are_in_logs_and_positions(tmp_path: Path) -> None:
    """INT-3: a group keeps where it stands, and what it noted there."""
    where = TopicPartition("orders", 1)
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        manager.create_topic("orders", 2)
        for _ in range(3):
            manager.append("orders", 1, "a", "b")
            manager.log("orders", 1).truncate_to(1)
        manager.append("orders", 1, "c")
        with manager.consumer("group") as consumer:
            consumer.commit({where: CommittedOffset(2, "a note", 3, 1234)})
        assert (1, 1, 1) == manager.lower_leader_epochs()
        assert 0 == manager.log("orders", 1).leader_epoch
        assert (0, 0, 0) == manager.lower_leader_epochs()
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        with manager.consumer("group") as consumer:
            assert CommittedOffset(2, "a note", None, 1234) == consumer.committed(where)
        found = {
            batch.header.partition_leader_epoch for batch in manager.log("orders", 1).batches()
        }
        assert {0} == found
