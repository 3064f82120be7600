"""Producers and consumers of a manager with an offline directory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import (
    Consumer,
    KafkaLogError,
    LogManager,
    LogOfflineError,
    Producer,
    Record,
    TopicPartition,
)
from tests.support.managers import ONE_PARTITION, append_texts, manual_manager, scheduler_of, values
from tests.support.simulated_disk import SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")
ON_A, ON_B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Disk of both directories."""
    return SimulatedDisk()


@pytest.fixture(name="manager")
def fixture_manager(disk: SimulatedDisk) -> Iterator[LogManager]:
    """Manager of two directories, with a partition in each."""
    manager = manual_manager(A, B, config=ONE_PARTITION, filesystem=disk)
    manager.create_topic("orders", 2)
    assert [A, B] == [manager.directory_of(*where) for where in (ON_A, ON_B)]
    yield manager
    manager.close()


def fail(disk: SimulatedDisk, manager: LogManager) -> None:
    """Take the first directory offline."""
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(KafkaLogError):
        manager.log(*ON_A).append([Record(value=b"doubtful")], wait="durable")
    assert [False, True] == [each.is_online for each in manager.health().directories]


def send(manager: LogManager, producer: Producer, where: TopicPartition, text: str) -> int:
    """Send a record to a partition; return its offset."""
    sent = producer.send(where.topic, text.encode(), partition=where.partition)
    scheduler_of(manager).advance(10)
    return sent.result(0).offset


