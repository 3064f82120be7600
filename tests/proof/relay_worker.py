"""The library's leg of a relay, as a separate process: it is killed while it works.

`python -m tests.proof.relay_worker KIND SEED NUMBER LEFT DIRECTORY...`: prints what it serves, then
works until it is killed or its standard input ends, a line of JSON for each thing it tries and was
answered. KIND is what it does most: "work" a little of everything, "convert" conversions of the
data directories in place, without a manager, "cut" truncations, "remove" deletions of a topic. LEFT
names topics that are not to be changed, with commas between.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog import (
    Codec,
    Log,
    LogConfig,
    LogManager,
    ManagerConfig,
    Record,
    TopicPartition,
    convert_directory,
    convert_log,
)
from tests.proof.relay_history import COMPACTED, STORED, TOPICS, text_of

__all__ = ["KINDS", "main"]

KINDS = ("work", "convert", "cut", "remove")
SETTINGS = {"segment.bytes": "20000", "index.interval.bytes": "256", "retention.ms": "-1"}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
# Formats v0, v1 and v2.
FORMATS = ("0.9.0", "0.10.2", "4.1")
MANAGER = {
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "kafkalog.journal.bytes": str(1 << 20),
    "kafkalog.journal.checkpoint.interval.ms": "300",
}


def say(what: str, *arguments: Any) -> None:
    """Write a line in one system call, so that a kill leaves no half of it."""
    os.write(1, json.dumps([what, *arguments]).encode() + b"\n")


def is_over() -> bool:
    """Return whether the standard input has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Worker:
    """One opening of the data directories."""

    def __init__(self, manager: LogManager, drawn: random.Random, number: int) -> None:
        self.manager = manager
        self.random = drawn
        self.prefix = f"L{number}"
        self.count = 0
        self.left: Sequence[str] = ()

    def values(self, most: int) -> list[str]:
        """Return values that nothing else writes."""
        made = []
        for _ in range(self.random.randint(1, most)):
            self.count += 1
            made.append(f"{self.prefix}-{self.count}-" + "x" * self.random.randrange(60))
        return made

    def prepare(self) -> None:
        """Give the topics their settings; what is appended to old logs has any of the formats."""
        for topic in self.manager.topics():
            if topic in TOPICS:
                more = COMPACT if topic in COMPACTED else {}
                if topic in ("old", "oldest", "cut"):
                    more = {**more, "message.format.version": self.random.choice(FORMATS)}
                self.manager.reconfigure(topic, {**SETTINGS, **more})

    def show(self) -> None:
        """Print what is served, when what was decided is done: the first client does that."""
        with self.manager.consumer("group") as consumer:
            for partition in range(TOPICS["plain"]):
                found = consumer.committed(TopicPartition("plain", partition))
                say("position", partition, None if found is None else found.offset)
        there = self.manager.topics()
        for topic in TOPICS:
            for partition in there.get(topic, ()):
                log = self.manager.log(topic, partition)
                say("serves", topic, partition, "read_uncommitted", rows_of(topic, log))
                if topic == "moved":
                    rows = rows_of(topic, log, "read_committed")
                    say("serves", topic, partition, "read_committed", rows)
        faults = [str(fault) for fault in self.manager.health().faults]
        say("shown", faults)

    def work(self, kind: str) -> None:
        """Do something at random."""
        todo: list[Callable[[], None]] = [
            self.append, self.append, self.produce, self.renew, self.renew, self.clean,
            self.transact, self.transact, self.commit_position, self.delete, self.flush, self.cut,
        ]  # fmt: skip
        if kind == "cut":
            todo = [self.append, self.delete, self.cut, self.cut, self.restart]
        elif kind == "remove":
            todo = [self.append, self.remove]
        self.random.choice(todo)()

    def a_log(self, topics: Sequence[str]) -> tuple[str, int, Log]:
        """Return one of the logs of these topics that are there."""
        there = self.manager.topics()
        topic = self.random.choice([each for each in topics if each in there])
        partition = self.random.choice(there[topic])
        return topic, partition, self.manager.log(topic, partition)

    def append(self) -> None:
        """Append by the log."""
        values = self.values(6)
        topic, partition, log = self.a_log([each for each in STORED if each not in self.left])
        say("try append", topic, values)
        info = log.append([Record(value=value.encode()) for value in values])
        say("appended", topic, partition, info.first_offset, values)

    def produce(self) -> None:
        """Append to `plain` by an idempotent producer."""
        values = self.values(6)
        say("try append", "plain", values)
        with self.manager.producer(enable_idempotence=True) as producer:
            sent = [producer.send("plain", each.encode(), key=each.encode()) for each in values]
            producer.flush()
        for value, delivery in zip(values, sent, strict=True):
            where = delivery.result()
            say("appended", "plain", where.partition, where.offset, [value])

    def renew(self) -> None:
        """Give keys of a compacted topic new values."""
        topic, _partition, log = self.a_log(COMPACTED)
        held = sorted({record.key or b"" for record in log.records()})
        for value in self.values(30):
            key = f"k{self.random.randrange(80)}".encode()
            if held and self.random.random() < 0.3:
                key = self.random.choice(held)
            say("try renew", topic, text_of(key), value)
            log.append([Record(key=key, value=value.encode())])
            say("renewed", topic, text_of(key), value)

    def clean(self) -> None:
        """Compact a topic."""
        topic, _partition, log = self.a_log(COMPACTED)
        log.roll()
        self.manager.compact(topic)
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
        """Delete a few records."""
        topic, partition, log = self.a_log(("plain", "old", "cut"))
        offset = min(log.log_start_offset + self.random.randrange(60), log.log_end_offset)
        say("try start", topic, partition, offset)
        log.delete_records(offset)
        say("start", topic, partition, offset)

    def cut(self) -> None:
        """Cut the end of `cut` off."""
        log = self.manager.log("cut")
        start, end = log.log_start_offset, log.log_end_offset
        offset = max(start, end - self.random.choice((3, 20, 100)) - self.random.randrange(20))
        if offset >= end:
            return
        kept = offset
        for batch in log.batches():
            if batch.base_offset <= offset <= batch.last_offset:
                kept = batch.base_offset
        say("try cut", "cut", 0, offset, kept)
        log.truncate_to(offset)
        say("cut", "cut", 0)

    def restart(self) -> None:
        """Let `cut` begin again without records, now and then."""
        if self.random.random() < 0.7:
            return
        log = self.manager.log("cut")
        offset = log.log_end_offset + self.random.choice((0, 0, 7, 1000))
        say("try restart", "cut", 0, offset)
        log.truncate_fully_and_start_at(offset)
        say("restart", "cut", 0, offset)

    def remove(self) -> None:
        """Delete `gone`, if it is there and has something."""
        if "gone" in self.left or "gone" not in self.manager.topics():
            return
        if self.random.random() < 0.8:
            return
        say("try remove")
        self.manager.delete_topic("gone")
        say("removed")

    def flush(self) -> None:
        """Put a partition on the disk."""
        self.manager.log("plain", self.random.randrange(2)).flush()


