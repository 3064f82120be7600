"""Clients of the tests: librdkafka (confluent-kafka) and aiokafka, by one interface.

Each call opens a connection, does one thing and closes it, and gives up after half a minute.
Records are read by their position, never by a consumer group: the gateway serves simple consumers
only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiokafka
import aiokafka.admin
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin

from tests.interop.clients import ConsumedRecord, consumed

__all__ = ["CLIENTS", "CODECS", "Aiokafka", "Client", "ClientError", "Librdkafka", "Sent", "sent"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_SECONDS = 30.0
EARLIEST, LATEST = -2, -1
# Of produced records: none is older than what a broker keeps by default.
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 600_000
FETCH_BYTES_MAX = 8 << 20
# For some time a broker that has just started is not the coordinator of its groups.
NO_COORDINATOR = (14, 15, 16)

T = TypeVar("T")


class ClientError(Exception):
    """
    An error of the server, as a client reports it.

    Attributes:
        code: Kafka's number of the error.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


def sent(count: int, first: int = 0, value_bytes: int = 100) -> list[Sent]:
    """Return records 10 ms apart: with and without keys, values and headers."""
    records = []
    for number in range(first, first + count):
        name = b"%d" % number
        records.append(
            Sent(
                None if number % 5 == 0 else b"key-" + name,
                None if number % 10 == 7 else (b"value-%s " % name).ljust(value_bytes, b"."),
                FIRST_TIMESTAMP_MS + 10 * number,
                (("number", name), ("number", b""), ("other", bytes(range(256))))[: number % 4],
            )
        )
    return records


def as_consumed(records: Sequence[Sent], first_offset: int = 0) -> list[ConsumedRecord]:
    """Return records as a consumer gets them."""
    return [
        ConsumedRecord(offset, each.timestamp_ms, 0, each.key, each.value, each.headers)
        for offset, each in enumerate(records, first_offset)
    ]


class Client(Protocol):
    """Calls of a test; each raises ClientError for an error of the server."""

    name: str

    def create_topic(self, address: str, topic: str, partitions: int = 1) -> None:
        """Create a topic with one replica."""

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        is_idempotent: bool = False,
    ) -> list[int]:
        """Send records to partition 0; return their offsets, which are -1 for acks 0."""

    def consume(
        self, address: str, topic: str, count: int, *, start: int = EARLIEST, partition: int = 0
    ) -> list[ConsumedRecord]:
        """Return `count` records from an offset; an offset out of range is an error."""

    def watermarks(self, address: str, topic: str) -> tuple[int, int]:
        """Return start and end of partition 0."""

    def offset_for_time(self, address: str, topic: str, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of a time or later, or None."""

    def commit(self, address: str, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 as a simple consumer."""

    def committed(self, address: str, group: str, topic: str) -> int | None:
        """Return the committed offset of partition 0, or None."""


class Librdkafka:
    """The C client."""

    name = "librdkafka"

    def create_topic(self, address: str, topic: str, partitions: int = 1) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
        new = confluent_kafka.admin.NewTopic(topic, partitions, 1)  # type: ignore[attr-defined]
        try:
            admin.create_topics([new], request_timeout=TIMEOUT_SECONDS)[topic].result()
        except confluent_kafka.KafkaException as error:
            raise ClientError(error.args[0].code()) from error

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        is_idempotent: bool = False,
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": is_idempotent,
                "linger.ms": 50,
                "message.max.bytes": FETCH_BYTES_MAX,
                "topic.metadata.propagation.max.ms": 500,
            }
        )
        offsets: list[int] = []
        errors: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error.code())
            else:
                # With acks=0 the server returns none.
                offsets.append(-1 if message.offset() is None else message.offset())

        for each in records:
            producer.produce(
                topic,
                each.value,
                each.key,
                0,
                on_delivery=delivered,
                timestamp=each.timestamp_ms,
                headers=list(each.headers),
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0
        if errors:
            raise ClientError(errors[0])
        return offsets

    def consume(
        self, address: str, topic: str, count: int, *, start: int = EARLIEST, partition: int = 0
    ) -> list[ConsumedRecord]:
        consumer = self._consumer(address)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
            records: list[ConsumedRecord] = []
            end = time.monotonic() + TIMEOUT_SECONDS
            while len(records) < count:
                assert time.monotonic() < end, f"{len(records)} of {count} records came"
                records += map(self._consumed, consumer.consume(count - len(records), timeout=1.0))
            return records
        finally:
            consumer.close()

    def watermarks(self, address: str, topic: str) -> tuple[int, int]:
        consumer = self._consumer(address)
        try:
            place = confluent_kafka.TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
            return low, high
        finally:
            consumer.close()

    def offset_for_time(self, address: str, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer(address)
        try:
            place = confluent_kafka.TopicPartition(topic, 0, timestamp_ms)
            [found] = consumer.offsets_for_times([place], timeout=TIMEOUT_SECONDS)
            return None if found.offset < 0 else int(found.offset)
        finally:
            consumer.close()

    def commit(self, address: str, group: str, topic: str, offset: int) -> None:
        consumer = self._consumer(address, group)
        try:
            place = confluent_kafka.TopicPartition(topic, 0, offset)
            [answer] = consumer.commit(offsets=[place], asynchronous=False)
            assert answer.error is None
        except confluent_kafka.KafkaException as error:
            raise ClientError(error.args[0].code()) from error
        finally:
            consumer.close()

    def committed(self, address: str, group: str, topic: str) -> int | None:
        consumer = self._consumer(address, group)
        try:
            end = time.monotonic() + TIMEOUT_SECONDS
            while True:
                place = confluent_kafka.TopicPartition(topic, 0)
                try:
                    [found] = consumer.committed([place], timeout=TIMEOUT_SECONDS)
                except confluent_kafka.KafkaException as error:
                    code = error.args[0].code()
                    if code not in NO_COORDINATOR or time.monotonic() > end:
                        raise ClientError(code) from error
                    time.sleep(0.1)
                else:
                    return None if found.offset < 0 else int(found.offset)
        finally:
            consumer.close()

    def _consumer(self, address: str, group: str = "unused") -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
            }
        )

    def _consumed(self, message: Any) -> ConsumedRecord:
        if message.error() is not None:
            code = message.error().code()
            # librdkafka reports the reset that it may not do, not its cause.
            is_reset = code == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
            raise ClientError(confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE if is_reset else code)
        kind, timestamp_ms = message.timestamp()
        return ConsumedRecord(
            message.offset(),
            timestamp_ms,
            kind - 1,  # librdkafka has 0 for records without a timestamp
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )


