"""Groups and transactions of ours, continued by a real broker and then by kafkalog.

Positions are in `__consumer_offsets` and decisions in `__transaction_state`, so a broker that takes
the directory over knows our groups, and finishes a transaction that was decided here and lacks its
markers. What its own consumers commit then, our consumers know.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as PeerPartition
from aiokafka.admin import AIOKafkaAdminClient

from kafkalog import (
    CommittedOffset,
    DiskFullError,
    InvalidTxnStateError,
    LogManager,
    TopicPartition,
    open_log,
)
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for
from kafkalog.clock import SystemClock
from kafkalog.state.partition_metadata import write_partition_metadata
from kafkalog.testing import Faults, ManagerFactory, ManualTime

from .broker import Broker
from .clients import TopicPlan, consume, run
from .kafka_maven import KafkaInstall
from .test_takeover import DISK, broker_on, prepare

pytestmark = pytest.mark.xdist_group("groups")

COMPACTED = {"cleanup.policy": "compact"}
# Default of a broker, with which ours are made (INT-2): it finds a group, or a transactional id, by
# the number of partitions.
TOPICS_PARTITIONS = 50
DEFAULTS = {
    "offsets.topic.num.partitions": str(TOPICS_PARTITIONS),
    "transaction.state.log.num.partitions": str(TOPICS_PARTITIONS),
}
PLANS = (
    TopicPlan("orders"),
    TopicPlan("bills"),
    TopicPlan(CONSUMER_OFFSETS, TOPICS_PARTITIONS, settings=COMPACTED),
    TopicPlan(TRANSACTION_STATE, TOPICS_PARTITIONS, settings=COMPACTED),
)
ORDERS = TopicPartition("orders", 0)
# Group -> its position: committed alone, in a transaction, in a decided but unfinished one.
OURS = {"alone": 7, "moved": 12, "decided": 15}
THEIRS = {"theirs": 9}


@dataclass
class Handover:
    """The directory, and the broker's output: positions of groups, committed bills."""

    directory: Path
    positions: dict[str, tuple[int, str]] = field(default_factory=dict)
    bills: list[bytes | None] = field(default_factory=list)


def fill(manager: LogManager, faults: Faults, directory: Path) -> None:
    """
    Send, commit, and leave a transaction between its decision and its markers.

    The disk has no space for the first of the markers, and the commit is not repeated.
    """
    manager.create_topic("orders")
    manager.create_topic("bills")
    with manager.producer() as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number, key=b"%d" % number)
    with manager.consumer("alone") as consumer:
        consumer.commit({ORDERS: CommittedOffset(OURS["alone"], "by hand")})
    with manager.producer(transactional_id="mover") as producer:
        with producer.transaction():
            producer.send("bills", b"moved")
            producer.send_offsets_to_transaction({ORDERS: OURS["moved"]}, "moved")
        producer.begin_transaction()
        producer.send("bills", b"aborted")
        producer.send_offsets_to_transaction({ORDERS: 19}, "moved")
        producer.flush()
        producer.abort_transaction()
    deciding = manager.producer(transactional_id="decider")
    deciding.begin_transaction()
    deciding.send("bills", b"decided")
    deciding.send_offsets_to_transaction({ORDERS: OURS["decided"]}, "decided")
    deciding.flush()
    number = partition_for("decided", TOPICS_PARTITIONS)
    positions = f"{CONSUMER_OFFSETS}-{number}"
    with faults.full_disk(directory / positions), pytest.raises(DiskFullError, match=positions):
        deciding.commit_transaction()
    with pytest.raises(InvalidTxnStateError, match="is decided"):
        deciding.close()


def positions_of(address: str, groups: list[str]) -> dict[str, tuple[int, str]]:
    """Return the positions of groups in `orders`, and their texts, from the broker."""

    async def ask() -> dict[str, tuple[int, str]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            found = {}
            for group in groups:
                offsets = await admin.list_consumer_group_offsets(group)
                each = offsets[PeerPartition(*ORDERS)]
                found[group] = (each.offset, each.metadata)
            return found
        finally:
            await admin.close()

    return run(ask)


def commit_theirs(address: str) -> None:
    """Commit a position with a consumer of the broker."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id="theirs", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([PeerPartition(*ORDERS)])
            await consumer.commit({PeerPartition(*ORDERS): THEIRS["theirs"]})
        finally:
            await consumer.stop()

    run(work)


@pytest.fixture(scope="module")
def handover(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handover]:
    """Fill a directory, let a broker have it, and stop that broker."""
    root = tmp_path_factory.mktemp("groups")
    metadata, directory, topic_ids = prepare(kafka, root, PLANS, DEFAULTS)
    now = ManualTime(SystemClock().now_ms())
    with ManagerFactory(directory.parent, now) as managers:
        manager = managers.open(directory.name)
        fill(manager, managers.faults, directory)
        topics = manager.topics()
    with open_log(directory / "bills-0", read_only=True) as log:
        assert log.last_stable_offset < log.log_end_offset
    assert {plan.name: plan.partitions for plan in PLANS} == {
        topic: len(numbers) for topic, numbers in topics.items()
    }
    for topic, numbers in topics.items():
        for number in numbers:
            write_partition_metadata(DISK, directory / f"{topic}-{number}", topic_ids[topic])
    found = Handover(directory)
    with broker_on(kafka, metadata, directory, DEFAULTS) as broker:
        serve(broker, found)
    yield found
    shutil.rmtree(root)


def serve(broker: Broker, found: Handover) -> None:
    """Ask the broker for groups and bills; it writes the markers when it has read the topic."""
    commit_theirs(broker.address)
    for _ in range(100):
        records = consume(broker.address, "bills", isolation_level="read_committed")
        found.bills = [record.value for record in records]
        if b"decided" in found.bills:
            break
    found.positions = positions_of(broker.address, [*OURS, *THEIRS])


def test_broker_reports_our_groups_and_offsets(handover: Handover) -> None:
    """Positions that were committed alone, in a transaction, and by its completion."""
    assert {**OURS, **THEIRS} == {
        group: offset for group, (offset, _text) in handover.positions.items()
    }
    assert handover.positions["alone"][1] == "by hand"


def test_broker_completes_a_transaction_prepared_here(handover: Handover) -> None:
    """Its consumers of committed records see it, and nothing of the aborted one."""
    assert [b"moved", b"decided"] == handover.bills


def test_groups_of_the_broker_are_read_here(handover: Handover) -> None:
    """Ours and theirs, after both hand-overs."""
    with LogManager([handover.directory]) as manager:
        found = {}
        for group in (*OURS, *THEIRS):
            with manager.consumer(group) as consumer:
                committed = consumer.committed(ORDERS)
                assert committed is not None
                found[group] = committed.offset
        assert {**OURS, **THEIRS} == found
        committed_bills = manager.log("bills").records(isolation="read_committed")
        assert [b"moved", b"decided"] == [record.value for record in committed_bills]
        with manager.producer(transactional_id="decider") as producer, producer.transaction():
            producer.send("bills", b"goes on")
        assert manager.log("bills").list_transactions() == []
