"""Managers of tests: kills, power cuts, restarts, and the end of a test."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from kafkalog import LogConfig, LogLockedError, LogManager, ManagerConfig, Record
from kafkalog.errors import KafkaLogError
from kafkalog.testing import ManagerFactory, assert_offsets, assert_records


def append(manager: LogManager, *values: bytes, durable: bool = False) -> None:
    """Append a batch for each value to orders-0."""
    for value in values:
        manager.log("orders").append(
            [Record(value=value)], wait="durable" if durable else "written"
        )


def test_kill_keeps_written_records_and_leaves_no_clean_shutdown(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The next manager recovers the log."""
    append(manager, b"1", durable=True)
    append(manager, b"2")
    managers.kill(manager)
    assert manager.is_closed
    again = managers.reopen(manager)
    assert_records(again.log("orders"), [b"1", b"2"])
    assert not again.log("orders").recovery_report.clean


def test_kill_fails_undelivered_records_and_writes_none(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """A record that waits for `linger.ms` is lost with its process."""
    producer = manager.producer(linger_ms=1_000)
    waiting = producer.send("orders", b"1", partition=0)
    managers.kill(manager)
    with pytest.raises(KafkaLogError):
        waiting.result(0)
    assert_offsets(managers.reopen(manager).log("orders"), end=0)


def test_cut_power_loses_records_that_no_sync_covered(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Durable records stay; records after the last sync are lost."""
    append(manager, b"1", b"2", durable=True)
    append(manager, b"3", b"4")
    managers.cut_power()
    again = managers.reopen(manager)
    assert_records(again.log("orders"), [b"1", b"2"])
    append(again, b"5", durable=True)
    managers.cut_power()
    assert_records(managers.reopen(again).log("orders"), [b"1", b"2", b"5"])


def test_cut_power_keeps_records_that_were_committed_together(managers: ManagerFactory) -> None:
    """With syncs of the whole file system, too, which the disk of a test does not offer."""
    manager = managers.open(config=ManagerConfig(commit_syncfs_logs=2))
    manager.create_topic("orders", 5)
    for partition in range(5):
        manager.log("orders", partition).append([Record(value=b"v")])
    manager.flush()
    managers.cut_power()
    again = managers.reopen(manager)
    for partition in range(5):
        assert_records(again.log("orders", partition), [b"v"])


def test_cut_power_after_a_kill_loses_unsynced_records_of_the_killed_manager(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The page cache outlives a process and not a power cut."""
    append(manager, b"1", durable=True)
    append(manager, b"2")
    managers.kill(manager)
    managers.cut_power()
    assert_records(managers.reopen(manager).log("orders"), [b"1"])


def test_cut_power_keeps_committed_transactions_and_aborts_open_ones(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Commits are durable with every producer."""
    producer = manager.producer(transactional_id="t")
    with producer.transaction():
        producer.send("orders", b"decided", partition=0)
    producer.begin_transaction()
    producer.send("orders", b"open", partition=0)
    producer.flush()
    managers.cut_power()
    again = managers.reopen(manager)
    again.producer().close()
    assert_records(again.log("orders"), [b"decided"], isolation="read_committed")


def test_cut_power_of_rolled_and_idle_logs_reopens(tmp_path: Path) -> None:
    """Preallocated, trimmed and renamed files are restored to a state that opens."""
    config = ManagerConfig(log=LogConfig(segment_bytes=1_024, preallocate=True))
    with ManagerFactory(tmp_path, config=config) as managers:
        manager = managers.open()
        manager.create_topic("orders")
        values = [b"%d" % number for number in range(100)]
        append(manager, *values[:60])
        manager.flush()
        append(manager, *values[60:])
        managers.cut_power()
        manager = managers.reopen(manager)
        found = [record.value for record in manager.log("orders").records()]
        assert values[: len(found)] == found
        assert 60 <= len(found) < 100


def test_reopen_after_a_close_is_a_clean_start(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """`reopen` closes an open manager in order."""
    append(manager, b"1")
    again = managers.reopen(manager)
    assert manager.is_closed
    assert again.log("orders").recovery_report.clean
    assert_records(again.log("orders"), [b"1"])


def test_open_of_several_managers_has_separate_directories(managers: ManagerFactory) -> None:
    """A second manager on the same directory is refused, as of another process."""
    first = managers.open("a", "b")
    second = managers.open("c")
    assert 2 == len(first.health().directories)
    assert 1 == len(second.health().directories)
    with pytest.raises(LogLockedError):
        managers.open("b")


def test_kill_of_another_manager_raises(managers: ManagerFactory, tmp_path: Path) -> None:
    """Only a manager of the factory can be killed."""
    with LogManager([tmp_path / "other"]) as manager:
        for refused in (managers.kill, managers.reopen):
            with pytest.raises(ValueError, match="must be one of this factory"):
                refused(manager)


def test_close_without_a_fault_raises_nothing_and_warns_of_nothing(tmp_path: Path) -> None:
    """Killed managers and managers with an offline directory count as closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ManagerFactory(tmp_path) as managers:
            manager = managers.open()
            manager.create_topic("orders")
            managers.kill(manager)
            manager = managers.reopen(manager)
            managers.faults.fail_next_sync("orders")
            with pytest.raises(KafkaLogError):
                append(manager, b"1", durable=True)
        assert manager.is_closed
