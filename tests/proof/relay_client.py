"""Clients of librdkafka at work on a broker's leg of a relay, as a process of their own.

`python -m tests.proof.relay_client ADDRESS SEED PREFIX SETTINGS GONE END0 END1`: works until its
standard input ends or it is killed, with the broker or without; a line of JSON for each thing it
tries and was answered. SETTINGS are those of the topic `gone`, as JSON; GONE is 1 where it exists.
A separate process, since a client waits for ever for a broker that was stopped.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.proof.relay_history import COMPACTED, TOPICS

__all__ = ["main"]

WAIT_SECONDS = 30


def say(what: str, *arguments: Any) -> None:
    """Write a line in one system call, so that a kill leaves no half of it."""
    os.write(1, json.dumps([what, *arguments]).encode() + b"\n")


class Client:
    """Producers, a transactional one, a group, and an operator: a topic is made and deleted."""

    def __init__(
        self, address: str, seed: int, prefix: str, settings: dict[str, str], ends: list[int]
    ) -> None:
        self.random = random.Random(seed)
        self.prefix = prefix
        self.settings = settings
        self.has_gone = False
        self.ends = ends
        self.count = 0
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        common = {"bootstrap.servers": address, "message.timeout.ms": 10000, "log_level": 0}
        self.common = common
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
        todo = [self.produce, self.produce, self.renew, self.transact, self.commit_position]
        if self.random.random() < (0.05 if self.has_gone else 0.5):
            todo = [self.remove if self.has_gone else self.make]
        self.random.choice(todo)()

    def produce(self) -> None:
        """Append to `plain`, or to one of the others."""
        topic = self.random.choice(["plain", "plain", "old", "cut", "gone"])
        if topic == "gone" and not self.has_gone:
            return
        values = self.values(8)
        say("try append", topic, values)
        # A topic that was deleted and made again is another one: nothing of it may be remembered.
        producer = Producer(self.common) if topic == "gone" else self.plain
        for value in values:
            producer.produce(topic, value.encode(), on_delivery=self._delivered)
        producer.flush(5)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            say("appended", topic, partition, offset, [message.value().decode()])
            if topic == "plain":
                self.ends[partition] = max(self.ends[partition], offset + 1)

    def renew(self) -> None:
        """Give keys of a compacted topic new values, one after the other."""
        topic = self.random.choice(COMPACTED)
        for value in self.values(10):
            key = f"k{self.random.randrange(80)}"
            say("try renew", topic, key, value)
            self.plain.produce(topic, value.encode(), key.encode(), on_delivery=self._renewed)
            self.plain.flush(5)

    def _renewed(self, error: Any, message: Any) -> None:
        if error is None:
            say("renewed", message.topic(), message.key().decode(), message.value().decode())

    def remove(self) -> None:
        """Delete `gone`."""
        say("try remove")
        self.admin.delete_topics(["gone"])["gone"].result(WAIT_SECONDS)
        say("removed")
        self.has_gone = False

    def make(self) -> None:
        """Make `gone` again."""
        topic = NewTopic("gone", TOPICS["gone"], 1, config=self.settings)
        self.admin.create_topics([topic])["gone"].result(WAIT_SECONDS)
        say("made")
        self.has_gone = True

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
            answered = consumer.commit(offsets=[where], asynchronous=False)
        finally:
            consumer.close()
        # A partition that was refused raises no exception: its answer has the error.
        refused = [each.error for each in answered or [] if each.error is not None]
        if refused:
            say("refused", str(refused[0]))
        else:
            say("position is", partition, offset)


def main(arguments: list[str]) -> int:
    """Work until the standard input ends."""
    address, seed, prefix, settings, has_gone, *ends = arguments
    client = Client(address, int(seed), prefix, json.loads(settings), list(map(int, ends)))
    client.has_gone = has_gone == "1"
    say("ready")
    while not select.select([sys.stdin], [], [], 0)[0]:
        client.work()
    client.plain.flush(WAIT_SECONDS)
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
