"""Producers and consumers of a manager one of whose directories is offline."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Consumer, KafkaLogError, LogOfflineError, Producer, Record, TopicPartition
from tests.support.managers import ONE_PARTITION, ManualManager, manual_manager, values
from tests.support.simulated_disk import SimulatedDisk

A, B = Path("/disks/a"), Path("/disks/b")
ON_A, ON_B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """The disk of both directories."""
    return SimulatedDisk()


@pytest.fixture(name="manager")
def fixture_manager(disk: SimulatedDisk) -> Iterator[ManualManager]:
    """A manager of two directories, with a partition in each."""
    manager = manual_manager(A, B, config=ONE_PARTITION, filesystem=disk)
    manager.create_topic("orders", 2)
    assert [A, B] == [manager.directory_of(*where) for where in (ON_A, ON_B)]
    yield manager
    manager.close()


def fail(disk: SimulatedDisk, manager: ManualManager) -> None:
    """Take the first directory offline."""
    disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(KafkaLogError):
        manager.log(*ON_A).append([Record(value=b"doubtful")], wait="durable")
    assert [False, True] == [each.is_online for each in manager.health().directories]


def send(manager: ManualManager, producer: Producer, where: TopicPartition, text: str) -> int:
    """Send a record to a partition; return its offset."""
    sent = producer.send(where.topic, text.encode(), partition=where.partition)
    manager.scheduler.advance(10)
    return sent.result(0).offset


def read_by_a_group(manager: ManualManager) -> None:
    """Append to both partitions, and have a group read it, whose positions lie in the first."""
    for where in (ON_A, ON_B):
        manager.append(*where, "1")
    with manager.consumer("group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        polled(consumer)
        consumer.commit()
    assert A == manager.directory_of("__consumer_offsets", 0)


def polled(consumer: Consumer) -> dict[TopicPartition, list[bytes | None]]:
    """Return what a poll finds, without waiting."""
    found = consumer.poll(0)
    return {where: [record.value for record in records] for where, records in found.items()}


def test_producer_goes_on_in_the_other_directory_and_later_in_both(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """What the offline one could not take is told, and nothing is there twice."""
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


def test_consumer_reads_on_in_the_other_directory_and_later_in_both(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """One that subscribes meanwhile takes the partition in when it is back."""
    for where in (ON_A, ON_B):
        manager.append(*where, "1")
    before = manager.consumer(auto_offset_reset="earliest")
    before.subscribe("orders")
    assert {ON_A: [b"1"], ON_B: [b"1"]} == polled(before)
    fail(disk, manager)
    meanwhile = manager.consumer(auto_offset_reset="earliest")
    meanwhile.subscribe("orders")
    assert (ON_B,) == meanwhile.assignment()
    assert {ON_B: [b"1"]} == polled(meanwhile)
    manager.append(*ON_B, "2")
    assert [b"2"] == polled(before)[ON_B]
    assert {ON_B: [b"2"]} == polled(meanwhile)
    with manager.consumer() as asking, pytest.raises(LogOfflineError):
        asking.assign([ON_A])
    manager.bring_online(A)
    manager.append(*ON_A, "3")
    manager.time.advance(meanwhile.config.poll_interval_ms)
    assert {ON_A: [b"1", b"doubtful", b"3"]} == polled(meanwhile)
    assert b"3" in polled(before)[ON_A]
    assert [] == before.lost == meanwhile.lost


def test_assigned_partition_waits_while_its_directory_cannot_be_opened(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """Nothing of it is read, nothing is lost, and the others are read."""
    manager.append(*ON_A, "1")
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
    manager.append(*ON_A, "4")
    assert [b"4"] == polled(consumer)[ON_A][-1:]
    assert [] == consumer.lost


def test_positions_out_of_reach_are_an_error_and_not_a_beginning(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """A group must not read all anew because nobody knows where it stood."""
    read_by_a_group(manager)
    fail(disk, manager)
    with manager.consumer("group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        with pytest.raises(LogOfflineError):
            consumer.poll(0)
        with pytest.raises(LogOfflineError):
            consumer.commit({ON_B: 1})
        manager.bring_online(A)
        manager.append(*ON_B, "2")
        assert {ON_B: [b"2"]} == polled(consumer)


def test_transaction_over_an_offline_directory_is_undone_when_it_is_back(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """In the other directory too: all of it or nothing."""
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


def test_positions_that_may_be_offline_do_not_begin_anew(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """Nor is the topic of them made a second time, beside the one that comes back."""
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
            started.append(*ON_B, "2")
            assert {ON_B: [b"2"]} == polled(consumer)
        assert started.health().is_healthy


def test_transactions_that_may_be_offline_are_finished_when_they_are_back(
    disk: SimulatedDisk, manager: ManualManager
) -> None:
    """By the first producer or consumer that comes then."""
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


def without_a(disk: SimulatedDisk, before: ManualManager) -> ManualManager:
    """Return the manager after a crash that took nothing, whose first directory is not opened."""
    for where in before.partitions():
        before.log(*where).flush()
    ((_choice, after),) = disk.crash_states(limit=1)
    after.fail_at(1, errno.EIO, only=frozenset({"open"}), suffix="a/meta.properties")
    manager = manual_manager(A, B, config=ONE_PARTITION, filesystem=after)
    assert {"orders": (1,)} == manager.topics()
    return manager