class Aiokafka:
    """The client of asyncio, whose protocol is in Python."""

    name = "aiokafka"

    def create_topic(self, address: str, topic: str, partitions: int = 1) -> None:
        async def work() -> None:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=address)
            await admin.start()
            try:
                new = aiokafka.admin.NewTopic(topic, partitions, 1)
                answer = await admin.create_topics([new])
            finally:
                await admin.close()
            [(_name, code, *_message)] = answer.topic_errors
            if code:
                raise ClientError(code)

        run(work)

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        is_idempotent: bool = False,
    ) -> list[int]:
        async def work() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                acks=acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=is_idempotent,
                linger_ms=50,
                max_request_size=FETCH_BYTES_MAX,
            )
            await producer.start()
            try:
                waiting = [
                    await producer.send(
                        topic,
                        each.value,
                        each.key,
                        0,
                        timestamp_ms=each.timestamp_ms,
                        headers=list(each.headers),
                    )
                    for each in records
                ]
                # With acks 0 a future has None as its result.
                answers = [await each for each in waiting]
                return [-1 if each is None else each.offset for each in answers]
            finally:
                await producer.stop()

        return run(work)

    def consume(
        self, address: str, topic: str, count: int, *, start: int = EARLIEST, partition: int = 0
    ) -> list[ConsumedRecord]:
        async def work(consumer: Any, where: Any) -> list[ConsumedRecord]:
            if start == EARLIEST:
                await consumer.seek_to_beginning(where)
            else:
                consumer.seek(where, start)
            return [consumed(await consumer.getone()) for _ in range(count)]

        return self._with_consumer(address, topic, work, partition=partition)

    def watermarks(self, address: str, topic: str) -> tuple[int, int]:
        async def work(consumer: Any, where: Any) -> tuple[int, int]:
            low = (await consumer.beginning_offsets([where]))[where]
            return low, (await consumer.end_offsets([where]))[where]

        return self._with_consumer(address, topic, work)

    def offset_for_time(self, address: str, topic: str, timestamp_ms: int) -> int | None:
        async def work(consumer: Any, where: Any) -> int | None:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return None if found is None else found.offset

        return self._with_consumer(address, topic, work)

    def commit(self, address: str, group: str, topic: str, offset: int) -> None:
        async def work(consumer: Any, where: Any) -> None:
            await consumer.commit({where: offset})

        self._with_consumer(address, topic, work, group=group)

    def committed(self, address: str, group: str, topic: str) -> int | None:
        async def work(consumer: Any, where: Any) -> int | None:
            found: int | None = await consumer.committed(where)
            return found

        return self._with_consumer(address, topic, work, group=group)

    def _with_consumer(
        self,
        address: str,
        topic: str,
        work: Callable[[Any, Any], Awaitable[T]],
        *,
        group: str | None = None,
        partition: int = 0,
    ) -> T:
        async def do() -> T:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            try:
                where = aiokafka.TopicPartition(topic, partition)
                consumer.assign([where])
                return await work(consumer, where)
            finally:
                await consumer.stop()

        return run(do)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine for half a minute at most; an error of the server becomes a ClientError."""

    async def limited() -> T:
        return await asyncio.wait_for(work(), TIMEOUT_SECONDS)

    try:
        return asyncio.run(limited())
    except aiokafka.errors.KafkaError as error:
        raise ClientError(getattr(error, "errno", -1)) from error


CLIENTS: tuple[Client, ...] = (Librdkafka(), Aiokafka())
