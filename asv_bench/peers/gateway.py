"""Goal P21: librdkafka through the gateway of the examples, and through a real broker.

    python -m asv_bench.peers.gateway [--quick] [--kafka JARS]

Both servers run all the time, on one half of the cores of this machine; this process, which is the
client, has the other half. The cases take turns, round by round, with the same records and the same
settings of the client. By the wall clock, since all sides work in threads and processes; the CPU
time of the servers' processes is noted.

The JVM compiles what it runs: before the first comparison both servers are written to and read from
for WARM_SECONDS each, and once more before each comparison.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from asv_bench.peers.common import (
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    add_options,
    options_of,
    run_all,
)
from asv_bench.peers.long_running import LongRunning
from asv_bench.peers.results import Result
from asv_bench.peers.stores import Workspace
from asv_bench.peers.texts import make_texts
from tests.examples.gateway.servers import BrokerServer, GatewayServer
from tests.interop.clients import TopicPlan, create_topics
from tests.interop.kafka_maven import KAFKA_VERSION, fetch_kafka

GATEWAY, BROKER, SYNCED = "gateway", "broker", "synced broker"
CODECS = ("none", "lz4")
PARTITIONS = 6
RECORDS = {100: 400_000, 1024: 80_000}
QUICK_SHARE = 4
# A call of the client for so many records.
CHUNK_RECORDS = 10_000
WARM_SECONDS, WARM_SECONDS_QUICK = 30.0, 3.0
TIMEOUT_SECONDS = 120.0
# The cleaner's index files of a test's broker would be too small for segments of the default size.
BROKER_SETTINGS = {"log.index.size.max.bytes": "10485760"}

Case = Callable[[], None]
Messages = Sequence[list[dict[str, Any]]]


class Server(Protocol):
    """Interface of both servers."""

    @property
    def address(self) -> str:
        """`host:port` for clients."""

    @property
    def process_id(self) -> int:
        """Process of the server."""


class Side:
    """
    A server and its clients, which stay connected.

    Attributes:
        cpu_seconds: CPU time of the server in each run of a case.
    """

    def __init__(self, server: Server, settings: Mapping[str, str]) -> None:
        self.address = server.address
        self.cpu_seconds: list[float] = []
        self._process_id = server.process_id
        self._settings = settings
        self._producers: dict[tuple[str, int], Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "bench",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 5,  # else the next round waits for a fetch at the end
                "log_level": 3,
            }
        )

    def create(self, topic: str) -> None:
        """Create a topic."""
        create_topics(self.address, [TopicPlan(topic, PARTITIONS, self._settings)])

    def producer(self, codec: str, acks: int) -> Any:
        """Return the producer of a codec and an acknowledgement."""
        if (codec, acks) not in self._producers:
            self._producers[codec, acks] = Producer(
                {
                    "bootstrap.servers": self.address,
                    "compression.type": codec,
                    "acks": acks,
                    "linger.ms": 5,
                    "queue.buffering.max.messages": 2_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                    "log_level": 3,
                }
            )
        return self._producers[codec, acks]

    def produce(self, topic: str, messages: Messages, codec: str, acks: int) -> None:
        """Write all records; return when all are acknowledged."""
        producer = self.producer(codec, acks)
        for chunk in messages:
            assert len(chunk) == producer.produce_batch(topic, chunk)
        left = producer.flush(TIMEOUT_SECONDS)
        assert left == 0, f"{left} records are not acknowledged"

    def consume(self, topic: str, count: int) -> None:
        """Read so many records from the start of all partitions."""
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        seen = 0
        while seen < count:
            found = self._consumer.consume(
                min(CHUNK_RECORDS, count - seen), timeout=TIMEOUT_SECONDS
            )
            assert found, f"{seen} of {count} records came"
            seen += len(found)
        # It would ask for more while the other server is measured.
        self._consumer.unassign()

    def stored_count(self, topic: str) -> int:
        """Return the number of records in a topic."""
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(
            self._consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)[1]
            for place in places
        )

    def timed(self, case: Case) -> Case:
        """Return a case that adds up the server's CPU time as well."""

        def run() -> None:
            before = cpu_seconds(self._process_id)
            case()
            self.cpu_seconds.append(cpu_seconds(self._process_id) - before)

        return run

    def close(self) -> None:
        """Close all connections; nothing is left to send."""
        self._consumer.close()
        self._producers.clear()


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time that a process has used, of all its threads."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def split_cores(cores: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the cores of the client and those of the servers; one core is for both."""
    half = len(cores) // 2
    return list(cores[:half]) or list(cores), list(cores[half:])


def messages_of(records: Records) -> Messages:
    """Return records as the client takes them, in chunks, shared out over the partitions."""
    rows = [
        {"key": key, "value": value, "partition": number % PARTITIONS}
        for number, (key, value) in enumerate(zip(records.keys, records.values, strict=True))
    ]
    return [rows[start : start + CHUNK_RECORDS] for start in range(0, len(rows), CHUNK_RECORDS)]


@contextmanager
def servers(jars: Path, workspace: Workspace) -> Iterator[dict[str, Side]]:
    """Start both servers on their cores, this process continues on the others."""
    clients, for_servers = split_cores(sorted(os.sched_getaffinity(0)))
    folder = workspace.fresh()
    folder.mkdir()
    install = LongRunning(jars, KAFKA_VERSION)
    with ExitStack() as stack:
        # Processes and threads have the cores of the thread that starts them.
        os.sched_setaffinity(0, for_servers)
        stack.callback(os.sched_setaffinity, 0, clients + for_servers)
        gateway = stack.enter_context(GatewayServer(folder / "gateway"))
        broker = BrokerServer(install, folder / "broker", BROKER_SETTINGS)
        stack.enter_context(broker)
        os.sched_setaffinity(0, clients)
        sides = {
            GATEWAY: Side(gateway, {}),
            BROKER: Side(broker, {}),
            SYNCED: Side(broker, {"flush.messages": "1"}),
        }
        for side in sides.values():
            stack.callback(side.close)
        yield sides


