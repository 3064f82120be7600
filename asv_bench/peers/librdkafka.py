"""Producers and consumers against librdkafka, with its own mock of a broker.

    python -m asv_bench.peers.librdkafka [--quick]

The mock answers from memory, in a thread of the producer's process, by sockets of the machine: it
is the least that a client of a broker can cost. Ours puts records into a log on the disk's file
system, in the caller's thread. By the wall clock, since the peer works in threads; each side counts
until all is acknowledged, or all has been handed over with key and value touched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import kafkalog
from asv_bench.peers.common import Comparison, Goal, Records, make_records
from asv_bench.peers.fresh import Fresh
from asv_bench.peers.storage_append import append_lists
from asv_bench.peers.stores import Workspace, fill_log, log_config, run_in_workspace

# The mock keeps no more than 5 MiB of a partition.
RECORDS = 20_000
BATCH_BYTES = 16 * 1024
TOPIC = "records"
POLL_RECORDS = 10_000
QUEUE_RECORDS = 1_000_000
TIMEOUT_SECONDS = 60.0

Case = Callable[[], object]


def make_producer() -> Producer:
    """Return a producer with a separate mock of a broker."""
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "batch.size": BATCH_BYTES,
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "acks": 1,
            "log_level": 3,
        }
    )
    producer.list_topics(TOPIC, timeout=TIMEOUT_SECONDS)  # makes the topic
    return producer


def produce(producer: Producer, records: Records) -> None:
    """Produce records one by one, and wait for all of them."""
    send = producer.produce
    for key, value, timestamp in zip(records.keys, records.values, records.timestamps, strict=True):
        send(TOPIC, value, key, 0, timestamp=timestamp)
    assert producer.flush(TIMEOUT_SECONDS) == 0


class Consuming:
    """A consumer of what the mock holds, from the first record each time."""

    def __init__(self, producer: Producer) -> None:
        broker = next(iter(producer.list_topics(timeout=TIMEOUT_SECONDS).brokers.values()))
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"{broker.host}:{broker.port}",
                "group.id": "records",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 5,  # else the next round waits for a fetch at the end
                "log_level": 3,
            }
        )
        place = TopicPartition(TOPIC, 0)
        low, high = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
        self._first, self.count = low, high - low

    def consume(self) -> None:
        """Take every record."""
        self._consumer.assign([TopicPartition(TOPIC, 0, self._first)])
        seen = 0
        while seen < self.count:
            count = min(POLL_RECORDS, self.count - seen)  # it waits for the requested number
            messages = self._consumer.consume(count, timeout=TIMEOUT_SECONDS)
            assert messages
            for message in messages:
                message.key()
                message.value()
            seen += len(messages)

    def close(self) -> None:
        """Leave the mock."""
        self._consumer.close()


class Topic:
    """A manager with one topic, a producer, and a consumer from the first record each time."""

    def __init__(self, path: Path) -> None:
        self._manager = kafkalog.LogManager([path])
        self._manager.create_topic(TOPIC, 1)
        self._producer = self._manager.producer(batch_size=BATCH_BYTES)

    def produce(self, records: Records) -> None:
        """Send records one by one, and wait for all of them."""
        send = self._producer.send
        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            send(TOPIC, value, key=key, timestamp_ms=timestamp, partition=0)
        self._producer.flush()

    def close(self) -> None:
        """Close the manager."""
        self._manager.close()


def producing(workspace: Workspace, records: Records, producer: Producer) -> Comparison:
    """Return producing."""
    fresh = Fresh(workspace, BATCH_BYTES, {"producer": Topic})

    def prepare(name: str) -> None:
        fresh.close() if name == "librdkafka" else fresh.prepare(name)

    return Comparison(
        "100 B, 16 KiB",
        len(records.keys),
        {
            "librdkafka": lambda: produce(producer, records),
            "producer": lambda: fresh.store.produce(records),
            "lists": append_lists(fresh, records),
        },
        [
            Goal("Producer.send of each / librdkafka produce", "producer", "librdkafka", 0),
            Goal("append lists / librdkafka produce", "lists", "librdkafka", 0),
        ],
        clock=time.perf_counter,
        prepare=prepare,
    )


def touch_each(log: kafkalog.Log) -> None:
    """Take every record, key and value touched."""
    for record in log.records():
        record.key
        record.value


def consuming(log: kafkalog.Log, consumer: Consuming) -> Comparison:
    """Return consuming as much as the mock holds."""
    return Comparison(
        "100 B, 16 KiB",
        consumer.count,
        {"librdkafka": consumer.consume, "objects": lambda: touch_each(log)},
        [Goal("log.records() / librdkafka consume", "objects", "librdkafka", 0)],
        clock=time.perf_counter,
    )


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield producing and consuming; the mock holds as little for a long run as for a quick one."""
    records = make_records(RECORDS, 100)
    producer = make_producer()
    yield producing(workspace, records, producer)
    with closing(Consuming(producer)) as consumer:
        held = make_records(consumer.count, 100)
        path = workspace.fresh()
        fill_log(path, held, BATCH_BYTES).close()
        with kafkalog.open_log(path, config=log_config(BATCH_BYTES)) as log:
            yield consuming(log, consumer)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
