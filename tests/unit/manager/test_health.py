"""Health of a manager besides failed tasks: damage, late transactions, unreadable records."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, LogManager, ManagerConfig, Record, TopicPartition
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from kafkalog.manager.cleaning.log_selection import cleanable_bytes
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition
from tests.support.logs import manual_log
from tests.support.managers import (
    ONE_PARTITION,
    SMALL_LOG,
    append_texts,
    manual_manager,
    scheduler_of,
)
from tests.support.producing import Client

ORDERS = TopicPartition("orders", 0)


def test_health_lists_late_transactions_until_they_are_aborted(tmp_path: Path) -> None:
    """Late means after the longest timeout and Kafka's five minutes."""
    config = ManagerConfig(log=SMALL_LOG, transaction_max_timeout_ms=60_000)
    with manual_manager(tmp_path, config=config) as manager:
        manager.create_topic("orders", 2)
        log = manager.log("orders")
        for producer_id in (7, 8):
            Client(producer_id).send(log, transactional=True)
        scheduler_of(manager).clock.advance(360_000)
        assert manager.health().is_healthy
        scheduler_of(manager).clock.advance(1)
        assert partition_of(log).idle_files.try_release()
        health = manager.health()
        assert not health.is_healthy
        assert [ORDERS] == list(health.late_transactions)
        assert [7, 8] == [each.producer_id for each in health.late_transactions[ORDERS]]
        assert partition_of(log).idle_files.is_released
        for producer_id in (7, 8):
            log.abort_transaction(producer_id)
        assert manager.health().is_healthy


def test_health_lists_damage_after_a_read_found_it(tmp_path: Path) -> None:
    """Recovery reports damage too."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one", "two", "three")
    path = tmp_path / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"two")] ^= 1
    path.write_bytes(data)
    with manual_manager(tmp_path) as manager:
        log = manager.log("orders")
        assert manager.health().is_healthy
        assert [0, 2] == [record.offset for record in log.records(on_corrupt="skip")]
        health = manager.health()
        assert {ORDERS: log.corrupt_ranges()} == health.damage
        assert not health.is_healthy


def garble(manager: LogManager, topic: str) -> None:
    """Append unreadable versions of the first record of an internal topic."""
    log = manager.log(topic)
    record = next(log.records())
    log.append([Record(key=record.key, value=b"\x00\x63?", timestamp_ms=record.timestamp_ms)])
    log.append([Record(key=b"\x00", value=b"?", timestamp_ms=record.timestamp_ms)])


def test_unreadable_transaction_record_fails_only_its_transactional_id(tmp_path: Path) -> None:
    """It is a fault of the partition; other ids work, also after a restart."""
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        manager.create_topic("orders")
        for name in ("garbled", "fine"):
            with manager.producer(transactional_id=name) as producer, producer.transaction():
                producer.send("orders", name.encode())
        garble(manager, TRANSACTION_STATE)
    for _ in range(2):
        with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
            with pytest.raises(CorruptRecordError, match="__transaction_state-0, offset"):
                manager.producer(transactional_id="garbled")
            (fault,) = manager.health().faults
            assert (TopicPartition(TRANSACTION_STATE, 0), "read") == (fault.subject, fault.task)
            assert 2 == fault.failure_count
            with manager.producer(transactional_id="fine") as producer, producer.transaction():
                producer.send("orders", b"more")
            with manager.consumer(isolation_level="read_committed") as consumer:
                consumer.assign([ORDERS])
                consumer.seek_to_beginning(ORDERS)
                found = {record.value for record in consumer.poll(0)[ORDERS]}
            assert {b"garbled", b"fine", b"more"} == found


def test_unreadable_position_is_a_fault_and_the_others_count(tmp_path: Path) -> None:
    """Also those of the same batch."""
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        manager.create_topic("orders", 2)
        for partition in range(2):
            append_texts(manager, "orders", partition, "one")
        with manager.consumer("group", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            consumer.poll(0)
            consumer.poll(0)
            consumer.commit()
        good = list(manager.log(CONSUMER_OFFSETS).records())
        bad = Record(key=good[0].key, value=b"\x00\x63?", timestamp_ms=good[0].timestamp_ms)
        manager.log(CONSUMER_OFFSETS).append([bad, good[1]])
    with manual_manager(tmp_path, config=ONE_PARTITION) as manager:
        with manager.consumer("group") as consumer:
            positions = [consumer.committed(TopicPartition("orders", n)) for n in range(2)]
        assert [1, 1] == [None if each is None else each.offset for each in positions]
        (fault,) = manager.health().faults
        assert TopicPartition(CONSUMER_OFFSETS, 0) == fault.subject


def test_cleanable_bytes_leaves_out_cleaned_and_active_segments(tmp_path: Path) -> None:
    """PAR-17: also for a log that is not open."""
    partition = ManagedPartition(
        TopicPartition("table", 0), DataDirectory(tmp_path, PosixFileSystem())
    )
    with manual_log(tmp_path / "table-0", config=SMALL_LOG) as log:
        for number in range(12):
            log.append([Record(key=b"k%d" % number, value=bytes(200))])
        sizes = {each.base_offset: each.size_bytes for each in log.segments()}
        bases = sorted(sizes)
        assert len(bases) > 3
        assert sum(sizes[base] for base in bases[:-1]) == cleanable_bytes(partition)
        partition.directory.checkpoints.cleaner_offsets.write_through(
            partition.topic_partition, bases[2]
        )
        assert sum(sizes[base] for base in bases[2:-1]) == cleanable_bytes(partition)
    assert sum(sizes[base] for base in bases[2:-1]) == cleanable_bytes(partition) > 0


def test_health_has_the_recovery_that_truncated_a_torn_tail(tmp_path: Path) -> None:
    """The manager is still healthy."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "one")
        append_texts(manager, "orders", 1, "one")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn" * 30)
    with manual_manager(tmp_path) as manager:
        health = manager.health()
        assert [TopicPartition("orders", 0)] == list(health.recoveries)
        assert 1 == len(health.recoveries[TopicPartition("orders", 0)].cut)
        assert health.is_healthy


def test_health_counts_bytes_of_deleted_segments_held_by_readers(tmp_path: Path) -> None:
    """DUR-6: they count until the last reader is gone; the manager is healthy."""
    with manual_manager(tmp_path, config=ManagerConfig(log=SMALL_LOG)) as manager:
        manager.create_topic("orders", 1)
        for _ in range(40):
            append_texts(manager, "orders", 0, "v" * 500)
        log = manager.log("orders")
        fetched = log.read(0, 4_096)
        assert manager.health().held_bytes == 0
        log.delete_records(log.log_end_offset)
        scheduler_of(manager).clock.advance(60_001)

        health = manager.health()
        assert health.held_bytes >= fetched.size_bytes > 0
        assert health.is_healthy
        assert len(list(fetched.records())) > 0
        del fetched
        gc.collect()
        assert manager.health().held_bytes == 0
