"""Tests of disk errors: EIO of any call marks the data directory offline, a full disk does not."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog import (
    DiskFullError,
    KafkaLogError,
    LogConfig,
    LogManager,
    LogOfflineError,
    LogStorageError,
    ManagerConfig,
    Record,
    TopicPartition,
)
from kafkalog.log.log import partition_of
from tests.support.managers import SMALL_LOG, append_texts, manual_manager, scheduler_of, values
from tests.support.simulated_disk import SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")
NAME = TopicPartition("orders", 0)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture(name="_quiet")
def fixture_quiet() -> Iterator[None]:
    """Disable logging during a test; other tests read the log."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


def say(manager: LogManager, partition: int) -> None:
    """Append a record to a partition, with a key."""
    manager.log("orders", partition).append([Record(key=b"k", value=b"goes on")])


def append(manager: LogManager) -> None:
    """Append one record."""
    manager.log("orders").append([Record(key=b"k", value=bytes(50))])


def append_durably(manager: LogManager) -> None:
    """Append one record, and wait for the sync."""
    manager.log("orders").append([Record(key=b"k", value=b"x")], wait="durable")


def append_and_roll(manager: LogManager) -> None:
    """Append until a segment is rolled."""
    manager.log("orders").append([Record(key=b"k", value=bytes(590))])


def roll(manager: LogManager) -> None:
    """Roll the active segment."""
    manager.log("orders").roll()


def flush(manager: LogManager) -> None:
    """Append and flush."""
    append(manager)
    manager.log("orders").flush()


def read(manager: LogManager) -> None:
    """Read every record."""
    list(manager.log("orders").records())


def look_up(manager: LogManager) -> None:
    """Look up a record and a time."""
    manager.log("orders").get(9)
    manager.log("orders").offset_for_timestamp(0)


def retain(manager: LogManager) -> None:
    """Let the retention task delete a segment."""
    manager.reconfigure("orders", {"cleanup.policy": "delete", "retention.bytes": "700"})
    scheduler_of(manager).advance(310_000)


def delete_records(manager: LogManager) -> None:
    """Move the log start within a segment."""
    manager.log("orders").delete_records(7)


def truncate(manager: LogManager) -> None:
    """Truncate the end of the log."""
    manager.log("orders").truncate_to(10)


def compact(manager: LogManager) -> None:
    """Compact now."""
    manager.compact("orders", include_active=True)


def compact_in_background(manager: LogManager) -> None:
    """Let the cleaner compact in the background."""
    manager.log("orders").roll()
    scheduler_of(manager).advance(60_000)


def rest(manager: LogManager) -> None:
    """Release the files of the log."""
    append(manager)
    assert not partition_of(manager.log("orders")).idle_files.try_release()


def wake(manager: LogManager) -> None:
    """Append to a log whose files are released."""
    assert partition_of(manager.log("orders")).idle_files.try_release()
    append(manager)


def reopen(manager: LogManager) -> None:
    """Reopen a log that the caller closed."""
    manager.log("orders").close()
    read(manager)


def checkpoint(manager: LogManager) -> None:
    """Let the periodic tasks write the checkpoints."""
    flush(manager)
    scheduler_of(manager).advance(90_000)


def create(manager: LogManager) -> None:
    """Create a topic, whose partition then goes to the other directory."""
    manager.create_topic("new", 2)


def delete(manager: LogManager) -> None:
    """Delete the topic."""
    manager.delete_topic("orders")


Operation = Callable[[LogManager], None]
OPERATIONS: list[tuple[Operation, set[str], str]] = [
    (append, {"pwrite", "pwritev"}, ".log"),
    (append_durably, {"sync"}, ".log"),
    (append_and_roll, {"create"}, ".log"),
    (append_and_roll, {"create"}, "index"),
    (roll, {"create"}, ".log"),
    (roll, {"create"}, "index"),
    (flush, {"sync"}, ".log"),
    (read, {"open", "map"}, ".log"),
    (read, {"pread", "pread_into", "map"}, ".log"),
    (look_up, {"open", "map"}, "index"),
    (retain, {"rename"}, ".log"),
    (delete_records, {"create"}, "log-start-offset-checkpoint.tmp"),
    (truncate, {"rename", "truncate", "create"}, ""),
    (compact, {"create"}, ".cleaned"),
    (compact, {"rename"}, ".swap"),
    (compact, {"open", "map", "pread"}, "0000.log"),
    (compact_in_background, {"create"}, ".cleaned"),
    (compact_in_background, {"open", "map", "pread"}, "0000.log"),
    (rest, {"sync"}, ".log"),
    (wake, {"open"}, ".log"),
    (reopen, {"open", "list"}, "orders-0"),
    (reopen, {"open"}, ".log"),
    (checkpoint, {"create"}, "replication-offset-checkpoint.tmp"),
    (create, {"make_directory"}, "/new-0"),
    (delete, {"rename"}, "/orders-0"),
]


