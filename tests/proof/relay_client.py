"""Clients of librdkafka at work on a broker's leg of a relay, as a process of their own.

`python -m tests.proof.relay_client ADDRESS SEED PREFIX END0 END1`: works until its standard input
ends or it is killed, with the broker or without; a line of JSON for each thing it tries and was
answered. A process of its own, since a client waits for ever for a broker that has gone.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["main"]

WAIT_SECONDS = 30


def say(what: str, *arguments: Any) -> None:
    """Write a line in one system call, so that a kill leaves no half of it."""
    os.write(1, json.dumps([what, *arguments]).encode() + b"\n")


class Client:
    """A producer, a transactional producer and a group."""

    def __init__(self, address: str, seed: int, prefix: str, ends: list[int]) -> None:
        self.random = random.Random(seed)
        self.prefix = prefix
        self.ends = ends
        self.count = 0
        common = {"bootstrap.servers": address, "message.timeout.ms": 10000, "log_level": 0}
        self.plain = Producer({**common, "enable.idempotence": True})
        self.mover = Producer(
            {**common, "transactional.id": "mover", "transaction.timeout.ms": 10000}
        )
        self.mover.init_transactions(WAIT_SECONDS)
        self.group = {"bootstrap.servers": address, "group.id": "group", "log_level": 0}

    def values(self, most: int) -> list[str]:
        """Return values that nothing else writes."""
        made = []
        for _ in range(self.random.randint(1, most)):
            self.count += 1
            made.append(f"{self.prefix}-{self.count}-" + "y" * self.random.randrange(60))
        return made

    def work(self) -> None:
        """Do something at random."""
        self.random.choice([self.produce, self.renew, self.transact, self.commit_position])()

    def produce(self) -> None:
        """Append to `plain`."""
        values = self.values(8)
        say("try plain", values)
        for value in values:
            self.plain.produce("plain", value.encode(), on_delivery=self._delivered)
        self.plain.flush(5)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            partition, offset = message.partition(), message.offset()
            say("plain", partition, offset, [message.value().decode()])
            self.ends[partition] = max(self.ends[partition], offset + 1)

    def renew(self) -> None:
        """Give keys of `latest` new values, one after the other."""
        for value in self.values(10):
            key = f"k{self.random.randrange(80)}"
            say("try latest", key, value)
            self.plain.produce("latest", value.encode(), key.encode(), on_delivery=self._renewed)
            self.plain.flush(5)

    def _renewed(self, error: Any, message: Any) -> None:
        if error is None:
            say("latest", message.key().decode(), message.value().decode())

    def transact(self) -> None:
        """Run a transaction over both partitions of `moved`."""
        values = {0: self.values(3), 1: self.values(3)}
        name = values[0][0]
        self.mover.begin_transaction()
        say("begin", name, values)
        for partition, each in values.items():
            for value in each:
                self.mover.produce("moved", value.encode(), partition=partition)
        if self.random.random() < 0.3:
            self.mover.abort_transaction(WAIT_SECONDS)
            say("decide", name, "aborted")
        else:
            say("decide", name, "committing")
            self.mover.commit_transaction(WAIT_SECONDS)
            say("decide", name, "committed")

    def commit_position(self) -> None:
        """Commit a position of the group."""
        partition = self.random.randrange(2)
        offset = self.random.randrange(self.ends[partition] + 1)
        say("try position", partition, offset)
        consumer = Consumer(self.group)
        try:
            where = TopicPartition("plain", partition, offset)
            consumer.commit(offsets=[where], asynchronous=False)
        finally:
            consumer.close()
        say("position is", partition, offset)


def main(arguments: list[str]) -> int:
    """Work until the standard input ends."""
    address, seed, prefix, *ends = arguments
    client = Client(address, int(seed), prefix, list(map(int, ends)))
    say("ready")
    while not select.select([sys.stdin], [], [], 0)[0]:
        client.work()
    client.plain.flush(WAIT_SECONDS)
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