def rows_of(topic: str, log: Log, isolation: Any = "read_uncommitted") -> list[list[Any]]:
    """Return the records of a log as `History` has them."""
    rows: list[list[Any]] = []
    for each in log.records(isolation=isolation):
        key = text_of(each.key)
        if topic == "old":
            key = f"{each.timestamp_ms}:{key}"
        rows.append([each.offset, key, text_of(each.value)])
    return rows


def convert(drawn: random.Random, directories: Sequence[str], left: Sequence[str]) -> None:
    """Convert a partition or a data directory in place, with any codec or to v2 alone."""
    codec = drawn.choice([None, *Codec])
    config = LogConfig.from_properties(SETTINGS)
    directory = Path(drawn.choice(directories))
    names = [
        each.name
        for each in sorted(directory.iterdir())
        if each.is_dir() and each.name.rpartition("-")[0] in set(TOPICS) - set(left)
    ]
    if names and drawn.random() < 0.7:
        name = drawn.choice(names)
        say("converting", name, str(codec))
        convert_log(directory / name, in_place=True, codec=codec, config=config)
    else:
        say("converting", directory.name, str(codec))
        convert_directory(directory, in_place=True, codec=codec, config=config)
    say("converted")


def main(arguments: list[str]) -> int:
    """Open, show, work."""
    kind, seed, number, left, *directories = arguments
    drawn = random.Random(int(seed))
    properties = MANAGER | {"kafkalog.journal.enable": drawn.choice(("true", "false"))}
    with LogManager([*directories], ManagerConfig.from_properties(properties)) as manager:
        worker = Worker(manager, drawn, int(number))
        worker.left = left.split(",")
        worker.prepare()
        worker.show()
        while kind != "convert" and not is_over():
            worker.work(kind)
    while kind == "convert" and not is_over():
        convert(drawn, directories, worker.left)
    say("closed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except kafkalog.KafkaLogError as error:
        say("failed", repr(error))
        raise