def read_by_a_group(manager: LogManager) -> None:
    """Append to both partitions, which a group reads; its positions are in the first directory."""
    for where in (ON_A, ON_B):
        append_texts(manager, *where, "1")
    with manager.consumer("group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        polled(consumer)
        consumer.commit()
    assert A == manager.directory_of("__consumer_offsets", 0)


def polled(consumer: Consumer) -> dict[TopicPartition, list[bytes | None]]:
    """Return the values of a poll, without waiting."""
    found = consumer.poll(0)
    return {where: [record.value for record in records] for where, records in found.items()}


def test_producer_with_an_offline_directory_writes_to_the_other(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """The failed send raises; after `bring_online` both work, without duplicates."""
    with manager.producer() as producer:
        assert (0, 0) == (send(manager, producer, ON_A, "1"), send(manager, producer, ON_B, "1"))
        fail(disk, manager)
        with pytest.raises(LogOfflineError):
            send(manager, producer, ON_A, "2")
        assert 1 == send(manager, producer, ON_B, "2")
        manager.bring_online(A)
        send(manager, producer, ON_A, "3")
        send(manager, producer, ON_B, "3")
    assert ["1", "2", "3"] == values(manager, "orders", 1)
    assert ["1", "doubtful", "3"] == values(manager, "orders", 0)


def test_consumer_with_an_offline_directory_reads_the_other(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """A consumer that subscribes then gets the partition after `bring_online`."""
    for where in (ON_A, ON_B):
        append_texts(manager, *where, "1")
    before = manager.consumer(auto_offset_reset="earliest")
    before.subscribe("orders")
    assert {ON_A: [b"1"], ON_B: [b"1"]} == polled(before)
    fail(disk, manager)
    meanwhile = manager.consumer(auto_offset_reset="earliest")
    meanwhile.subscribe("orders")
    assert (ON_B,) == meanwhile.assignment()
    assert {ON_B: [b"1"]} == polled(meanwhile)
    append_texts(manager, *ON_B, "2")
    assert [b"2"] == polled(before)[ON_B]
    assert {ON_B: [b"2"]} == polled(meanwhile)
    with manager.consumer() as asking, pytest.raises(LogOfflineError):
        asking.assign([ON_A])
    manager.bring_online(A)
    append_texts(manager, *ON_A, "3")
    scheduler_of(manager).clock.advance(meanwhile.config.poll_interval_ms)
    assert {ON_A: [b"1", b"doubtful", b"3"]} == polled(meanwhile)
    assert b"3" in polled(before)[ON_A]
    assert [] == before.lost == meanwhile.lost


def test_assigned_partition_waits_for_its_offline_directory(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """It is not read, not lost, and the others are read."""
    append_texts(manager, *ON_A, "1")
    consumer = manager.consumer(auto_offset_reset="earliest")
    consumer.subscribe("orders")
    assert {ON_A: [b"1"]} == polled(consumer)
    fail(disk, manager)
    manager.log(*ON_B).append([Record(value=b"2")])
    with pytest.raises(LogOfflineError):
        manager.log(*ON_A)
    polled(consumer)
    manager.log(*ON_B).append([Record(value=b"3")])
    assert {ON_B: [b"3"]} == polled(consumer)
    manager.bring_online(A)
    append_texts(manager, *ON_A, "4")
    assert [b"4"] == polled(consumer)[ON_A][-1:]
    assert [] == consumer.lost


def test_positions_in_an_offline_directory_raise_instead_of_resetting(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """A group must not start again because its position cannot be read."""
    read_by_a_group(manager)
    fail(disk, manager)
    with manager.consumer("group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        with pytest.raises(LogOfflineError):
            consumer.poll(0)
        with pytest.raises(LogOfflineError):
            consumer.commit({ON_B: 1})
        manager.bring_online(A)
        append_texts(manager, *ON_B, "2")
        assert {ON_B: [b"2"]} == polled(consumer)


def test_transaction_with_an_offline_directory_is_aborted_in_both(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """The abort follows `bring_online`."""
    producer = manager.producer(transactional_id="t")
    producer.begin_transaction()
    for where in (ON_A, ON_B):
        send(manager, producer, where, "undecided")
    fail(disk, manager)
    with pytest.raises(KafkaLogError):
        producer.commit_transaction()
    with pytest.raises(KafkaLogError):
        producer.close()
    manager.bring_online(A)
    with manager.producer(transactional_id="t") as producer, producer.transaction():
        for where in (ON_A, ON_B):
            send(manager, producer, where, "decided")
    with manager.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.subscribe("orders")
        found = polled(reader)
    assert [b"decided"] == found[ON_B]
    assert [b"doubtful", b"decided"] == found[ON_A]


def test_positions_unknown_at_the_start_raise_instead_of_resetting(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """The topic of positions is not created a second time."""
    read_by_a_group(manager)
    with without_a(disk, manager) as started:
        with pytest.raises(LogOfflineError, match="not known"):
            started.log(*ON_A)
        with started.consumer("group", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            for refused in (lambda: consumer.poll(0), lambda: consumer.commit({ON_B: 1})):
                with pytest.raises(LogOfflineError, match="not known"):
                    refused()
            with started.consumer(auto_offset_reset="earliest") as other:
                other.subscribe("orders")
                assert {ON_B: [b"1"]} == polled(other)
            started.bring_online(A)
            append_texts(started, *ON_B, "2")
            assert {ON_B: [b"2"]} == polled(consumer)
        assert started.health().is_healthy


def test_transactions_unknown_at_the_start_are_finished_after_bring_online(
    disk: SimulatedDisk, manager: LogManager
) -> None:
    """The next producer or consumer finishes them."""
    producer = manager.producer(transactional_id="t")
    producer.begin_transaction()
    send(manager, producer, ON_B, "undecided")
    assert A == manager.directory_of("__transaction_state", 0)
    with without_a(disk, manager) as started:
        with pytest.raises(LogOfflineError, match="not known"):
            started.producer(transactional_id="t")
        with started.producer() as other:
            send(started, other, ON_B, "plain")
        assert 1 == len(started.log(*ON_B).list_transactions())
        started.bring_online(A)
        with started.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed"
        ) as reader:
            reader.assign([ON_B])
            assert {ON_B: [b"plain"]} == polled(reader)
        assert [] == started.log(*ON_B).list_transactions()


def without_a(disk: SimulatedDisk, before: LogManager) -> LogManager:
    """Return a manager after a crash without losses that could not open its first directory."""
    for where in before.partitions():
        before.log(*where).flush()
    ((_choice, after),) = disk.crash_states(limit=1)
    after.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="a/meta.properties")
    manager = manual_manager(A, B, config=ONE_PARTITION, filesystem=after)
    assert {"orders": (1,)} == manager.topics()
    return manager
