"""Deletions that a crash cut short, and a broker that had the directories before the next start."""

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
from tests.support.managers import manual_manager, values
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A = Path("/disks/a")
ORDERS = [A / f"orders-{number}" for number in range(3)]


def killed_amid_deletion(rename_count: int) -> SimulatedDisk:
    """Return the disk of a process that was killed when so many of three partitions had gone."""
    disk = SimulatedDisk()
    manager = manual_manager(A, filesystem=disk)
    manager.create_topic("orders", 3, {"retention.ms": "-1"})
    for number in range(3):
        manager.append("orders", number, "old")
    # The first renaming is that of the note.
    disk.crash_at(rename_count + 2, only=frozenset({"rename"}))
    with contextlib.suppress(PowerCut):
        manager.delete_topic("orders")
    after = disk.killed()
    assert 3 - rename_count == sum(after.stat(path) is not None for path in ORDERS)
    return after


def partition_made_by_broker(disk: SimulatedDisk, path: Path, metadata: bytes) -> None:
    """Make what a broker makes of a topic that its controller knows: an empty partition."""
    disk.make_directory(path)
    handle = disk.open(path / PARTITION_METADATA, create=True)
    handle.pwrite(metadata, 0)
    handle.close()
    disk.open(path / f"{0:020}.log", create=True).close()


def started(disk: SimulatedDisk) -> None:
    """Do what a broker does that starts: make what is missing, lead all partitions."""
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
def test_deletion_cut_short_is_over_when_a_broker_had_the_topic(
    rename_count: int, act: Callable[[SimulatedDisk], None]
) -> None:
    """A broker in between changes nothing: what it serves, makes and appends to stays."""
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
def test_deletion_cut_short_is_finished_where_nothing_was_there_since(rename_count: int) -> None:
    """Also where a power cut has taken the end of a log."""
    disk = killed_amid_deletion(rename_count)
    for path in ORDERS[rename_count:]:
        handle = disk.open(path / f"{0:020}.log", write=True)
        handle.truncate(handle.size() - 5)
        handle.close()
    with manual_manager(A, filesystem=disk) as manager:
        assert {} == manager.topics()
