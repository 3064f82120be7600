"""Goals K1 to K9: a log here and in Kafka's own storage classes.

    python -m asv_bench.peers.storage_kafka [--quick] [--wall] --kafka JARS

The peers are `DefaultRecordBatch`, `MemoryRecordsBuilder` and `UnifiedLog` in a Java process that
has done the work WARM_UP times, and for WARM_UP_SECONDS, before. Both sides have the same records,
or the same bytes, and take turns; each times itself by the CPU clock of its thread (the collector
and the compiler of the JVM have threads of their own and are not counted), with `--wall` by the
wall clock. What is durable is timed by the wall clock always. Opening and closing a log are not
counted but in K9.
"""

from __future__ import annotations

import functools
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np

import kafkalog
from asv_bench.peers.bare import append_batches
from asv_bench.peers.common import (
    BATCH_SIZES,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
)
from asv_bench.peers.fresh import Fresh, PlainFile
from asv_bench.peers.java_process import JavaProcess
from asv_bench.peers.kafka_classes import compare_with_kafka
from asv_bench.peers.records import append_columns, build_run, decode_to_columns, split
from asv_bench.peers.stopwatch import Seconds, Stopwatch
from asv_bench.peers.storage_append import append_columns as append_to_log
from asv_bench.peers.storage_append import append_durable
from asv_bench.peers.storage_read import make_killed_log, put_back
from asv_bench.peers.stores import Workspace, fill_log, log_config
from kafkalog import Record
from kafkalog._core.assign_offsets import assign_offsets
from kafkalog._core.builder import BatchBuilder

SOURCE = Path(__file__).with_name("StoreRecords.java")
WARM_UP = 6
WARM_UP_SECONDS = 2.0  # the compiler of the JVM comes to its end in its own time
READ_BATCH_SIZES = (16 * 1024, 4 * 1024)
SEED = 11

Case = Callable[[], object]


class Kafka(JavaProcess):
    """The Java process, and what it is asked."""

    def __init__(self, jars: Path, workspace: Workspace) -> None:
        super().__init__(SOURCE, jars)
        self._workspace = workspace

    def load(self, data: bytes | bytearray) -> None:
        """Give it batches."""
        path = self._workspace.fresh()
        path.write_bytes(data)
        self.ask(f"load {path}")
        path.unlink()

    def open(self, directory: Path) -> None:
        """Let it open a separate log to read from."""
        self.time(f"open {directory}")

    def time(self, line: str) -> Seconds:
        """Ask for work; return what it took."""
        wall, cpu, self.count = self.ask(line)
        return Seconds(wall / 1e9, cpu / 1e9)

    def time_with(self, word: str, numbers: np.ndarray) -> Callable[[], Seconds]:
        """Return what asks for work on numbers, which a file has."""
        path = self._workspace.fresh()
        path.write_bytes(numbers.astype("<i8").tobytes())
        return lambda: self.time(f"{word} {path}")


class Directory:
    """A directory that Kafka makes a log in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Nothing is open here."""


