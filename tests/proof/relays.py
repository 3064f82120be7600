"""Relays: library and broker take the same data directories from each other, killed or stopped.

The broker has its own defaults, 50 partitions of both internal topics among them, and two data
directories. Each leg first shows what it serves, which is held against all that was ever
acknowledged; then it works, and is stopped in order or killed at a random moment. Groups and
transactional producers, of librdkafka or of Kafka itself on the broker's legs, have the same names
on both sides; a group of Kafka's own clients reads on, to the end, from where it stands.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.broker import Broker, BrokerError, format_directory
from tests.interop.clients import TopicPlan, consume, create_topics
from tests.interop.kafka_maven import KafkaInstall, fetch_kafka
from tests.proof.harness import ROOT, Proof
from tests.proof.relay_history import TOPICS, History, Seen

__all__ = ["run"]

VERSIONS = ("4.1.2", "3.9.1")
JAVA_CLIENT = Path(__file__).with_name("RelayClient.java")
LEGS_OF_RELAY = 8
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
SHOW_SECONDS = 120
CLIENT_SECONDS = 30
# What a broker does by itself: 50 partitions of the internal topics, the cleaner at once.
DEFAULTS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "1000",
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
        self.count = 0

    def run(self) -> None:
        """Let a broker make the topics, then change hands."""
        for directory in self.directories:
            directory.mkdir(parents=True)
        format_directory(self.install, self.root / "metadata", self._settings())
        is_old = self.install.version.startswith("3.")
        segment_bytes = "segment.bytes" if is_old else "internal.segment.bytes"
        settings = {segment_bytes: "20000", "index.interval.bytes": "256"}
        plans = [
            TopicPlan(topic, count, {**settings, **(_COMPACT if topic == "latest" else {})})
            for topic, count in TOPICS.items()
        ]
        # The controller has to know the internal topics too, or their directories become stray.
        internal = {"cleanup.policy": "compact", "compression.type": "producer"}
        plans += [TopicPlan(topic, 50, internal) for topic in INTERNAL_TOPICS]
        with self._broker() as broker:
            create_topics(broker.address, plans)
        for leg in range(LEGS_OF_RELAY):
            is_library = leg % 2 == 0
            problems = self._library_leg(leg) if is_library else self._broker_leg(leg)
            side = "the library" if is_library else f"the broker {self.install.version}"
            self.proof.count(f"legs of {'the library' if is_library else 'a broker'}")
            for problem in problems:
                self.broken(f"{side}: {problem.split(':')[0]}", f"leg {leg}: {problem}")
            if problems or not self.proof.seconds_left():
                return

    def broken(self, title: str, details: str) -> None:
        """Keep the directories."""
        self.proof.broken(title, details, [self.root])

    def _settings(self) -> dict[str, str]:
        logs = ",".join(map(str, self.directories))
        return {**DEFAULTS, "metadata.log.dir": str(self.root / "metadata"), "log.dirs": logs}

    def _broker(self) -> Broker:
        return Broker(self.install, self.root / "metadata", settings=self._settings())

    def _judged(self, seen: Seen) -> list[str]:
        """Return what is wrong with what a side serves, and take it for the truth from here on."""
        problems = self.history.problems(seen)
        self.history.adopt(seen)
        self.proof.count("records compared", sum(map(len, seen.records.values())))
        return problems

    # ---- the library ----

    def _library_leg(self, leg: int) -> list[str]:
        is_killed = self.random.random() < 0.7
        command = [sys.executable, "-m", "tests.proof.relay_worker"]
        command += [str(self.random.getrandbits(32)), str(leg), *map(str, self.directories)]
        errors = self.root / f"leg-{leg}.txt"
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            watchdog = threading.Timer(SHOW_SECONDS, process.kill)
            watchdog.start()
            lines = (json.loads(line) for line in process.stdout if line.endswith(b"\n"))
            seen = _shown(lines)
            watchdog.cancel()
            problems = [] if seen is None else self._judged(seen)
            end = process.kill if is_killed else process.stdin.close
            timer = threading.Timer(self.random.uniform(0.01, 2.0), end)
            timer.start()
            said = [self._record(what, arguments) for what, *arguments in lines]
            timer.join()
            process.wait(SHOW_SECONDS)
        self.proof.count("kills of the library" if is_killed else "stops of the library")
        text = errors.read_text(errors="replace")[-1500:]
        if seen is None or process.returncode not in (0, -signal.SIGKILL):
            return [*problems, f"the process ended with {process.returncode}: {text}"]
        if not is_killed and "closed" not in said:
            return [*problems, f"it did not close: {text}"]
        return problems

    def _record(self, what: str, arguments: list[Any], side: str = "library") -> str:
        history = self.history
        actions: dict[str, Callable[..., None]] = {
            "try plain": history.try_plain,
            "plain": history.store_plain,
            "try latest": history.try_latest,
            "latest": history.store_latest,
            "begin": lambda name, values: history.begin(
                name, {int(partition): each for partition, each in values.items()}
            ),
            "decide": history.decide,
            "try position": history.try_position,
            "position is": history.store_position,
            "try start": history.try_start,
            "start": history.store_start,
        }
        if what in actions:
            actions[what](*arguments)
        self.proof.count(f"{side}: {what}")
        return what

    # ---- the broker ----

    def _broker_leg(self, leg: int) -> list[str]:
        broker = self._broker()
        broker.start()
        try:
            problems = self._wait_for_the_truth(broker)
            if not problems:
                problems = self._work_at(broker, leg)
        except BaseException:
            broker.__exit__(RuntimeError, None, None)
            raise
        return problems

    def _work_at(self, broker: Broker, leg: int) -> list[str]:
        """Let clients work, and end the broker in the middle of it, or behind them."""
        is_killed = self.random.random() < 0.7
        ends = [max(stored, default=-1) + 1 for _, stored in sorted(self.history.stored.items())]
        is_java = self.random.random() < 0.5
        command = [sys.executable, "-m", "tests.proof.relay_client"]
        if is_java:
            # 20 seconds for the group to read on, and time for the program to be compiled.
            command = [*self.install.command(str(JAVA_CLIENT), heap="128m")]
        command += [broker.address, str(self.random.getrandbits(31)), f"B{leg}", *map(str, ends)]
        errors = self.root / f"leg-{leg}.txt"
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None

            def kill() -> None:
                broker.kill()
                process.kill()

            end = kill if is_killed else process.stdin.close
            timer = threading.Timer(self.random.uniform(0.1, 4.0), end)
            watchdog = threading.Timer(SHOW_SECONDS, process.kill)
            watchdog.start()
            lines = (json.loads(line) for line in process.stdout if line.endswith(b"\n"))
            said, problems = [], []
            for what, *arguments in lines:
                said.append(self._record(what, arguments, "Java" if is_java else "librdkafka"))
                if what == "ready":
                    timer.start()
                elif what == "problem":
                    problems += arguments
            if "ready" in said:
                timer.join()
            process.wait(SHOW_SECONDS)
            watchdog.cancel()
        self.proof.count("kills of a broker" if is_killed else "stops of a broker")
        if not broker.is_running:
            return problems
        broker.stop()
        if "closed" not in said:
            text = errors.read_text(errors="replace")[-1500:]
            return [*problems, f"the clients did not end: {text}"]
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
                if is_late or not self.history.problems(seen):
                    return self._judged(seen)
            time.sleep(0.3)

    def _seen_at(self, broker: Broker) -> Seen:
        seen = Seen()
        for topic, count in TOPICS.items():
            for partition in range(count):
                for isolation in ("read_uncommitted", "read_committed"):
                    rows = [
                        (each.offset, (each.key or b"").decode(), (each.value or b"").decode())
                        for each in consume(
                            broker.address, topic, partition, isolation_level=isolation
                        )
                    ]
                    _see(seen, "serves", [topic, partition, isolation, rows])
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "group"})
        try:
            wanted = [TopicPartition("plain", number) for number in range(TOPICS["plain"])]
            for each in consumer.committed(wanted, timeout=CLIENT_SECONDS):
                _see(seen, "position", [each.partition, each.offset if each.offset >= 0 else None])
        finally:
            consumer.close()
        return seen


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
