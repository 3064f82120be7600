"""Deletions interrupted by a crash, and a broker that used the directories afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.files.atomic_files import read_file
from kafkalog.files.names import PARTITION_METADATA
from kafkalog.manager.overrides import read_overrides
from kafkalog.state.checkpoints import EpochEntry, LeaderEpochCheckpoint
from tests.support.broker_loader import EmulatedBroker
from tests.support.managers import append_texts, manual_manager, values
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A = Path("/disks/a")
ORDERS = [A / f"orders-{number}" for number in range(3)]


def killed_amid_deletion(rename_count: int) -> SimulatedDisk:
    """Return the disk of a process killed after `rename_count` of three partitions were renamed."""
    disk = SimulatedDisk()
    manager = manual_manager(A, filesystem=disk)
    manager.create_topic("orders", 3, {"retention.ms": "-1"})
    for number in range(3):
        append_texts(manager, "orders", number, "old")
    # The first rename is that of the note.
    disk.crash_at(rename_count + 2, only=frozenset({"rename"}))
    with contextlib.suppress(PowerCut):
        manager.delete_topic("orders")
    after = disk.killed()
    assert 3 - rename_count == sum(after.stat(path) is not None for path in ORDERS)
    return after


def partition_made_by_broker(disk: SimulatedDisk, path: Path, metadata: bytes) -> None:
    """Create an empty partition, as a broker does for a topic that its controller knows."""
    disk.make_directory(path)
    handle = disk.open(path / PARTITION_METADATA, create=True)
    handle.pwrite(metadata, 0)
    handle.close()
    disk.open(path / f"{0:020}.log", create=True).close()


def started(disk: SimulatedDisk) -> None:
    """Do the work of a broker's start: create missing partitions and lead all of them."""
    live = [path for path in ORDERS if disk.stat(path) is not None]
    old = live[0] if live else next(A / n for n in disk.list(A) if n.startswith("orders-"))
    metadata = read_file(disk, old / PARTITION_METADATA, max_bytes=1000) or b""
    for path in ORDERS:
        if path not in live:
            partition_made_by_broker(disk, path, metadata)
        LeaderEpochCheckpoint(disk, path / "leader-epoch-checkpoint").write([EpochEntry(7, 0)])


def appended(disk: SimulatedDisk) -> None:
    """Start, and append a record to each partition."""
    started(disk)
    for path in ORDERS:
        EmulatedBroker(disk, path).append(b"key", b"new", 1_700_000_000_000)


@pytest.mark.parametrize("rename_count", range(4))
@pytest.mark.parametrize("act", [started, appended], ids=["started", "appended"])
def test_interrupted_deletion_is_dropped_if_a_broker_used_the_topic(
    rename_count: int, act: Callable[[SimulatedDisk], None]
) -> None:
    """The partitions that the broker served, created or wrote stay."""
    disk = killed_amid_deletion(rename_count)
    act(disk)
    fresh = ["new"] if act is appended else []
    for _ in range(2):
        with manual_manager(A, filesystem=disk) as manager:
            assert {"orders": (0, 1, 2)} == manager.topics()
            for number in range(3):
                old = [] if number < rename_count else ["old"]
                assert old + fresh == values(manager, "orders", number)
        found = read_overrides(disk, A)
        assert found is not None
        assert {} == found.deleting


@pytest.mark.parametrize("rename_count", range(4))
def test_interrupted_deletion_is_completed_if_no_broker_used_the_topic(rename_count: int) -> None:
    """Also if a power cut has truncated a log."""
    disk = killed_amid_deletion(rename_count)
    for path in ORDERS[rename_count:]:
        handle = disk.open(path / f"{0:020}.log", write=True)
        handle.truncate(handle.size() - 5)
        handle.close()
    with manual_manager(A, filesystem=disk) as manager:
        assert {} == manager.topics()
