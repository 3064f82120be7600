"""Requests of librdkafka whose settings matter: long polls, sizes of fetches, many partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from .clients import FIRST_TIMESTAMP_MS, Librdkafka, Sent, as_consumed, sent
from .raw import RawConnection, batch, fetch_many, produce
from .servers import GatewayServer, Server

CLIENT = Librdkafka()
UNKNOWN_TOPIC_OR_PARTITION = 3
TIMEOUT_SECONDS = 30.0


@contextmanager
def consuming(address: str, **settings: object) -> Iterator[Any]:
    """Return a consumer with settings, whose names have underscores for dots."""
    chosen = {
        "bootstrap.servers": address,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    consumer = confluent_kafka.Consumer(chosen)
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Any, count: int) -> list[Any]:
    """Return the next records."""
    records: list[Any] = []
    end = time.monotonic() + TIMEOUT_SECONDS
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} records came"
        found = consumer.consume(count - len(records), timeout=1.0)
        assert [] == [each.error() for each in found if each.error()]
        records += found
    return records


def place(topic: str, offset: int = 0, partition: int = 0) -> Any:
    """Return a partition and an offset in it."""
    return confluent_kafka.TopicPartition(topic, partition, offset)


def test_waiting_fetch_ends_with_an_append(server: Server, new_name: Callable[[], str]) -> None:
    """The fetch may wait for two minutes, the record is there within a fraction of that."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic)
    waits = {"fetch_wait_max_ms": 120_000, "socket_timeout_ms": 130_000}
    with consuming(server.address, **waits) as consumer:
        consumer.assign([place(topic)])
        for number in range(3):
            assert consumer.poll(1.0) is None  # it waits by now
            CLIENT.produce(server.address, topic, sent(1, number))
            message = consumer.poll(30.0)
            assert message is not None, "the waiting fetch did not see the append"
            assert (None, number) == (message.error(), message.offset())


def test_waiting_fetch_of_many_topics_ends_with_an_append_to_any(
    server: Server, new_name: Callable[[], str]
) -> None:
    """One fetch waits for all of them, and has what was appended; as bytes of the protocol."""
    topics = [new_name() for _ in range(3)]
    for topic in topics:
        CLIENT.create_topic(server.address, topic)
        # A broker leads a new partition some time after the answer to CreateTopics.
        CLIENT.produce(server.address, topic, sent(1))
    with RawConnection(server.address) as connection, RawConnection(server.address) as other:
        offsets = dict.fromkeys(topics, 1)
        for topic in (topics[2], topics[0]):
            connection.send(fetch_many(offsets, max_wait_ms=120_000))
            assert not connection.has_response(1.0)  # it waits by now
            assert other.ask(produce(topic, batch(1, 500))) is not None
            response = connection.receive()
            assert response is not None, "the waiting fetch did not see the append"
            assert 500 < len(response) < 1000
            offsets[topic] += 1


def test_fetch_waits_for_its_least_number_of_bytes(
    server: Server, new_name: Callable[[], str]
) -> None:
    """Fewer bytes than `fetch.min.bytes` come when the time of the fetch is over."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic)
    limits = {"fetch_min_bytes": 100_000, "fetch_wait_max_ms": 2000}
    with consuming(server.address, **limits) as consumer:
        consumer.assign([place(topic)])
        CLIENT.produce(server.address, topic, sent(1))
        assert [0] == [each.offset() for each in read(consumer, 1)]
        large = [Sent(None, b"x" * 60_000, FIRST_TIMESTAMP_MS)] * 2
        CLIENT.produce(server.address, topic, large)
        assert [1, 2] == [each.offset() for each in read(consumer, 2)]


def test_record_larger_than_a_fetch_is_returned(
    server: Server, new_name: Callable[[], str]
) -> None:
    """A consumer is never stuck at a batch that is larger than its limits (KIP-74)."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic)
    records = [Sent(b"k", b"v" * size, FIRST_TIMESTAMP_MS) for size in (10, 200_000, 10, 300_000)]
    for each in records:
        CLIENT.produce(server.address, topic, [each])
    limits = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 1000, "message_max_bytes": 1000}
    with consuming(server.address, **limits) as consumer:
        consumer.assign([place(topic)])
        assert [each.value for each in records] == [each.value() for each in read(consumer, 4)]