def prepared() -> tuple[SimulatedDisk, LogManager]:
    """Return a manager of two directories with a topic of several segments, after a clean stop."""
    disk = SimulatedDisk()
    config = ManagerConfig(log=SMALL_LOG, num_recovery_threads_per_data_dir=1)
    manager = manual_manager(A, B, config=config, filesystem=disk)
    manager.create_topic("orders", 2, COMPACTED)
    for part in (0, 1):
        for each in range(12):
            manager.log("orders", part).append([Record(key=b"k%d" % (each % 3), value=bytes(90))])
    manager.close()
    manager = manual_manager(A, B, config=config, filesystem=disk)
    manager.log("orders", 1)
    manager.log("orders", 0)
    return disk, manager


@pytest.mark.parametrize(("operation", "only", "suffix"), OPERATIONS)
def test_first_eio_takes_the_directory_offline_and_is_a_fault(
    operation: Operation, only: set[str], suffix: str
) -> None:
    """PAR-4: for any call; the other directory works, and `bring_online` loses nothing."""
    disk, manager = prepared()
    disk.fail_at(1, errno.EIO, only=frozenset(only), suffix=suffix)
    with contextlib.suppress(LogStorageError):
        operation(manager)
    assert disk.faults_waiting == 0, "the operation makes no such call"
    health = manager.health()
    assert [False, True] == [each.is_online for each in health.directories]
    assert not health.is_healthy
    assert isinstance(health.directories[0].error, LogStorageError)
    assert errno.EIO == health.directories[0].error.errno
    with pytest.raises(LogOfflineError):
        manager.log("orders", 0)
    say(manager, 1)
    manager.bring_online(A)
    assert manager.health().is_healthy
    if operation is not delete:
        assert manager.log("orders", 0).log_end_offset >= 10
        say(manager, 0)
        assert "goes on" == values(manager, "orders", 0)[-1]
    manager.close()


def test_full_disk_is_a_fault_until_an_append_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    """SRV-5: health and the log report it, once; an append that fits removes the fault."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    with manual_manager(A, filesystem=disk) as manager:
        manager.create_topic("orders", 2)
        with manager.producer(linger_ms=0, retry_backoff_ms=100) as producer:
            producer.send("orders", b"before", partition=0)
            assert producer.flush(0) == 0
            assert manager.health().is_healthy
            for turn in (1, 2):
                disk.capacity_bytes = 0
                waiting = producer.send("orders", bytes(480), partition=0)
                assert producer.flush(0) == 1
                scheduler_of(manager).advance(1_000)
                (fault,) = manager.health().faults
                assert ("append", NAME) == (fault.task, fault.subject)
                assert isinstance(fault.error, DiskFullError)
                assert fault.failure_count > 5
                assert not manager.health().is_healthy
                assert turn == sum("append of orders-0 failed" in text for text in caplog.messages)
                disk.capacity_bytes = None
                scheduler_of(manager).advance(100)
                assert turn == waiting.result(0).offset
                assert manager.health().is_healthy


def test_full_disk_without_waiting_records_is_no_fault() -> None:
    """The producer is closed, or its records have failed: nothing waits for space any more."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    with manual_manager(A, filesystem=disk) as manager:
        manager.create_topic("orders")
        manager.log("orders")
        producer = manager.producer(on_full="raise", linger_ms=0)
        disk.capacity_bytes = 0
        sent = producer.send("orders", bytes(480))
        assert producer.flush(0) == 0
        assert isinstance(sent.exception(0), DiskFullError)
        assert ["append"] == [fault.task for fault in manager.health().faults]
        producer.close()
        assert manager.health().is_healthy
        disk.capacity_bytes = None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(("operation", "only", "suffix"), OPERATIONS)
def test_full_disk_or_quota_takes_nothing_offline(
    operation: Operation, only: set[str], suffix: str, number: int
) -> None:
    """PAR-4: a full disk is not a broken one, for any call."""
    disk, manager = prepared()
    disk.fail_at(1, number, only=frozenset(only), suffix=suffix)
    with contextlib.suppress(LogStorageError):
        operation(manager)
    assert disk.faults_waiting == 0, "the operation makes no such call"
    assert [True, True] == [each.is_online for each in manager.health().directories]
    with contextlib.suppress(KafkaLogError):
        manager.log("orders", 0).log_end_offset  # noqa: B018
    say(manager, 1)
    manager.close()


