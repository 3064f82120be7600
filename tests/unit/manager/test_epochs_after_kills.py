"""Leader epochs of a manager's logs: after kills, power cuts and `lower_leader_epochs`."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogManager, TopicPartition
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.files.names import SESSION_NOTE, SYNC_JOURNAL
from tests.support.managers import ONE_PARTITION, append_texts, manual_manager
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DATA = Path("/data")


def opened(disk: SimulatedDisk, **arguments: Any) -> LogManager:
    """Open a manager on the disk."""
    return manual_manager(DATA, filesystem=disk, **arguments)


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Disk with a data directory of three partitions that was closed cleanly."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    with opened(disk) as manager:
        manager.create_topic("orders", 3)
        for partition in range(3):
            append_texts(manager, "orders", partition, "a", "b")
    return disk


def epochs(manager: LogManager) -> list[int]:
    """Return the leader epochs of the partitions."""
    return [manager.log("orders", partition).leader_epoch for partition in range(3)]


def test_kill_of_the_process_does_not_raise_epochs(disk: SimulatedDisk) -> None:
    """INT-3: also of partitions that were idle, never opened, or just closed."""
    for number in range(5):
        manager = opened(disk)
        assert [0, 0, 0] == epochs(manager), number
        append_texts(manager, "orders", 0, "c")
        if number == 2:
            # A kill during the close.
            manager.log("orders", 0).close()
        disk = disk.killed()
    assert [0, 0, 0] == epochs(opened(disk))


def test_kill_after_a_writer_without_sync_journals_does_not_raise_epochs(
    disk: SimulatedDisk,
) -> None:
    """INT-3: a broker writes no journals, and its writes of this boot are as safe."""
    assert [0, 0, 0] == epochs(opened(disk))
    disk = disk.killed()
    for partition in range(3):
        path = DATA / f"orders-{partition}" / SYNC_JOURNAL
        if disk.stat(path) is not None:
            disk.unlink(path)
    assert [0, 0, 0] == epochs(opened(disk))


def test_power_cut_raises_the_epochs_of_all_partitions(disk: SimulatedDisk) -> None:
    """INT-3: the records at the ends of the logs are not known."""
    assert [0, 0, 0] == epochs(opened(disk))
    left = disk.crash(CrashChoice("all"))
    assert [1, 1, 1] == epochs(opened(left))


def test_replaced_session_note_raises_the_epochs(disk: SimulatedDisk) -> None:
    """INT-3: the note is valid only undamaged, in its own file, and in the boot of its session."""
    assert [0, 0, 0] == epochs(opened(disk))
    disk = disk.killed()
    content = disk.snapshot()[str(DATA / SESSION_NOTE)]
    assert content is not None
    assert (b"kafkalog", 28) == (content[:8], len(content))
    disk.create_new(DATA / SESSION_NOTE).pwrite(content[:-1] + b"\0", 0)
    assert [1, 1, 1] == epochs(opened(disk))


def test_failed_sync_journal_removes_the_session_note(disk: SimulatedDisk) -> None:
    """INT-3: only the journal records which offsets were truncated."""
    manager = opened(disk)
    log = manager.log("orders", 0)
    append_texts(manager, "orders", 0, "c")
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"sync"}), suffix=SYNC_JOURNAL)
    log.flush()
    assert disk.stat(DATA / "orders-0" / SYNC_JOURNAL) is None
    assert disk.stat(DATA / SESSION_NOTE) is None
    log.truncate_to(1)
    assert 1 <= opened(disk.killed()).log("orders", 0).leader_epoch


def test_lower_leader_epochs_changes_logs_and_positions(tmp_path: Path) -> None:
    """INT-3: a group keeps its position and its metadata."""
    where = TopicPartition("orders", 1)
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        manager.create_topic("orders", 2)
        for _ in range(3):
            append_texts(manager, "orders", 1, "a", "b")
            manager.log("orders", 1).truncate_to(1)
        append_texts(manager, "orders", 1, "c")
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
