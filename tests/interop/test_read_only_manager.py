"""A read-only manager over the live directory of a real broker: topics, groups, a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as PeerPartition
from aiokafka.admin import AIOKafkaAdminClient

from kafkalog import Consumer, LogManager, TopicPartition, UnknownTopicOrPartitionError
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS

from .broker import Broker, format_directory
from .clients import TopicPlan, create_topics, produce, produce_transaction, run
from .kafka_maven import KafkaInstall

pytestmark = pytest.mark.xdist_group("live")

SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "256", "file.delete.delay.ms": "100"}
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


def delete_topic(address: str, topic: str) -> None:
    """Delete a topic of the broker."""

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.delete_topics([topic])
        finally:
            await admin.close()

    run(work)


def commit(address: str, group: str, offset: int) -> None:
    """Commit a position with a consumer of the broker."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            where = PeerPartition("orders", 0)
            consumer.assign([where])
            await consumer.commit({where: offset})
        finally:
            await consumer.stop()

    run(work)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for an effect of the broker's own threads."""
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def texts(consumer: Consumer, where: TopicPartition, count: int) -> list[bytes | None]:
    """Poll until a number of records of a partition has come."""
    found: list[bytes | None] = []

    def has_all() -> bool:
        found.extend(record.value for record in consumer.poll(50).get(where, []))
        return len(found) >= count

    wait_until(has_all)
    return found


def test_live_directory_of_a_broker(kafka: KafkaInstall, tmp_path: Path) -> None:
    """Topics come, go and are made again; groups, transactions, rolls; a stop and a start."""
    directory = tmp_path / "kafka"
    format_directory(kafka, directory)
    with Broker(kafka, directory) as broker, LogManager(directory, read_only=True) as manager:
        assert "orders" not in manager.topics()
        create_topics(broker.address, [TopicPlan("orders", 1, SMALL), TopicPlan("bills", 2, SMALL)])
        # The broker makes one partition after another.
        wait_until(lambda: manager.topics() == {"bills": (0, 1), "orders": (0,)})
        assert manager.cluster_id
        assert manager.node_id == 1
        with manager.consumer(
            auto_offset_reset="earliest", isolation_level="read_committed", poll_interval_ms=10
        ) as consumer:
            consumer.subscribe("orders", "bills")
            values = [(b"%d " % number).ljust(12_000) for number in range(200)]
            produce(broker.address, "orders", [(b"k", value) for value in values])
            assert texts(consumer, ORDERS, 200) == values
            assert len(manager.log("orders").segments()) > 1
            produce_transaction(broker.address, "bills", "a", [(None, b"aborted")], abort=True)
            produce_transaction(broker.address, "bills", "a", [(None, b"committed")])
            assert texts(consumer, BILLS, 1) == [b"committed"]

            commit(broker.address, "theirs", 150)
            with manager.consumer("theirs") as continued:
                continued.assign([ORDERS])
                wait_until(lambda: CONSUMER_OFFSETS in manager.topics())
                assert continued.position(ORDERS) == 150

            old = manager.log("orders")
            delete_topic(broker.address, "orders")
            wait_until(lambda: "orders" not in manager.topics())
            assert old.is_closed
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.log("orders")
            with pytest.raises(UnknownTopicOrPartitionError):
                consumer.poll()
            create_topics(broker.address, [TopicPlan("orders", 1, SMALL)])
            wait_until(lambda: "orders" in manager.topics())
            produce(broker.address, "orders", [(None, b"new")])
            assert texts(consumer, ORDERS, 1) == [b"new"]
            assert [(200, 0)] == [
                (each.requested_offset, each.resumed_offset) for each in consumer.lost
            ]

            broker.stop()
            broker.start()
            produce(broker.address, "orders", [(None, b"after the start")])
            assert texts(consumer, ORDERS, 1) == [b"after the start"]
        assert manager.health().is_healthy
    assert not list(directory.rglob(".kafkalog*"))
    assert not list(directory.rglob("*.truncated*"))