def test_failed_append_is_a_fault_of_its_partition() -> None:
    """PAR-4: it names the partition and the task, and `bring_online` removes it."""
    disk, manager = prepared()
    disk.fail_at(1, errno.EIO, only=frozenset({"pwrite", "pwritev"}), suffix=".log")
    with pytest.raises(LogStorageError):
        append(manager)
    ((task, subject),) = [(each.task, each.subject) for each in manager.health().faults]
    assert ("disk", NAME) == (task, subject)
    manager.bring_online(A)
    assert () == manager.health().faults
    manager.close()


@pytest.mark.usefixtures("_quiet")
def test_directory_moved_away_goes_offline_and_can_be_brought_online(tmp_path: Path) -> None:
    """PAR-12: the next check finds it; after it is moved back, the records are complete."""
    manager = manual_manager(tmp_path / "a", tmp_path / "b", config=ManagerConfig(log=SMALL_LOG))
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one")
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    append_texts(manager, "orders", 0, "two")
    scheduler_of(manager).advance(90_000)
    health = manager.health()
    assert [False, True] == [each.is_online for each in health.directories]
    assert "is gone" in str(health.directories[0].error)
    manager.create_topic("new", 3)
    assert {tmp_path / "b"} == {manager.directory_of("new", number) for number in range(3)}
    assert not (tmp_path / "a").exists()
    with pytest.raises(LogStorageError, match="is gone"):
        manager.bring_online(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "a")
    manager.bring_online(tmp_path / "a")
    assert manager.health().is_healthy
    assert ["one", "two"] == values(manager, "orders", 0)
    manager.close()


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("instead", ["nothing", "file", "directory"])
@pytest.mark.parametrize("call", ["create", "reconfigure", "roll", "durable", "close"])
def test_directory_replaced_by_another_is_not_written(
    tmp_path: Path, instead: str, call: str
) -> None:
    """PAR-12: whichever call comes first; a new directory at the path is not changed."""
    a, b = tmp_path / "a", tmp_path / "b"
    manager = manual_manager(a, b, config=ManagerConfig(log=SMALL_LOG))
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one")
    a.rename(tmp_path / "elsewhere")
    if instead == "file":
        a.write_text("x")
    elif instead == "directory":
        a.mkdir()
    with contextlib.suppress(KafkaLogError):
        if call == "create":
            manager.create_topic("new", 1)
        elif call == "reconfigure":
            manager.reconfigure("orders", {"retention.ms": "5"})
        elif call == "roll":
            manager.log("orders").roll()
        elif call == "durable":
            manager.log("orders").roll()
            manager.log("orders").append([Record(value=b"x")], wait="durable")
        else:
            with pytest.raises(LogStorageError):
                manager.close()
    if call != "close":
        assert [False, True] == [each.is_online for each in manager.health().directories]
        manager.close()
    assert not a.is_dir() or [] == list(a.iterdir())


@pytest.mark.usefixtures("_quiet")
def test_renamed_partition_directory_takes_only_its_log_offline(tmp_path: Path) -> None:
    """PAR-12: the data directory is still at its path."""
    manager = LogManager(tmp_path / "a", ManagerConfig(log=LogConfig()))
    manager.create_topic("orders", 2)
    log = manager.log("orders", 0)
    (tmp_path / "a" / "orders-0").rename(tmp_path / "orders-0")
    with pytest.raises(LogStorageError):
        log.append([Record(value=b"x")], wait="durable")
    assert manager.health().directories[0].is_online
    manager.log("orders", 1).append([Record(value=b"x")], wait="durable")
    with contextlib.suppress(KafkaLogError):
        manager.close()


def test_create_topic_in_a_directory_that_refuses_it_uses_the_next() -> None:
    """PAR-21, 15: the refusing directory stays online."""
    disk = SimulatedDisk()
    with manual_manager(A, B, filesystem=disk) as manager:
        disk.fail_at(1, errno.EACCES, only=frozenset({"make_directory"}), suffix="/orders-0")
        manager.create_topic("orders", 1)
        assert B == manager.directory_of("orders", 0)
        assert manager.health().is_healthy


def test_remote_index_cache_is_not_a_topic(tmp_path: Path) -> None:
    """PAR-21, 19: and is not listed as an unknown directory."""
    (tmp_path / "remote-log-index-cache").mkdir()
    with manual_manager(tmp_path) as manager:
        assert {} == manager.topics()
        assert () == manager.health().directories[0].unknown
        assert manager.health().is_healthy
