"""Faults on demand: each does to the real engine what its name states."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import (
    CorruptRecordError,
    DiskFullError,
    LogManager,
    LogOfflineError,
    LogStorageError,
    Record,
)
from kafkalog.testing import ManagerFactory, assert_records


def append(manager: LogManager, *values: bytes) -> None:
    """Append a batch for each value to orders-0."""
    for value in values:
        manager.log("orders").append([Record(value=value)])


def test_full_disk_refuses_appends_until_its_end(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """`Log.append` raises, and the log stays online."""
    append(manager, b"1")
    with managers.faults.full_disk(), pytest.raises(DiskFullError):
        append(manager, b"2")
    append(manager, b"3")
    assert_records(manager.log("orders"), [b"1", b"3"])


def test_full_disk_delays_records_of_a_producer(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """They are written after the end, in order; health has a fault in the meantime."""
    manager.log("orders")
    with manager.producer() as producer:
        with managers.faults.full_disk():
            sent = [producer.send("orders", b"%d" % each, partition=0) for each in range(3)]
            managers.time.advance(5_000)
            assert not any(each.done() for each in sent)
            assert not manager.health().is_healthy
        managers.time.advance(5_000)
        assert [0, 1, 2] == [each.result(0).offset for each in sent]
    assert manager.health().is_healthy
    assert_records(manager.log("orders"), [b"0", b"1", b"2"])


def test_full_disk_fails_records_of_a_producer_that_raises(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """`on_full="raise"` fails the futures at once."""
    manager.log("orders")
    with manager.producer(on_full="raise") as producer, managers.faults.full_disk():
        sent = producer.send("orders", b"1", partition=0)
        producer.flush()
        with pytest.raises(DiskFullError):
            sent.result(0)


def test_full_disk_refuses_the_first_use_of_a_partition(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The first use makes the files of a log; the next one tries again."""
    with managers.faults.full_disk(), pytest.raises(DiskFullError):
        manager.log("orders")
    append(manager, b"1")


def test_full_disk_of_one_directory_leaves_the_others(
    managers: ManagerFactory, tmp_path: Path
) -> None:
    """Partitions on other disks accept appends."""
    manager = managers.open("a", "b")
    manager.create_topic("events", 2)
    first, second = (manager.directory_of("events", each) for each in (0, 1))
    assert {tmp_path / "a", tmp_path / "b"} == {first, second}
    with managers.faults.full_disk(first):
        with pytest.raises(DiskFullError):
            manager.log("events", 0).append([Record(value=b"1")])
        manager.log("events", 1).append([Record(value=b"2")])


def test_fail_next_sync_takes_the_log_offline(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The append raises, later ones are refused, and `bring_online` recovers the log."""
    append(manager, b"1")
    managers.faults.fail_next_sync("orders", 0)
    with pytest.raises(LogStorageError):
        manager.log("orders").append([Record(value=b"2")], wait="durable")
    with pytest.raises(LogOfflineError):
        manager.log("orders")
    (directory,) = manager.health().directories
    assert not directory.is_online
    manager.bring_online(directory.path)
    manager.log("orders").append([Record(value=b"3")], wait="durable")
    assert_records(manager.log("orders"), [b"1", b"2", b"3"])


def test_fail_next_sync_of_another_partition_waits_for_its_sync(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Only the named partition fails."""
    managers.faults.fail_next_sync("orders", 1)
    manager.log("orders", 0).append([Record(value=b"1")], wait="durable")
    with pytest.raises(LogStorageError):
        manager.log("orders", 1).append([Record(value=b"1")], wait="durable")


def test_damage_of_a_stored_batch_is_found_by_readers(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The reader raises at the batch; with on_corrupt="skip" it has the others."""
    append(manager, b"1", b"2", b"3")
    managers.faults.damage("orders", 0, 1)
    log = manager.log("orders")
    with pytest.raises(CorruptRecordError, match="offsets 1 to 1"):
        list(log.records())
    assert [b"1", b"3"] == [record.value for record in log.records(on_corrupt="skip")]
    assert [(1, 2)] == [(each.first_offset, each.next_offset) for each in log.corrupt_ranges()]


def test_damage_of_a_rolled_segment_is_in_its_file(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The segment with the offset is changed, and not the active segment."""
    append(manager, b"1", b"2")
    manager.log("orders").roll()
    append(manager, b"3")
    managers.faults.damage("orders", 0, 0)
    assert [b"2", b"3"] == [
        record.value for record in manager.log("orders").records(on_corrupt="skip")
    ]


@pytest.mark.parametrize("offset", [-1, 2, 9])
def test_damage_of_a_missing_offset_raises(
    managers: ManagerFactory, manager: LogManager, offset: int
) -> None:
    """No other batch is changed."""
    append(manager, b"1", b"2")
    with pytest.raises(ValueError, match=f"must be that of a record of orders-0, got {offset}"):
        managers.faults.damage("orders", 0, offset)
    assert_records(manager.log("orders"), [b"1", b"2"])


def test_damage_of_a_missing_partition_raises(managers: ManagerFactory) -> None:
    """The name is in the message."""
    with pytest.raises(ValueError, match="bills-0 must be in one data directory"):
        managers.faults.damage("bills", 0, 0)


def test_tear_tail_truncates_the_last_batch_at_the_next_opening(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """The recovery report has the truncated bytes."""
    append(manager, b"1", b"2", b"3")
    managers.kill(manager)
    managers.faults.tear_tail("orders")
    log = managers.reopen(manager).log("orders")
    assert_records(log, [b"1", b"2"])
    (torn,) = log.recovery_report.cut
    assert "TRUNCATED" == torn.reason


def test_tear_tail_of_an_open_or_empty_log_raises(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """An open log would read past the end of its file."""
    append(manager, b"1")
    with pytest.raises(ValueError, match="orders-0 must not be open"):
        managers.faults.tear_tail("orders")
    managers.kill(manager)
    with pytest.raises(ValueError, match="orders-1 must have a batch"):
        managers.faults.tear_tail("orders", 1)
