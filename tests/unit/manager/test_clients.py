"""Producers and consumers of a manager: its topics, restarts and disk errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import (
    CommittedOffset,
    LogClosedError,
    LogManager,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from kafkalog.errors import ConfigError
from tests.support.managers import append_texts, manual_manager
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.simulated_disk import SimulatedDisk

ORDERS = TopicPartition("orders", 0)


def manager_of(directory: Path) -> LogManager:
    """Return a manager on manual time."""
    clock = ManualClock()
    return LogManager([directory], clock=clock, scheduler=ManualScheduler(clock))


def test_consumer_reads_sent_records_and_positions_survive_a_restart(tmp_path: Path) -> None:
    """The topic of positions has 50 partitions and is compacted."""
    with manager_of(tmp_path) as manager:
        manager.create_topic("orders", 2)
        with manager.producer() as producer:
            sent = [producer.send("orders", b"%d" % n, partition=0) for n in range(5)]
        assert [0, 1, 2, 3, 4] == [each.result().offset for each in sent]
        with manager.consumer("billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            for _where, record in consumer.records(timeout_ms=0):
                if record.offset == 2:
                    break
            consumer.commit()
    with manager_of(tmp_path) as manager:
        assert tuple(range(50)) == manager.topics()["__consumer_offsets"]
        assert manager.log("__consumer_offsets", 0).config.cleanup_policy == ("compact",)
        with manager.consumer("billing") as consumer:
            consumer.subscribe("orders")
            found = consumer.poll()
        assert [3, 4] == [record.offset for record in found[ORDERS]]


def test_manager_close_flushes_its_producers(tmp_path: Path) -> None:
    """An open transaction is aborted; no producer has to be closed by the caller."""
    manager = manager_of(tmp_path)
    manager.create_topic("orders", 1)
    sent = manager.producer(linger_ms=10_000).send("orders", b"v")
    transactional = manager.producer(transactional_id="t")
    transactional.begin_transaction()
    transactional.send("orders", b"w")
    transactional.flush()
    manager.close()
    assert sent.done()
    for make in (manager.producer, manager.consumer):
        with pytest.raises(LogClosedError):
            make()
    with manager_of(tmp_path) as manager:
        committed = list(manager.log("orders", 0).records(isolation="read_committed"))
        assert [b"v"] == [record.value for record in committed]
        assert manager.log("orders", 0).list_transactions() == []


def test_all_committed_returns_every_position_of_the_group(tmp_path: Path) -> None:
    """Also of partitions that the consumer does not read, and none of another group."""
    bills = TopicPartition("bills", 2)
    with manager_of(tmp_path) as manager:
        manager.create_topic("orders", 1)
        manager.create_topic("bills", 3)
        with manager.consumer("billing") as first, manager.consumer("other") as second:
            assert {} == first.all_committed()
            first.commit({ORDERS: 3, bills: CommittedOffset(7, "a note")})
            second.commit({ORDERS: 9})
            found = first.all_committed()
            assert {ORDERS: (3, ""), bills: (7, "a note")} == {
                where: each[:2] for where, each in found.items()
            }
            assert found[bills] == first.committed(bills)


def test_transaction_commits_records_and_positions_together(tmp_path: Path) -> None:
    """Read, transform, write: the position is committed with the written records."""
    with manager_of(tmp_path) as manager:
        manager.create_topic("orders", 1)
        manager.create_topic("bills", 3)
        with manager.producer() as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number)
        consumer = manager.consumer("billing", auto_offset_reset="earliest", max_poll_records=4)
        consumer.subscribe("orders")
        with consumer, manager.producer(transactional_id="billing") as producer:
            while found := consumer.poll():
                with producer.transaction():
                    for record in found[ORDERS]:
                        producer.send("bills", record.value, key=record.value)
                    producer.send_offsets_to_transaction(consumer.positions(), "billing")
            committed = consumer.committed(ORDERS)
        assert committed is not None
        assert committed.offset == 10
        with manager.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed"
        ) as reader:
            reader.subscribe("bills")
            bills = sorted(record.value or b"" for _where, record in reader.records(timeout_ms=0))
        assert [b"%d" % number for number in range(10)] == bills


def test_producer_of_an_unknown_or_deleted_topic_raises(tmp_path: Path) -> None:
    """With the error of the manager."""
    with manager_of(tmp_path) as manager, manager.producer() as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("orders", b"v")
        manager.create_topic("orders", 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("orders", b"v", partition=1)
        producer.send("orders", b"v")
        producer.flush()
        manager.delete_topic("orders")
        lost = producer.send("orders", b"v")
        producer.flush()
        assert isinstance(lost.exception(0), UnknownTopicOrPartitionError)
        with pytest.raises(ConfigError, match="did you mean linger_ms"):
            manager.producer(lingerms=3)


def test_producer_continues_after_its_log_was_closed(tmp_path: Path) -> None:
    """It opens the log again, with the same producer id and the next sequence."""
    with manager_of(tmp_path) as manager:
        manager.create_topic("orders", 1)
        with manager.producer() as producer, manager.consumer() as consumer:
            consumer.assign([ORDERS])
            producer.send("orders", b"before")
            producer.flush()
            manager.log("orders", 0).close()
            after = producer.send("orders", b"after")
            producer.flush()
            assert after.result(0).offset == 1
            headers = [batch.header for batch in manager.log("orders", 0).batches()]
            assert len({each.producer_id for each in headers}) == 1
            assert [0, 1] == [each.base_sequence for each in headers]


def test_topic_created_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    """The positions of groups in the deleted topic are removed, those elsewhere stay."""
    first, kept = TopicPartition("orders", 0), TopicPartition("kept", 0)
    with manual_manager(tmp_path) as manager:
        for topic in ("orders", "kept"):
            manager.create_topic(topic, 2)
            append_texts(manager, topic, 0, "1", "2")
        for group in ("one", "other"):
            with manager.consumer(group, auto_offset_reset="earliest") as consumer:
                consumer.subscribe("orders", "kept")
                assert {first, kept} == set(consumer.poll(0))
                consumer.commit()
        manager.delete_topic("orders")
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "3", "4", "5")
    with manual_manager(tmp_path) as manager:
        with manager.consumer("one", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders", "kept")
            found = consumer.poll(0)
            assert [first] == list(found)
            assert [b"3", b"4", b"5"] == [record.value for record in found[first]]
        with manager.consumer("other") as consumer:
            consumer.commit({kept: None})
            assert [None, None] == [consumer.committed(each) for each in (first, kept)]
        manager.delete_partition("kept", 0)
        manager.create_partition("kept", 0)
        with manager.consumer("one") as consumer:
            assert consumer.committed(kept) is None


def test_delete_topic_succeeds_if_its_positions_cannot_be_removed() -> None:
    """The error is logged, and the next deletion removes them."""
    disk, data = SimulatedDisk(), Path("/data")
    with manual_manager(data, filesystem=disk) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "1")
        with manager.consumer("group", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            consumer.poll(0)
            consumer.commit()
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite", "pwritev"}), suffix="0.log")
        manager.delete_topic("orders")
        assert 0 == disk.faults_waiting
        assert "orders" not in manager.topics()
        manager.create_topic("orders")
        manager.delete_topic("orders")
        with manager.consumer("group") as consumer:
            assert consumer.committed(TopicPartition("orders", 0)) is None