class Bench:
    """Tools of a section: the clocks of both sides, and rounds that warm the other side up."""

    def __init__(self, workspace: Workspace, kafka: Kafka, *, quick: bool, by_wall: bool) -> None:
        self.workspace = workspace
        self.kafka = kafka
        self.quick = quick
        self.by_wall = by_wall

    def stopwatch(self) -> Stopwatch:
        """Return a clock for one comparison."""
        return Stopwatch(by_wall=self.by_wall)

    def time(self, case: Case) -> Callable[[], Seconds]:
        """Return a case of ours that times itself."""

        def action() -> Seconds:
            begun, begun_cpu = perf_counter(), thread_time()
            case()
            return Seconds(perf_counter() - begun, thread_time() - begun_cpu)

        return action

    def compare(
        self,
        title: str,
        items: int,
        actions: dict[str, Callable[[], Seconds]],
        goals: list[Goal],
        *,
        prepare: Callable[[str], object] = lambda _name: None,
        unit: str = "record",
        by_wall: bool = False,
    ) -> Comparison:
        """Return the comparison of actions that time themselves, Kafka's warm."""
        begun, rounds = perf_counter(), 0
        while rounds < WARM_UP or perf_counter() - begun < WARM_UP_SECONDS:
            prepare("kafka")
            actions["kafka"]()
            rounds += 1
        stopwatch = Stopwatch(by_wall=by_wall or self.by_wall)
        return Comparison(
            title,
            items,
            {name: stopwatch.time(action) for name, action in actions.items()},
            goals,
            clock=stopwatch.read,
            prepare=prepare,
            unit=unit,
        )

    def fresh(self, batch_size: int, **settings: bool) -> Fresh:
        """Return what makes a new log, here or there, before each case."""
        peers = {"kafka": Directory, "plain": PlainFile}
        return Fresh(self.workspace, batch_size, peers, warm=not settings, **settings)


def codings(bench: Bench) -> Iterator[Comparison]:
    """Yield K1 and K2: decoding and encoding, no files."""
    kafka = bench.kafka
    for value_size, decode, encode in zip(VALUE_SIZES, (4.0, 3.0), (3.0, 1.5), strict=True):
        count = (100_000 if bench.quick else 500_000) // (1 if value_size == VALUE_SIZES[0] else 5)
        records = make_records(count, value_size)
        for batch_size in BATCH_SIZES:
            data = build_run(records, batch_size)
            kafka.load(data)
            work = f"{value_size} B, {batch_size // 1024} KiB"
            yield bench.compare(
                work,
                count,
                {
                    "columns": bench.time(decode_to_columns(data)),
                    "kafka": lambda: kafka.time("decode"),
                },
                [Goal("K1 decode to columns / DefaultRecordBatch", "columns", "kafka", decode)],
            )
            encoding = append_columns(records, batch_size, BatchBuilder())
            yield bench.compare(
                work,
                count,
                {
                    "columns": bench.time(encoding),
                    "kafka": lambda batch_size=batch_size: kafka.time(f"encode {batch_size}"),
                },
                [Goal("K2 encode columns / MemoryRecordsBuilder", "columns", "kafka", encode)],
            )


def appends(bench: Bench) -> Iterator[Comparison]:
    """Yield K3 and K4: appends without a sync, of records and of ready batches."""
    kafka = bench.kafka
    count = 200_000 if bench.quick else 1_000_000
    records = make_records(count, 100)
    for batch_size, replicate in zip(BATCH_SIZES, (1.2, 2.0), strict=True):
        data = bytearray(build_run(records, batch_size))
        assign_offsets(data, base_offset=0, partition_leader_epoch=0)
        batches = split(data)
        kafka.load(data)
        fresh = bench.fresh(batch_size)
        work = f"100 B, {batch_size // 1024} KiB"
        yield bench.compare(
            work,
            count,
            {
                "columns": bench.time(append_to_log(fresh, records)),
                "kafka": lambda fresh=fresh, size=batch_size: kafka.time(
                    f"leader {fresh.path} {size}"
                ),
            },
            [Goal("K3 append columns / appendAsLeader", "columns", "kafka", 3.5)],
            prepare=fresh.prepare,
        )
        yield bench.compare(
            work,
            count,
            {
                "batches": bench.time(append_batches(fresh, batches)),
                "kafka": lambda fresh=fresh: kafka.time(f"follower {fresh.path}"),
                "plain": bench.time(
                    lambda fresh=fresh, batches=batches: fresh.store.write(batches)
                ),
            },
            [
                Goal("K4 append a ready batch / appendAsFollower", "batches", "kafka", replicate),
                Goal("append a ready batch / bare write", "batches", "plain", 0),
            ],
            prepare=fresh.prepare,
        )
        fresh.close()


