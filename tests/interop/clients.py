"""Requests of the tests to a broker: make topics, consume, look up by time, produce. One call each.

aiokafka is the client: it reads all five codecs (through cramjam) and both isolation levels. Each
call opens its own connection, does one thing, closes it, and gives up after a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest

__all__ = [
    "ConsumedRecord",
    "TopicPlan",
    "committed_end",
    "consume",
    "create_topics",
    "end_offset",
    "offsets_for_times",
    "produce",
    "produce_encoded",
    "produce_transaction",
]

TIMEOUT_SECONDS = 60
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to make: its name, how many partitions, and its settings (Kafka's keys)."""

    name: str
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """One record as a consumer got it."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def create_topics(address: str, plans: Sequence[TopicPlan]) -> None:
    """Make the topics; every one keeps its records for ever unless its settings limit that."""

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            # A broker that is starting is in no metadata yet.
            while not (await admin.describe_cluster())["brokers"]:
                await asyncio.sleep(0.1)
            answer = await admin.create_topics(
                [
                    NewTopic(
                        name=plan.name,
                        num_partitions=plan.partitions,
                        replication_factor=1,
                        topic_configs={"retention.ms": "-1", **plan.settings},
                    )
                    for plan in plans
                ]
            )
        finally:
            await admin.close()
        failed = [error for error in answer.topic_errors if error[1] != 0]
        if failed:
            raise RuntimeError(f"the broker made no topic: {failed}")

    run(work)


def consume(
    address: str,
    topic: str,
    partition: int = 0,
    *,
    isolation_level: str = READ_UNCOMMITTED,
    start_offset: int | None = None,
) -> list[ConsumedRecord]:
    """Return all records from the start (or `start_offset`) to the end there was when asked."""

    async def read(consumer: AIOKafkaConsumer, where: TopicPartition) -> list[ConsumedRecord]:
        end = (await consumer.end_offsets([where]))[where]
        if start_offset is None:
            await consumer.seek_to_beginning(where)
        else:
            consumer.seek(where, start_offset)
        records: list[ConsumedRecord] = []
        # The position, not the last record, shows the end: control records and aborted records at
        # the end move it and are never returned.
        while await consumer.position(where) < end:
            fetched = await consumer.getmany(timeout_ms=500)
            records += map(consumed, fetched.get(where, []))
        return records

    return with_consumer(address, topic, partition, read, isolation_level=isolation_level)


def end_offset(address: str, topic: str, partition: int = 0) -> int:
    """Return the log end (high watermark)."""
    return _end(address, topic, partition, READ_UNCOMMITTED)


def committed_end(address: str, topic: str, partition: int = 0) -> int:
    """Return the last stable offset."""
    return _end(address, topic, partition, READ_COMMITTED)


def _end(address: str, topic: str, partition: int, isolation_level: str) -> int:
    async def ask(consumer: AIOKafkaConsumer, where: TopicPartition) -> int:
        return int((await consumer.end_offsets([where]))[where])

    return with_consumer(address, topic, partition, ask, isolation_level=isolation_level)


def offsets_for_times(
    address: str, topic: str, timestamps_ms: Sequence[int], partition: int = 0
) -> list[tuple[int, int] | None]:
    """Return for each time the (offset, timestamp) of the first record not older, or None."""

    async def ask(
        consumer: AIOKafkaConsumer, where: TopicPartition
    ) -> list[tuple[int, int] | None]:
        answers: list[tuple[int, int] | None] = []
        for timestamp_ms in timestamps_ms:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            answers.append(None if found is None else (found.offset, found.timestamp))
        return answers

    return with_consumer(address, topic, partition, ask)


def produce(
    address: str,
    topic: str,
    records: Sequence[tuple[bytes | None, bytes | None]],
    partition: int = 0,
    *,
    compression: str | None = None,
) -> list[int]:
    """Append (key, value) pairs and return their offsets; not idempotent, so no producer id."""

    async def work() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, acks="all", compression_type=compression
        )
        await producer.start()
        try:
            waiting = [
                await producer.send(topic, key=key, value=value, partition=partition)
                for key, value in records
            ]
            return [(await answer).offset for answer in waiting]
        finally:
            await producer.stop()

    return run(work)


def produce_transaction(
    address: str,
    topic: str,
    transactional_id: str,
    records: Sequence[tuple[bytes | None, bytes | None]],
    partition: int = 0,
    *,
    abort: bool = False,
) -> list[int]:
    """Append (key, value) pairs in one transaction, end it, and return their offsets."""

    async def work() -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        await producer.start()
        try:
            await producer.begin_transaction()
            waiting = [
                await producer.send(topic, key=key, value=value, partition=partition)
                for key, value in records
            ]
            offsets = [(await answer).offset for answer in waiting]
            await (producer.abort_transaction() if abort else producer.commit_transaction())
            return offsets
        finally:
            await producer.stop()

    return run(work)


def produce_encoded(
    address: str, topic: str, batches: Sequence[bytes], partition: int = 0
) -> list[tuple[int, int]]:
    """Send ready batches as they are, one a request; return (error code, offset) of each."""

    async def work() -> list[tuple[int, int]]:
        client = AIOKafkaClient(bootstrap_servers=address)
        await client.bootstrap()
        try:
            node_id = client.get_random_node()
            answers = []
            for batch in batches:
                request = ProduceRequest(None, -1, 30_000, [(topic, [(partition, batch)])])
                response = await client.send(node_id, request)
                [(_topic, [(_partition, error_code, offset, *_rest)])] = response.topics
                answers.append((error_code, offset))
            return answers
        finally:
            await client.close()

    return run(work)


def consumed(message: Any) -> ConsumedRecord:
    return ConsumedRecord(
        offset=message.offset,
        timestamp_ms=message.timestamp,
        timestamp_type=message.timestamp_type,
        key=message.key,
        value=message.value,
        headers=tuple(message.headers),
    )


def with_consumer(
    address: str,
    topic: str,
    partition: int,
    ask: Callable[[AIOKafkaConsumer, TopicPartition], Awaitable[T]],
    *,
    isolation_level: str = READ_UNCOMMITTED,
) -> T:
    """Run `ask` with a consumer that is assigned the one partition."""

    async def work() -> T:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            isolation_level=isolation_level,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=8 << 20,
        )
        await consumer.start()
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            return await ask(consumer, where)
        finally:
            await consumer.stop()

    return run(work)


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work(), TIMEOUT_SECONDS)

    return asyncio.run(limited())