def warm_up(sides: Mapping[str, Side], seconds: float) -> None:
    """Write to and read from each server for a time, small records in both codecs."""
    messages = messages_of(make_texts(20_000, 100))
    count = sum(map(len, messages))
    for name in (GATEWAY, BROKER):
        side, begun, number = sides[name], time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            topic = f"warm-up-{number}"
            side.create(topic)
            for codec in CODECS:
                for acks in (1, -1):
                    side.produce(topic, messages, codec, acks)
            side.consume(topic, 4 * count)
            number += 1


def topic_of(*words: str) -> str:
    """Return the name of a topic."""
    return "-".join(words).replace(",", "").replace(" ", "-")


def compared(work: str, kib: int, goals: list[Goal], cases: dict[str, Case]) -> Comparison:
    """Return a comparison by the wall clock."""
    return Comparison(work, kib, cases, goals, clock=time.perf_counter, unit="KiB")


def producing(
    sides: Mapping[str, Side], messages: Messages, work: str, kib: int, codec: str, acks: int
) -> Iterator[Comparison]:
    """Yield the comparison of producing."""
    words = "all" if acks == -1 else str(acks)
    goals = [Goal(f"P21 produce, acks={words} / broker", GATEWAY, BROKER, 1.0)]
    if acks == -1:
        goals.append(Goal("produce, acks=all / broker, flush.messages=1", GATEWAY, SYNCED, 0))
    names = [GATEWAY, *(goal.peer for goal in goals)]
    topics = {name: topic_of(name, work, f"acks {words}") for name in names}
    cases = {}
    for name, topic in topics.items():
        side = sides[name]
        side.create(topic)
        cases[name] = side.timed(
            lambda side=side, topic=topic: side.produce(topic, messages, codec, acks)
        )
    found = compared(work, kib, goals, cases)
    yield from noted(found, sides, f"produce, acks={words}")
    count = sum(map(len, messages)) * (1 + len(found.seconds[GATEWAY]))
    for name, topic in topics.items():
        assert count <= sides[name].stored_count(topic), f"{name} lost records"


def consuming(
    sides: Mapping[str, Side], messages: Messages, work: str, kib: int, codec: str
) -> Iterator[Comparison]:
    """Yield the comparison of reading one round's records, which are in the page cache."""
    count, cases = sum(map(len, messages)), {}
    topic = topic_of("read", work)
    for name in (GATEWAY, BROKER):
        side = sides[name]
        side.create(topic)
        side.produce(topic, messages, codec, -1)
        cases[name] = side.timed(lambda side=side: side.consume(topic, count))
    goals = [Goal("P21 consume / broker", GATEWAY, BROKER, 1.0)]
    yield from noted(compared(work, kib, goals, cases), sides, "consume")


def noted(comparison: Comparison, sides: Mapping[str, Side], what: str) -> Iterator[Comparison]:
    """Yield a comparison, and note its throughput and the CPU time of the servers after it."""
    for side in sides.values():
        side.cpu_seconds.clear()
    yield comparison
    rounds = len(comparison.seconds[GATEWAY])
    rates = ", ".join(
        f"{name} {comparison.items / 1024 / statistics.median(seconds):.0f}"
        for name, seconds in comparison.seconds.items()
    )
    comparison.notes.append(f"{what}, {comparison.title}, MiB/s: {rates}")
    ours, theirs = (
        tuple(1e9 * each / comparison.items for each in sides[name].cpu_seconds[-rounds:])
        for name in (GATEWAY, BROKER)
    )
    unit = "ns of CPU a KiB"
    # The kernel counts in hundredths of a second.
    if all(ours) and all(theirs):
        label = f"CPU of the server, {what}"
        comparison.notes.append(
            Result("", label, comparison.title, unit, BROKER, 0.0, ours, theirs)
        )


def comparisons(workspace: Workspace, jars: Path, *, quick: bool) -> Iterator[Comparison]:
    """Yield all comparisons, with the same two servers."""
    with servers(jars, workspace) as sides:
        warm_up(sides, WARM_SECONDS_QUICK if quick else WARM_SECONDS)
        for value_size in VALUE_SIZES:
            count = RECORDS[value_size] // (QUICK_SHARE if quick else 1)
            records = make_texts(count, value_size)
            kib = records.payload_bytes // 1024
            messages = messages_of(records)
            for codec in CODECS:
                work = f"{value_size} B, {codec}"
                for acks in (1, -1):
                    yield from producing(sides, messages, work, kib, codec, acks)
                yield from consuming(sides, messages, work, kib, codec)


def main(arguments: Sequence[str]) -> int:
    """Print the table; exit code 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description="librdkafka through a gateway, and a broker.")
    add_options(parser)
    parser.add_argument("--kafka", type=Path, help="directory of Kafka's jars")
    parsed = parser.parse_args(arguments)
    options = options_of(parsed)
    jars = parsed.kafka or fetch_kafka().libraries
    workspace = Workspace()
    try:
        made = comparisons(workspace, jars, quick=options.quick)
        return run_all(made, peer=BROKER, options=options)
    finally:
        workspace.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