def singles(bench: Bench) -> Iterator[Comparison]:
    """Yield K5: one record an append."""
    kafka = bench.kafka
    count = 20_000 if bench.quick else 100_000
    records = make_records(count, 100)
    kafka.load(build_run(records, BATCH_SIZES[0]))
    fresh = bench.fresh(BATCH_SIZES[0])
    yield bench.compare(
        "100 B, 1 record",
        count,
        {
            "each": bench.time(append_singly(fresh, records)),
            "appender": bench.time(append_with_appender(fresh, records)),
            "kafka": lambda: kafka.time(f"single {fresh.path}"),
        },
        [
            Goal("K5 append one record / appendAsLeader", "each", "kafka", 1.0),
            Goal("a record to an appender / appendAsLeader", "appender", "kafka", 0),
        ],
        prepare=fresh.prepare,
    )
    fresh.close()


def append_singly(fresh: Fresh, records: Records, **how: str) -> Case:
    """Return a case: an append for each record."""
    rows = list(zip(records.keys, records.values, records.timestamps, strict=True))

    def case() -> None:
        append = fresh.log.append
        for key, value, timestamp in rows:
            append([Record(key=key, value=value, timestamp_ms=timestamp)], **how)

    return case


def append_with_appender(fresh: Fresh, records: Records) -> Case:
    """Return a case: records one at a time into a reused buffer."""
    rows = list(zip(records.keys, records.values, records.timestamps, strict=True))

    def case() -> None:
        with fresh.log.appender() as appender:
            append = appender.append
            for key, value, timestamp in rows:
                append(key, value, timestamp)

    return case


