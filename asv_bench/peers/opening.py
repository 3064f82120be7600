"""Goals K11 and K12: opening many partitions, or one of many segments, against Kafka's own classes.

    python -m asv_bench.peers.opening [--quick] [--wall] --kafka JARS

JARS is a directory with Kafka's jars (the interop tests keep one in `.kafka`). The peer is
`UnifiedLog` in a Java process that stays warm; both sides open copies of one directory that was
closed in order, by turns, in one thread each, and time themselves by that thread's CPU clock, or
with `--wall` by the wall clock. Closing is not counted: the peer lets its files go without a sync,
as they are put back to what they were.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time
from unittest import mock

import kafkalog
from asv_bench.benchmarks.common import copy_partition
from asv_bench.peers.common import Comparison, Goal, make_records
from asv_bench.peers.java_process import JavaProcess
from asv_bench.peers.kafka_classes import compare_with_kafka
from asv_bench.peers.stopwatch import Seconds, Stopwatch
from asv_bench.peers.stores import Workspace
from kafkalog import LogConfig, Record
from kafkalog.files.posix import PosixFileSystem

SOURCE = Path(__file__).with_name("OpenLogs.java")
PARTITIONS = 10_000
PARTITIONS_QUICK = 500
SEGMENTS = 1_000
WARM_UP = 8
TOPIC = "opened"
MARKER = ".kafka_cleanshutdown"


class KafkaOpener(JavaProcess):
    """Opens all logs of a directory in Java each time it is asked to."""

    def __init__(self, jars: Path, directory: Path) -> None:
        super().__init__(SOURCE, jars, str(directory))
        self.descriptors = self.mappings = 0

    def open(self) -> Seconds:
        """Open all logs, let them go; return what the opening took."""
        wall, cpu, self.descriptors, self.mappings = self.ask()
        return Seconds(wall / 1e9, cpu / 1e9)


class OurOpener:
    """Opens all logs of a directory through a manager, asks each for its end, and closes them."""

    def __init__(self, directory: Path, count: int, *, ask_each: bool) -> None:
        self._directory = directory
        self._count = count if ask_each else 0
        self.descriptors = self.mappings = 0

    def open(self) -> Seconds:
        """Open the directory, close it; return what the opening took."""
        before = held()
        begun, begun_cpu = perf_counter(), thread_time()
        manager = kafkalog.LogManager([self._directory])
        for partition in range(self._count):
            assert manager.log(TOPIC, partition).log_end_offset
        taken = Seconds(perf_counter() - begun, thread_time() - begun_cpu)
        descriptors, mappings = held()
        self.descriptors, self.mappings = descriptors - before[0], mappings - before[1]
        with unsynced():
            manager.close()
        assert (self._directory / MARKER).exists()
        return taken


def held() -> tuple[int, int]:
    """Return how many descriptors and mappings this process has."""
    mappings = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), len(mappings)


def unsynced() -> mock._patch[object]:
    """Leave syncs of files out: closing is not what is measured."""
    return mock.patch("kafkalog.files.posix.sync_descriptor")


def make_directory(workspace: Workspace, partitions: int, segments: int) -> Path:
    """Return a data directory of equal partitions with as many segments each."""
    template = workspace.fresh()
    records = make_records(10, 100)
    config = LogConfig(segment_bytes=1024, batch_bytes=1024) if segments > 1 else LogConfig()
    batch = [
        Record(key=key, value=value, timestamp_ms=timestamp_ms)
        for key, value, timestamp_ms in zip(
            records.keys, records.values, records.timestamps, strict=True
        )
    ]
    with (
        unsynced(),
        mock.patch.object(PosixFileSystem, "sync_directory"),
        kafkalog.open_log(template, config=config) as log,
    ):
        for number in range(segments):
            if number:
                log.roll()
            log.append(batch[:5])
    directory = workspace.fresh()
    copy_partition(template, directory, TOPIC, partitions)
    return directory


def comparisons(
    workspace: Workspace, jars: Path, *, quick: bool, by_wall: bool
) -> Iterator[Comparison]:
    """Yield K11 and K12, each with both processes warm."""
    partitions = PARTITIONS_QUICK if quick else PARTITIONS
    for goal, count, segments, ratio in (
        ("K11", partitions, 1, 2.0),
        ("K12", 1, SEGMENTS, 3.0),
    ):
        directory = make_directory(workspace, count, segments)
        theirs = workspace.fresh()
        shutil.copytree(directory, theirs)
        stopwatch = Stopwatch(by_wall=by_wall)
        lazy = OurOpener(directory, count, ask_each=False)
        each = OurOpener(directory, count, ask_each=True)
        with KafkaOpener(jars, theirs) as kafka:
            for _ in range(WARM_UP):
                kafka.open()
            cases = {"kafka": stopwatch.time(kafka.open), "each": stopwatch.time(each.open)}
            goals = [Goal(f"{goal} every log opened", "each", "kafka", ratio)]
            if goal == "K11":
                cases["lazy"] = stopwatch.time(lazy.open)
                goals.append(Goal(f"{goal} logs opened when asked for", "lazy", "kafka", ratio))
            title = f"{count} x {segments} segments"
            comparison = Comparison(
                title,
                count * segments,
                cases,
                goals,
                clock=stopwatch.read,
                unit="segment" if count == 1 else "log",
            )
            yield comparison
        comparison.notes += [
            f"{goal}, {name}: {opener.descriptors} descriptors, {opener.mappings} mappings"
            for name, opener in (("kafkalog", each), ("Kafka", kafka))
        ]


if __name__ == "__main__":
    sys.exit(compare_with_kafka("Open many logs, here and in Kafka's classes.", comparisons))
