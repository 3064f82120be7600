"""Relays: library and broker take the same data directories from each other, killed or stopped.

The broker has its own defaults, 50 partitions of both internal topics among them, and two data
directories. Logs of brokers 0.8.2 to 2.8 are put into some of its topics. Each leg first shows what
it serves, which is compared with all that was ever acknowledged; then it works, and is stopped in
order or killed at a random moment, or soon after it has begun a conversion, a truncation or the
deletion of a topic. Groups and transactional producers, of librdkafka or of Kafka itself on the
broker's legs, have the same names on both sides; a group of Kafka's own clients reads on, to the
end, from its position. A report of a broker about damage in its files is a broken promise.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.interop.broker import Broker, BrokerError, format_directory
from tests.interop.clients import TopicPlan, create_topics
from tests.interop.kafka_maven import KafkaInstall, fetch_kafka
from tests.proof.harness import Proof
from tests.proof.relay_history import COMPACTED, TOPICS, History, PartitionKey, Seen, Side, text_of
from tests.proof.relay_logs import put_old_logs
from tests.proof.relay_process import Ending, RelayProcess
from tests.proof.relay_worker import KINDS

__all__ = ["run"]

VERSIONS = ("4.1.2", "3.9.1")
JAVA_CLIENT = Path(__file__).with_name("RelayClient.java")
LEGS_OF_RELAY = 8
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
CLIENT_SECONDS = 30
# A log that was cut inside a batch ends after offsets without records: its end is not reached.
SILENT_POLLS = 10
# Settings of a broker's internal work: 50 partitions of its topics, the cleaner at once.
DEFAULTS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "1000",
}
# Log lines of a broker about files that it cannot use as they are, or takes for foreign.
ALARM = re.compile(
    r"Corruption found|Corrupt\w*Exception|InvalidOffset|IllegalState|NullPointer|Duplicate log"
    r"|Error while (load|recover|deleting|flush|read|clean|append)|Stopping serving"
    r"|marked stray|KafkaStorageException",
    re.IGNORECASE,
)
# After these lines a leg of the library ends soon, where it is killed at one of its deeds.
AIMS = {
    "convert": ("converting",),
    "cut": ("try cut", "try cut", "try restart", "try start"),
    "remove": ("try remove",),
}


def run(proof: Proof) -> None:
    """Run relays until the time is over, every other one with an older broker."""
    number = 0
    while proof.seconds_left() > 0:
        version = VERSIONS[number % len(VERSIONS)]
        relay = Relay(proof, fetch_kafka(version), proof.folder / f"relay-{number}")
        try:
            relay.run()
        except (TimeoutError, BrokerError, KafkaException, RuntimeError) as error:
            relay.broken("a leg of a relay failed", repr(error))
        proof.count(f"relays with a broker {version}")
        shutil.rmtree(relay.root, ignore_errors=True)
        number += 1


class Relay:
    """One pair of data directories, and its history."""

    def __init__(self, proof: Proof, install: KafkaInstall, root: Path) -> None:
        self.proof = proof
        self.install = install
        self.root = root
        self.random = proof.random
        self.history = History()
        self.directories = [root / "disk-1", root / "disk-2"]
        self.old: dict[str, str] = {}
        self.has_gone = True
        self.is_known = False

    def run(self) -> None:
        """Let a broker make the topics, put old logs into some, then change hands."""
        for directory in self.directories:
            directory.mkdir(parents=True)
        format_directory(self.install, self.root / "metadata", self._settings())
        plans = [
            TopicPlan(topic, count, self._topic_settings(topic)) for topic, count in TOPICS.items()
        ]
        # The controller has to know the internal topics too, or their directories become stray.
        internal = {"cleanup.policy": "compact", "compression.type": "producer"}
        plans += [TopicPlan(topic, 50, internal) for topic in INTERNAL_TOPICS]
        with self._broker() as broker:
            create_topics(broker.address, plans)
        self.old = put_old_logs(self.directories, self.random, self.history)
        first = self.random.randrange(2)
        for leg in range(first, first + LEGS_OF_RELAY):
            is_library = leg % 2 == 0
            problems = self._library_leg(leg) if is_library else self._broker_leg(leg)
            side = "the library" if is_library else f"the broker {self.install.version}"
            self.proof.count(f"legs of {'the library' if is_library else 'a broker'}")
            problems += self._stray_problems()
            for problem in problems:
                self.broken(f"{side}: {problem.split(':')[0]}", f"leg {leg}: {problem}")
            if problems or not self.proof.seconds_left():
                return

    def _topic_settings(self, topic: str) -> dict[str, str]:
        is_old = self.install.version.startswith("3.")
        segment_bytes = "segment.bytes" if is_old else "internal.segment.bytes"
        settings = {segment_bytes: "20000", "index.interval.bytes": "256", "retention.ms": "-1"}
        return {**settings, **(_COMPACT if topic in COMPACTED else {})}

    def _stray_problems(self) -> list[str]:
        """Return which partitions were set aside, but for those of the topic that is deleted."""
        found = [path for each in self.directories for path in each.glob("*-stray")]
        names = sorted(path.name for path in found if not path.name.startswith("gone-"))
        return [f"partitions became stray: {names}"] if names else []

    def broken(self, title: str, details: str) -> None:
        """Keep the directories."""
        # The files of a broker about its cluster are large and help little.
        files = sorted(self.root.iterdir(), key=lambda path: (path.name == "metadata", path))
        self.proof.broken(title, f"{details}\nold logs: {self.old}", files)

    def _settings(self) -> dict[str, str]:
        logs = ",".join(map(str, self.directories))
        return {**DEFAULTS, "metadata.log.dir": str(self.root / "metadata"), "log.dirs": logs}

    def _broker(self) -> Broker:
        return Broker(self.install, self.root / "metadata", settings=self._settings())

    def _judged(self, seen: Seen, side: Side) -> list[str]:
        """Return what is wrong with what a side serves, and take it for the truth from here on."""
        problems = self.history.problems(seen, side)
        self.history.confirm(seen, side)
        self.proof.count("records compared", sum(map(len, seen.records.values())))
        return problems

    # ---- the library ----

    def _library_leg(self, leg: int) -> list[str]:
        is_killed = self.random.random() < 0.7
        left = "gone" if self.history.is_in_doubt else ""
        kind = self.random.choice(KINDS if self.has_gone and not left else KINDS[:-1])
        command = [sys.executable, "-m", "tests.proof.relay_worker", kind]
        command += [str(self.random.getrandbits(32)), str(leg), left, *map(str, self.directories)]
        with RelayProcess(command, self.root / f"leg-{leg}.txt") as process:
            ending = self._library_ending(kind, process.kill if is_killed else process.finish)
            seen = _shown(process.lines)
            self.is_known = True
            problems = [] if seen is None else self._judged(seen, "library")
            ending.begin()
            said = []
            for what, *arguments in process.lines:
                ending.heard(what)
                said.append(self._record(what, arguments, "library"))
            ending.join()
        self.proof.count(f"legs of the library: {kind}")
        self.proof.count("kills of the library" if is_killed else "stops of the library")
        if is_killed and said and said[-1] in AIMS.get(kind, ()):
            self.proof.count(f"kills of the library during: {said[-1].removeprefix('try ')}")
        if seen is None or process.status not in (0, -signal.SIGKILL):
            return [*problems, f"the process ended: {process.status}, {process.error_text}"]
        if not is_killed and "closed" not in said:
            return [*problems, f"it did not close: {process.error_text}"]
        return problems

    def _library_ending(self, kind: str, act: Callable[[], object]) -> Ending:
        drawn = self.random
        seconds = drawn.uniform(0.01, 2.0)
        if kind not in AIMS or drawn.random() < 0.3:
            return Ending(act, seconds)
        delay_seconds = drawn.uniform(0, 0.2 if kind == "convert" else 0.01)
        return Ending(
            act,
            seconds + 2,
            line=drawn.choice(AIMS[kind]),
            count=drawn.randint(1, 5 if kind == "cut" else 2),
            delay_seconds=delay_seconds,
        )

    def _record(self, what: str, arguments: list[Any], side: str) -> str:
        history = self.history
        remover: Side = "library" if side == "library" else "broker"
        actions: dict[str, Callable[..., None]] = {
            "try append": lambda _topic, values: history.try_append(values),
            "appended": history.append,
            "try renew": history.try_renew,
            "renewed": history.renew,
            "begin": lambda name, values: history.begin(
                name, {int(partition): each for partition, each in values.items()}
            ),
            "decide": history.decide,
            "try position": history.try_position,
            "position is": history.store_position,
            "try start": history.try_start,
            "start": history.store_start,
            "try cut": history.try_cut,
            "cut": history.store_cut,
            "try restart": history.try_restart,
            "restart": history.store_restart,
            "try remove": lambda: history.try_remove(remover),
            "removed": lambda: history.remove(remover),
        }
        if what in actions:
            actions[what](*arguments)
        self.proof.count(f"{side}: {what}")
        return what

    # ---- the broker ----

    def _broker_leg(self, leg: int) -> list[str]:
        broker = self._broker()
        position = len(broker.log_text())
        broker.start()
        try:
            problems = self._wait_for_the_truth(broker)
            if not problems:
                problems = self._work_at(broker, leg)
        except BaseException:
            broker.__exit__(RuntimeError, None, None)
            raise
        if broker.is_running:
            broker.kill()
        return problems + _alarms(broker.log_text()[position:])

    def _work_at(self, broker: Broker, leg: int) -> list[str]:
        """Let clients work, and end the broker in the middle of it, or after them."""
        drawn = self.random
        is_killed, is_java = drawn.random() < 0.7, drawn.random() < 0.5
        # The library has to have seen the directories in order once, and in which cache they are:
        # after a kill before that it raises leader epochs, and the broker may have earlier ones.
        is_killed = is_killed and self.is_known
        command = [sys.executable, "-m", "tests.proof.relay_client"]
        if is_java:
            # 20 seconds for the group to read on, and time for the program to be compiled.
            command = [*self.install.command(str(JAVA_CLIENT), heap="128m")]
        command += [broker.address, str(drawn.getrandbits(31)), f"B{leg}"]
        command += [json.dumps(self._topic_settings("gone")), str(int(self.has_gone))]
        plain = [self.history.stored["plain", number] for number in range(TOPICS["plain"])]
        command += [str(max(stored, default=-1) + 1) for stored in plain]
        with RelayProcess(command, self.root / f"leg-{leg}.txt") as process:

            def kill() -> None:
                broker.kill()
                process.kill()

            ending = Ending(
                kill if is_killed else process.finish,
                drawn.uniform(0.1, 4.0),
                line=drawn.choice((None, None, "try remove", "removed", "made")),
                delay_seconds=drawn.uniform(0, 0.3),
            )
            said, problems = [], []
            for what, *arguments in process.lines:
                ending.heard(what)
                self.has_gone = {"made": True, "removed": False}.get(what, self.has_gone)
                said.append(self._record(what, arguments, "Java" if is_java else "librdkafka"))
                if what == "ready":
                    ending.begin()
                elif what == "problem":
                    problems += arguments
            ending.join()
        self.proof.count("kills of a broker" if is_killed else "stops of a broker")
        if not broker.is_running:
            return problems
        broker.stop()
        # Topics that were deleted in time have been renamed.
        self.history.removed.clear()
        if "closed" not in said:
            return [*problems, f"the clients did not end: {process.error_text}"]
        return problems

    def _wait_for_the_truth(self, broker: Broker) -> list[str]:
        """Compare until all is right, for a coordinator has to finish first; return what is not."""
        end = time.monotonic() + CLIENT_SECONDS
        while True:
            is_late = time.monotonic() > end
            try:
                seen = self._seen_at(broker)
            except KafkaException as error:
                if is_late:
                    return [f"the broker does not answer: {error}"]
            else:
                if is_late or not self.history.problems(seen, "broker"):
                    return self._judged(seen, "broker")
            time.sleep(0.3)

    def _seen_at(self, broker: Broker) -> Seen:
        seen = Seen()
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        there = admin.list_topics(timeout=CLIENT_SECONDS).topics
        self.has_gone = "gone" in there
        for isolation, topics in (("read_uncommitted", TOPICS), ("read_committed", ("moved",))):
            places = [
                (topic, partition)
                for topic in topics
                if topic in there
                for partition in range(TOPICS[topic])
            ]
            for (topic, partition), rows in _rows_at(broker, places, isolation).items():
                _see(seen, "serves", [topic, partition, isolation, rows])
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "group"})
        try:
            partitions = [TopicPartition("plain", number) for number in range(TOPICS["plain"])]
            for each in consumer.committed(partitions, timeout=CLIENT_SECONDS):
                _see(seen, "position", [each.partition, each.offset if each.offset >= 0 else None])
        finally:
            consumer.close()
        return seen


def _rows_at(
    broker: Broker, places: list[PartitionKey], isolation: str
) -> dict[PartitionKey, list[tuple[int, str, str]]]:
    """Return what librdkafka reads to the ends of partitions, as `History` has it."""
    found: dict[PartitionKey, list[tuple[int, str, str]]] = {place: [] for place in places}
    left = set(places)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    end, silent = time.monotonic() + CLIENT_SECONDS, 0
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        while left and not (left == {("cut", 0)} and silent > SILENT_POLLS):
            if time.monotonic() > end:
                raise TimeoutError(f"a broker gives no end of {sorted(left)}")
            messages = consumer.consume(500, 0.2)
            silent = 0 if messages else silent + 1
            for each in messages:
                place = str(each.topic()), int(each.partition() or 0)
                error = each.error()
                if error is None:
                    found[place].append(_row(each))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _row(message: Message) -> tuple[int, str, str]:
    key, value = text_of(message.key()), text_of(message.value())
    if message.topic() == "old":
        kind, time_ms = message.timestamp()
        key = f"{-1 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms}:{key}"
    return message.offset() or 0, key, value


def _alarms(log: str) -> list[str]:
    """Return what a broker reported of damage; a topic that is deleted may have become stray."""
    lines = [
        line
        for line in log.splitlines()
        if ALARM.search(line) and not ("stray" in line and "gone-" in line)
    ]
    return [f"the broker says: {len(lines)} lines, such as {lines[:3]}"] if lines else []


def _shown(lines: Iterator[list[Any]]) -> Seen | None:
    """Return what a process prints that it serves; None where it ended before."""
    seen = Seen()
    for what, *arguments in lines:
        if what == "shown":
            return seen
        _see(seen, what, arguments)
    return None


def _see(seen: Seen, what: str, arguments: list[Any]) -> None:
    if what == "serves":
        topic, partition, isolation, rows = arguments
        target = seen.committed if isolation == "read_committed" else seen.records
        target[topic, partition] = [(offset, key, value) for offset, key, value in rows]
    elif what == "position":
        partition, offset = arguments
        seen.positions["plain", partition] = offset


_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