def test_large_partition_is_read_in_small_fetches(
    server: Server, new_name: Callable[[], str]
) -> None:
    """Batches that a limit cuts come again as a whole; each record comes once."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic)
    records = sent(3000, value_bytes=500)
    for first in range(0, 3000, 300):
        CLIENT.produce(server.address, topic, records[first : first + 300], codec="lz4")
    with consuming(server.address, fetch_message_max_bytes=10_000) as consumer:
        consumer.assign([place(topic)])
        values = [each.value() for each in read(consumer, 3000)]
    assert [each.value for each in records] == values


def test_partitions_of_a_topic_keep_their_records_apart(
    server: Server, new_name: Callable[[], str]
) -> None:
    """Records go to partitions by their keys; each comes once, in order within its partition."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic, 6)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.address})
    for number in range(600):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % 50))
    assert 0 == producer.flush(TIMEOUT_SECONDS)
    assert 6 == len(producer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions)
    with consuming(server.address) as consumer:
        consumer.assign([place(topic, partition=partition) for partition in range(6)])
        found: dict[int, list[int]] = {partition: [] for partition in range(6)}
        for message in read(consumer, 600):
            found[message.partition()].append(int(message.value()))
    assert list(range(600)) == sorted(number for each in found.values() for number in each)
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sum(map(bool, found.values())) > 1


def test_unknown_topic_has_its_error_in_each_request(
    server: Server, new_name: Callable[[], str]
) -> None:
    """Metadata, watermarks and produce; a partition beyond the last one as well."""
    topic, missing = new_name(), new_name()
    CLIENT.create_topic(server.address, topic)
    with consuming(server.address) as consumer:
        answer = consumer.list_topics(missing, timeout=TIMEOUT_SECONDS).topics[missing]
        assert UNKNOWN_TOPIC_OR_PARTITION == answer.error.code()
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.get_watermark_offsets(place(topic, partition=7), timeout=10)
    errors: list[int] = []

    def delivered(error: Any, _message: Any) -> None:
        errors.append(error.code())

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.address, "topic.metadata.propagation.max.ms": 300}
    )
    for name, partition in ((missing, 0), (topic, 7)):
        try:
            producer.produce(name, b"x", partition=partition, on_delivery=delivered)
        except confluent_kafka.KafkaException as error:
            errors.append(error.args[0].code())
    assert 0 == producer.flush(TIMEOUT_SECONDS)
    unknown = confluent_kafka.KafkaError
    allowed = {unknown._UNKNOWN_TOPIC, unknown._UNKNOWN_PARTITION, UNKNOWN_TOPIC_OR_PARTITION}
    assert set(errors) <= allowed
    assert 2 == len(errors)


def test_tail_sees_each_record_of_two_producers_once(
    server: Server, new_name: Callable[[], str]
) -> None:
    """A consumer at the end while two producers write: no gap, no repetition."""
    topic = new_name()
    CLIENT.create_topic(server.address, topic)
    settings = {"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 1}
    producers = [confluent_kafka.Producer(settings) for _ in range(2)]
    with consuming(server.address, isolation_level="read_committed") as consumer:
        consumer.assign([place(topic)])
        for number in range(500):
            for name, producer in enumerate(producers):
                producer.produce(topic, b"%d" % number, b"%d" % name)
                producer.poll(0)
            if number % 100 == 0:
                producers[0].flush(TIMEOUT_SECONDS)
        messages = read(consumer, 1000)
        assert [0, 0] == [producer.flush(TIMEOUT_SECONDS) for producer in producers]
    assert list(range(1000)) == [each.offset() for each in messages]
    for key in (b"0", b"1"):
        numbers = [int(each.value()) for each in messages if each.key() == key]
        assert list(range(500)) == numbers


def test_group_and_transaction_are_refused(
    gateway: GatewayServer, new_name: Callable[[], str]
) -> None:
    """The gateway has neither; a client learns it as an error and does not hang."""
    topic = new_name()
    CLIENT.create_topic(gateway.address, topic)
    with consuming(gateway.address) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(20.0)
        assert message is not None, "a subscription got no error"
        assert message.error() is not None
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": gateway.address, "transactional.id": "mover"}
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(20.0)
    assert confluent_kafka.KafkaError._TIMED_OUT != caught.value.args[0].code()
    CLIENT.produce(gateway.address, topic, sent(3))
    assert as_consumed(sent(3)) == CLIENT.consume(gateway.address, topic, 3)
