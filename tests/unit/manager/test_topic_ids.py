"""Topic ids: deleted topics stay deleted, and a partition of another id is stray."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from kafkalog import (
    DiskFullError,
    InconsistentTopicIdError,
    LogManager,
    LogOfflineError,
    Record,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.manager.overrides import read_overrides
from kafkalog.state.partition_metadata import read_partition_metadata, write_partition_metadata
from tests.support.managers import (
    append_texts,
    fail_directory,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.usefixtures("_quiet")

A, B, C = Path("/disks/a"), Path("/disks/b"), Path("/disks/c")


def two(says: dict[str, str] | None = None) -> SimulatedDisk:
    """Return a disk with a topic that has a partition in each of two directories."""
    disk = SimulatedDisk()
    with manual_manager(A, B, filesystem=disk) as manager:
        manager.create_topic("t", 2, says)
        for number in (0, 1):
            append_texts(manager, "t", number, "old")
    return disk


def without_b(disk: SimulatedDisk) -> LogManager:
    """Return a manager that cannot open its second directory."""
    disk.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="b/meta.properties")
    manager = manual_manager(A, B, filesystem=disk)
    assert [True, False] == [each.is_online for each in manager.health().directories]
    return manager


def notes(disk: SimulatedDisk, directory: Path = A) -> set[str]:
    """Return the topics with a deletion note in a directory."""
    found = read_overrides(disk, directory)
    return set() if found is None else set(found.deleting)


@pytest.mark.parametrize("made_again", [0, 1, 2])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("comes_back", ["now", "later"])
def test_delete_topic_with_an_offline_directory_stays_deleted(
    made_again: int, restarts: bool, comes_back: str
) -> None:
    """PAR-2: created again or not, in this run or a later one; also its settings."""
    disk = two({"retention.ms": "-1"})
    manager = without_b(disk)
    manager.delete_topic("t")
    assert {"t"} == notes(disk)
    if made_again:
        manager.create_topic("t", made_again)
        for number in range(made_again):
            append_texts(manager, "t", number, "new")
    if restarts:
        manager.close()
        manager = without_b(disk)
        assert {"t"} == notes(disk)
    if comes_back == "now":
        manager.bring_online(B)
    else:
        manager.close()
        manager = manual_manager(A, B, filesystem=disk)
    assert ({"t": tuple(range(made_again))} if made_again else {}) == manager.topics()
    for number in range(made_again):
        assert ["new"] == values(manager, "t", number)
        assert manager.log("t", number).config.retention_ms > 0
    assert manager.health().is_healthy
    assert set() == notes(disk) | notes(disk, B)
    manager.close()
    with manual_manager(A, B, filesystem=disk) as manager:
        assert made_again == len(manager.partitions())
        assert manager.health().is_healthy


def test_delete_topic_after_its_directory_went_offline_stays_deleted() -> None:
    """PAR-2: the same for a directory whose partitions are known."""
    disk = two()
    manager = manual_manager(A, B, filesystem=disk)
    append_texts(manager, "t", 1, "lost")
    fail_directory(disk, manager, "t", 1)
    manager.delete_topic("t")
    assert {} == manager.topics()
    assert {"t"} == notes(disk)
    manager.create_topic("t", 1)
    manager.bring_online(B)
    assert {"t": (0,)} == manager.topics()
    assert set() == notes(disk)
    assert manager.health().is_healthy
    manager.close()


def test_delete_topic_with_an_offline_directory_on_a_full_disk_deletes_nothing() -> None:
    """PAR-2: without the note the offline partitions would return."""
    disk = two()
    manager = without_b(disk)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".kafkalog_topics.tmp")
    with pytest.raises(DiskFullError):
        manager.delete_topic("t")
    assert ["old"] == values(manager, "t", 0)
    manager.delete_topic("t")
    manager.close()


def test_deletion_note_waits_for_the_directory_id() -> None:
    """PAR-2: a new disk at the same path does not end it."""
    disk = two()
    manager = without_b(disk)
    manager.delete_topic("t")
    manager.close()
    disk.rename(B, C)
    with manual_manager(A, B, filesystem=disk) as manager:
        assert manager.health().is_healthy
        assert {"t"} == notes(disk)
        manager.create_topic("t", 2)
        append_texts(manager, "t", 1, "new")
    with manual_manager(A, B, C, filesystem=disk) as manager:
        assert manager.health().is_healthy
        assert {"t": (0, 1)} == manager.topics()
        assert ["new"] == values(manager, "t", 1)
        assert set() == notes(disk)


def test_create_topic_with_offline_partitions_is_refused() -> None:
    """PAR-2: a known topic is not created a second time, and keeps its settings."""
    disk = SimulatedDisk()
    with manual_manager(A, B, filesystem=disk) as manager:
        manager.create_topic("first", 1)
        manager.create_topic("t", 1, {"retention.ms": "-1"})
        assert B == manager.directory_of("t", 0)
    manager = without_b(disk)
    for call in (manager.create_topic, lambda name: manager.create_partition(name, 0)):
        with pytest.raises(LogOfflineError, match="exists"):
            call("t")
    with pytest.raises(LogOfflineError):
        manager.delete_topic("t")
    manager.bring_online(B)
    assert -1 == manager.log("t").config.retention_ms
    manager.close()


def with_other_id(disk: SimulatedDisk, path: Path) -> uuid.UUID:
    """Write another topic id to a partition directory."""
    other = uuid.UUID(int=12345678901234567890123456789)
    write_partition_metadata(disk, path, other)
    return other


def test_partition_of_another_topic_id_is_stray_and_unchanged() -> None:
    """PAR-2: not served, reported, and served again when the id is repaired."""
    disk = two()
    own = read_partition_metadata(disk, B / "t-1")
    assert own is not None
    with_other_id(disk, B / "t-1")
    before = {k: v for k, v in disk.snapshot().items() if k.startswith(f"{B}/t-1")}
    manager = manual_manager(A, B, filesystem=disk)
    assert {"t": (0,)} == manager.topics()
    health = manager.health()
    assert not health.is_healthy
    (stray,) = health.stray_partitions
    assert (TopicPartition("t", 1), B / "t-1") == (stray.topic_partition, stray.path)
    assert stray.expected_id != stray.topic_id
    with pytest.raises(InconsistentTopicIdError, match="is stray"):
        manager.log("t", 1)
    disk.rename(B / "t-1", C)
    assert manager.health().is_healthy
    disk.rename(C, B / "t-1")
    assert not manager.health().is_healthy
    manager.create_partition("t", 1)
    assert A == manager.directory_of("t", 1)
    append_texts(manager, "t", 1, "new")
    manager.delete_topic("t")
    scheduler_of(manager).advance(10_000)
    with pytest.raises(InconsistentTopicIdError):
        manager.create_topic("t")
    manager.close()
    assert before == {k: v for k, v in disk.snapshot().items() if k.startswith(f"{B}/t-1")}
    write_partition_metadata(disk, B / "t-1", own)
    with manual_manager(A, B, filesystem=disk) as manager:
        assert ["old"] == values(manager, "t", 1)


def test_partitions_of_different_ids_without_a_note_are_all_stray(tmp_path: Path) -> None:
    """PAR-2: only the operator knows which incarnation is right."""
    with LogManager(tmp_path / "a") as manager:
        manager.create_topic("t", 3)
    (tmp_path / "a" / ".kafkalog_topics").unlink()
    filesystem = PosixFileSystem()
    write_partition_metadata(filesystem, tmp_path / "a" / "t-2", uuid.uuid4())
    with LogManager(tmp_path / "a") as manager:
        assert {} == manager.topics()
        assert 3 == len(manager.health().stray_partitions)
        assert {None} == {each.expected_id for each in manager.health().stray_partitions}
        with pytest.raises(InconsistentTopicIdError, match="is not known"):
            manager.create_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.log("other")


def test_partitions_created_again_by_a_broker_are_served(tmp_path: Path) -> None:
    """PAR-2: the noted id does not count if all partitions have the same other id."""
    with LogManager(tmp_path / "a") as manager:
        manager.create_topic("t", 2)
    fresh = uuid.uuid4()
    for number in (0, 1):
        write_partition_metadata(PosixFileSystem(), tmp_path / "a" / f"t-{number}", fresh)
    for _ in range(2):
        with LogManager(tmp_path / "a") as manager:
            assert manager.health().is_healthy
            assert {"t": (0, 1)} == manager.topics()
            manager.reconfigure("t", {"retention.ms": "7"})
    with LogManager(tmp_path / "a") as manager:
        manager.create_partition("t", 2)
    assert fresh == read_partition_metadata(PosixFileSystem(), tmp_path / "a" / "t-2")


@pytest.mark.parametrize("damage", [None, b"", b"version: 0\ntopic_id: x"])
def test_partition_without_a_readable_id_is_served(tmp_path: Path, damage: bytes | None) -> None:
    """PAR-2: as those of old brokers; a damaged file is a fault of its partition."""
    with LogManager(tmp_path / "a") as manager:
        manager.create_topic("t", 2)
        manager.log("t", 1).append([Record(value=b"x")])
    path = tmp_path / "a" / "t-1" / "partition.metadata"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with LogManager(tmp_path / "a") as manager:
        assert [b"x"] == [record.value for record in manager.log("t", 1).records()]
        faults = [(each.task, each.subject) for each in manager.health().faults]
        expected = [("partition.metadata", TopicPartition("t", 1))]
        assert ([] if damage is None else expected) == faults


def test_opening_a_directory_does_not_write_its_ids(tmp_path: Path) -> None:
    """PAR-2: ids are noted with the next change."""
    with LogManager(tmp_path / "a") as manager:
        manager.create_topic("t", 2)
    (tmp_path / "a" / ".kafkalog_topics").unlink()
    LogManager(tmp_path / "a").close()
    assert not (tmp_path / "a" / ".kafkalog_topics").exists()