def durable_appends(bench: Bench) -> Iterator[Comparison]:
    """Yield K6: everything on the disk before the next group, or the next record."""
    kafka = bench.kafka
    batch_size = BATCH_SIZES[1]
    for group, goal in ((1000, 1.8), (1, 2.0)):
        syncs = (20 if group > 1 else 100) if bench.quick else (50 if group > 1 else 500)
        records = make_records(group * syncs, 100)
        data = build_run(records, batch_size)
        kafka.load(data)
        fresh = bench.fresh(batch_size, preallocate=True)
        each = append_singly(fresh, records, wait="durable")
        pieces = [bytes(len(data) // syncs)] * syncs
        yield bench.compare(
            f"100 B, {group} a sync",
            len(records.keys),
            {
                "log": bench.time(append_durable(fresh, records) if group > 1 else each),
                "plain": bench.time(
                    lambda fresh=fresh, pieces=pieces: fresh.store.write_synced(pieces)
                ),
                "kafka": lambda fresh=fresh, group=group: kafka.time(
                    f"durable {fresh.path} {group}"
                ),
            },
            [
                Goal("K6 durable append / appendAsLeader and flush", "log", "kafka", goal),
                Goal("durable append / write and fdatasync", "log", "plain", 0),
            ],
            prepare=fresh.prepare,
            by_wall=True,
        )
        fresh.close()


def reads(bench: Bench) -> Iterator[Comparison]:
    """Yield K7 and K8: records and batches by offset, offsets by timestamp, anywhere."""
    kafka = bench.kafka
    count = 200_000 if bench.quick else 1_000_000
    read_count = 5_000 if bench.quick else 20_000
    records = make_records(count, 100)
    chosen = np.array(random.Random(SEED).choices(range(count), k=read_count))
    times = chosen + records.timestamps[0]
    for batch_size in READ_BATCH_SIZES:
        path, theirs = bench.workspace.fresh(), bench.workspace.fresh()
        fill_log(path, records, batch_size).close()
        shutil.copytree(path, theirs)
        kafka.open(theirs)
        work = f"100 B, {batch_size // 1024} KiB"
        with kafkalog.open_log(path, config=log_config(batch_size)) as log:
            for name, goal, word, each, numbers in (
                ("K7 record by offset / UnifiedLog.read", 5.0, "get", get_each, chosen),
                ("batch by offset / UnifiedLog.read", 0, "read", read_each, chosen),
                ("K8 offset by timestamp / fetchOffsetByTimestamp", 4.0, "find", find_each, times),
            ):
                case = functools.partial(each, log, numbers.tolist())
                cases, goals = {"log": bench.time(case)}, [Goal(name, "log", "kafka", goal)]
                if each is not read_each:
                    # As Kafka's classes do, which leave the sum to the consumer.
                    unsummed = functools.partial(case, check_crcs=False)
                    cases["unsummed"] = bench.time(unsummed)
                    label = name.replace(" / ", ", without the sum / ")
                    goals.append(Goal(label, "unsummed", "kafka", 0))
                yield bench.compare(
                    work,
                    read_count,
                    {**cases, "kafka": kafka.time_with(word, numbers)},
                    goals,
                    unit="look-up",
                )
                assert kafka.count == case()


def get_each(log: kafkalog.Log, offsets: list[int], *, check_crcs: bool = True) -> int:
    """Get the record of each offset; return how many bytes their values have."""
    get = log.get
    if check_crcs:
        return sum(len(get(offset).value) for offset in offsets)
    return sum(len(get(offset, check_crcs=False).value) for offset in offsets)


def read_each(log: kafkalog.Log, offsets: list[int]) -> int:
    """Read the batch of each offset; return how many bytes they have."""
    read = log.read
    return sum(len(read(offset, 1).data) for offset in offsets)


def find_each(log: kafkalog.Log, timestamps: list[int], *, check_crcs: bool = True) -> int:
    """Find the offset of each timestamp; return their sum."""
    find = log.offset_for_timestamp
    if check_crcs:
        return sum(find(timestamp).offset for timestamp in timestamps)
    return sum(find(timestamp, check_crcs=False).offset for timestamp in timestamps)


def recoveries(bench: Bench) -> Iterator[Comparison]:
    """Yield K9: opening a log whose writer was killed, with its index files and without."""
    kafka = bench.kafka
    path, theirs = bench.workspace.fresh(), bench.workspace.fresh()
    left_by_a_kill = make_killed_log(path, (256 << 20) if bench.quick else (1 << 30))
    shutil.copytree(path, theirs)
    put_back(path, left_by_a_kill)
    segment = max(path.glob("*.log"))
    size = segment.stat().st_size

    def recover() -> None:
        with kafkalog.open_log(path, config=log_config(BATCH_SIZES[0])) as log:
            assert log.recovery_report.scanned_bytes == size
            assert log.recovery_report.rewritten_bytes == 0

    for what, goal, without_indexes in (
        ("recovery", 3.0, False),
        ("recovery without index files", 5.0, True),
    ):

        def prepare(name: str, *, without_indexes: bool = without_indexes) -> None:
            directory = theirs if name == "kafka" else path
            put_back(directory, left_by_a_kill if name != "kafka" else {})
            if without_indexes:
                for index in directory.glob("*index"):
                    index.unlink()

        yield bench.compare(
            f"{size >> 20} MiB, 16 KiB",
            size >> 10,
            {
                "log": bench.time(recover),
                "kafka": lambda: kafka.time(f"recover {theirs}"),
            },
            [Goal(f"K9 {what} / UnifiedLog.create", "log", "kafka", goal)],
            prepare=prepare,
            unit="KiB",
        )


SECTIONS = (codings, appends, singles, durable_appends, reads, recoveries)


def comparisons(
    workspace: Workspace, jars: Path, *, quick: bool, by_wall: bool
) -> Iterator[Comparison]:
    """Yield all comparisons, with one Java process for each section."""
    for section in SECTIONS:
        with Kafka(jars, workspace) as kafka:
            yield from section(Bench(workspace, kafka, quick=quick, by_wall=by_wall))


if __name__ == "__main__":
    sys.exit(compare_with_kafka("Store records, here and in Kafka's classes.", comparisons))
