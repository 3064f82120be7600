"""The library's leg of a relay, as a process of its own: it is killed while it works.

`python -m tests.proof.relay_worker SEED NUMBER DIRECTORY...`: prints what it serves, then works
until it is killed or its standard input ends, a line of JSON for each thing it tries and was
answered.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from collections.abc import Callable
from typing import Any

import kafkalog
from kafkalog import LogManager, ManagerConfig, Record, TopicPartition
from tests.proof.relay_history import TOPICS

__all__ = ["main"]

SETTINGS = {"segment.bytes": "20000", "index.interval.bytes": "256", "retention.ms": "-1"}
COMPACTED = {**SETTINGS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


def say(what: str, *arguments: Any) -> None:
    """Write a line in one system call, so that a kill leaves no half of it."""
    os.write(1, json.dumps([what, *arguments]).encode() + b"\n")


class Worker:
    """One opening of the data directories."""

    def __init__(self, manager: LogManager, seed: int, number: int) -> None:
        self.manager = manager
        self.random = random.Random(seed)
        self.prefix = f"L{number}"
        self.count = 0

    def values(self, most: int) -> list[str]:
        """Return values that nobody else writes."""
        made = []
        for _ in range(self.random.randint(1, most)):
            self.count += 1
            made.append(f"{self.prefix}-{self.count}-" + "x" * self.random.randrange(60))
        return made

    def show(self) -> None:
        """Print what is served."""
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                log = self.manager.log(topic, partition)
                for isolation in ("read_uncommitted", "read_committed"):
                    rows = [
                        (each.offset, (each.key or b"").decode(), (each.value or b"").decode())
                        for each in log.records(isolation=isolation)
                    ]
                    say("serves", topic, partition, isolation, rows)
        with self.manager.consumer("group") as consumer:
            for partition in range(TOPICS["plain"]):
                found = consumer.committed(TopicPartition("plain", partition))
                say("position", partition, None if found is None else found.offset)
        faults = [str(fault) for fault in self.manager.health().faults]
        say("shown", faults)

    def work(self) -> None:
        """Do something at random."""
        todo: list[Callable[[], None]] = [
            self.append, self.append, self.produce, self.renew, self.renew, self.clean,
            self.transact, self.transact, self.commit_position, self.delete, self.flush,
        ]  # fmt: skip
        self.random.choice(todo)()

    def append(self) -> None:
        """Append to `plain` by the log."""
        partition, values = self.random.randrange(2), self.values(6)
        say("try plain", values)
        log = self.manager.log("plain", partition)
        info = log.append([Record(value=value.encode()) for value in values])
        say("plain", partition, info.first_offset, values)

    def produce(self) -> None:
        """Append to `plain` by an idempotent producer."""
        values = self.values(6)
        say("try plain", values)
        with self.manager.producer(enable_idempotence=True) as producer:
            sent = [producer.send("plain", each.encode(), key=each.encode()) for each in values]
            producer.flush()
        for value, delivery in zip(values, sent, strict=True):
            where = delivery.result()
            say("plain", where.partition, where.offset, [value])

    def renew(self) -> None:
        """Give keys of `latest` new values."""
        for value in self.values(30):
            key = f"k{self.random.randrange(80)}"
            say("try latest", key, value)
            self.manager.log("latest").append([Record(key=key.encode(), value=value.encode())])
            say("latest", key, value)

    def clean(self) -> None:
        """Compact `latest`."""
        self.manager.log("latest").roll()
        self.manager.compact("latest")
        say("cleaned")

    def transact(self) -> None:
        """Run a transaction over both partitions of `moved`."""
        with self.manager.producer(transactional_id="mover") as producer:
            for _ in range(self.random.randint(1, 4)):
                values = {0: self.values(3), 1: self.values(3)}
                name = values[0][0]
                producer.begin_transaction()
                say("begin", name, values)
                for partition, each in values.items():
                    for value in each:
                        producer.send("moved", value.encode(), partition=partition)
                if self.random.random() < 0.3:
                    producer.abort_transaction()
                    say("decide", name, "aborted")
                else:
                    say("decide", name, "committing")
                    producer.commit_transaction()
                    say("decide", name, "committed")

    def commit_position(self) -> None:
        """Commit a position of the group."""
        partition = self.random.randrange(2)
        offset = self.random.randrange(self.manager.log("plain", partition).log_end_offset + 1)
        say("try position", partition, offset)
        with self.manager.consumer("group") as consumer:
            consumer.commit({TopicPartition("plain", partition): offset})
        say("position is", partition, offset)

    def delete(self) -> None:
        """Delete a few records of `plain`."""
        log = self.manager.log("plain", 1)
        offset = min(log.log_start_offset + self.random.randrange(20), log.log_end_offset)
        say("try start", 1, offset)
        log.delete_records_before(offset)
        say("start", 1, offset)

    def flush(self) -> None:
        """Put a partition on the disk."""
        self.manager.log("plain", self.random.randrange(2)).flush()


def main(arguments: list[str]) -> int:
    """Open, show, work."""
    seed, number, *directories = arguments
    config = ManagerConfig.from_properties(
        {"log.segment.delete.delay.ms": "1000", "log.flush.offset.checkpoint.interval.ms": "200"}
    )
    with LogManager([*directories], config) as manager:
        for topic in TOPICS:
            manager.reconfigure(topic, COMPACTED if topic == "latest" else SETTINGS)
        worker = Worker(manager, int(seed), int(number))
        worker.show()
        while not select.select([sys.stdin], [], [], 0)[0]:
            worker.work()
    say("closed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except kafkalog.KafkaLogError as error:
        say("failed", repr(error))
        raise
