"""Goals G9, G10 and G12: jobs on Spark, against Spark's own work on the same records.

    python -m asv_bench.peers.spark_jobs [--quick] [--rounds N] [--results FILE]

A session of two threads, by the wall clock, of a warm JVM; files lie in the page cache.

verify   every sum and index of some gibibytes of segments; `binaryFile` reads the same files and
         sums up their sizes
export   to Parquet with zstd; the other side is the same records by Spark's own Parquet writer
compact  its first half: which records are the latest of their keys; the other side is what one
         would write without it, `groupBy(partition, key).agg(max_by(value, offset))`
memory   the most that a Python worker had while records were read, written, exported, compacted

The shuffled bytes of stages are those that Spark reports as written for others. Values ten times as
large show that no value is among them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv_bench.peers.common import KEY_SIZE, Comparison, Goal, at_most
from asv_bench.peers.results import THE_GOAL, Result
from asv_bench.peers.spark_bench import (
    compared,
    next_stage,
    noop,
    python_workers,
    session,
    shuffled_bytes,
    write_log,
)
from asv_bench.peers.stores import Workspace, run_in_workspace
from kafkalog.spark.jobs import compact, export, verify
from kafkalog.spark.jobs.job_arguments import read_options
from kafkalog.spark.jobs.latest_records import KEY_TASK_BYTES, find_latest, plan_keys
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import QuerySnapshot, resolve_bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = PARTITIONS = 2
RECORDS = {100: 4_000_000, 1024: 1_000_000}
RECORDS_QUICK = {100: 1_000_000, 1024: 125_000}
# Each is seconds long, and so are its peers: all take four minutes.
ROUNDS, WARM_SECONDS = 3, 15.0
# Of ten records of a key two stay.
RECORDS_OF_A_KEY = 5
# Number of copies of each partition for verify, under other names: 6 GB of the smaller values.
COPIES, COPIES_QUICK = 12, 4
VERIFIED_BYTES_A_SECOND = 2e9
EXPORTED_RECORDS_A_SECOND = 3e6
EXPORTED_BYTES_A_SECOND = 550e6
INDEXED_RECORDS_A_SECOND = 1.7e6
SHUFFLED_BYTES_A_RECORD = 22.0
WORKER_BYTES = 150 << 20
WORKERS = "pyspark.worker"
MIB = 1 << 20


def briefly(*arguments: Any, **named: Any) -> Comparison:
    """Return a comparison as of other work on Spark, of fewer rounds."""
    return replace(compared(*arguments, **named), rounds=ROUNDS, warm_seconds=WARM_SECONDS)


def make_partitions(root: Path, count: int, value_size: int) -> int:
    """Write the records into partitions; return the bytes of their segments."""
    each = count // PARTITIONS
    return sum(
        write_log(root / f"r-{seed}", each, value_size, keys=each // RECORDS_OF_A_KEY, seed=seed)
        for seed in range(PARTITIONS)
    )


def verifying(spark: SparkSession, root: Path, workspace: Workspace, copies: int) -> Comparison:
    """Return the comparison of looking through every byte; there are links instead of copies."""
    many = workspace.fresh()
    for number in range(copies):
        for directory in sorted(root.glob("r-*")):
            target = many / f"c-{number * PARTITIONS + int(directory.name[2:])}"
            target.mkdir(parents=True)
            for file in directory.glob("0*"):
                (target / file.name).hardlink_to(file)
    size = sum(segment.stat().st_size for segment in many.glob("*/*.log"))
    reader = spark.read.format("binaryFile").option("pathGlobFilter", "*.log")
    files = reader.option("recursiveFileLookup", "true").load(str(many))

    def look() -> None:
        rows = verify(spark, many).selectExpr("sum(bytes)", "sum(bad)", "min(indexOk)").first()
        assert (size, 0, True) == tuple(rows)

    return briefly(
        f"{size / 1e9:.1f} GB",
        size >> 20,
        {
            "verify": look,
            "binaryFile": lambda: files.selectExpr("sum(length(content))").collect(),
        },
        [
            at_most("G9 verify", "verify", size / VERIFIED_BYTES_A_SECOND / CORES),
            Goal("G9 verify / binaryFile", "verify", "binaryFile", 0),
        ],
        unit="MiB",
    )


def exporting(
    spark: SparkSession, root: Path, workspace: Workspace, count: int, value_size: int
) -> Comparison:
    """Return the comparison of two exports to Parquet, each into an empty directory."""
    out = workspace.fresh()
    frame = spark.read.format("kafkalog").load(str(root))

    def ours() -> None:
        assert count == export(spark, root, out).totals["rows"]

    limit = count / EXPORTED_RECORDS_A_SECOND
    if value_size != min(RECORDS):
        limit = count * (KEY_SIZE + value_size) / EXPORTED_BYTES_A_SECOND
    return briefly(
        f"{value_size} B, zstd",
        count,
        {
            "export": ours,
            "Spark": lambda: frame.write.option("compression", "zstd").parquet(str(out)),
        },
        [
            at_most("G9 export", "export", limit),
            Goal("G9 export / Spark's writer", "export", "Spark", 0),
        ],
        prepare=lambda _case: shutil.rmtree(out, ignore_errors=True),
    )


class Indexing:
    """The first half of a compaction, and what it would be without it; counts what they shuffle."""

    def __init__(self, spark: SparkSession, root: Path, work: Path) -> None:
        self._spark = spark
        self._root = root
        self._work = work
        self._frame = spark.read.format("kafkalog").load(str(root))
        self.shuffled: dict[str, list[int]] = {"index": [], "groupBy": []}

    def counted(self, name: str, work: Callable[[], object]) -> Callable[[], None]:
        """Return a case that counts what it shuffles."""

        def case() -> None:
            first = next_stage(self._spark)
            work()
            self.shuffled[name].append(shuffled_bytes(self._spark, first))

        return case

    def index(self) -> None:
        """Find the latest records, and write the bits of their offsets."""
        shutil.rmtree(self._work, ignore_errors=True)
        read = read_options(self._root, None, isolationLevel="read_committed")
        arguments: dict[str, Any] = {"job": "compact", "read": read, "secret": "5a" * 16}
        ledger = JobLedger.begin(self._work, "index", arguments)
        options = ReadOptions.parse(read)
        found = QuerySnapshot.take(options)
        numbers = {name: number for number, name in enumerate(found.names())}
        bounds = resolve_bounds(found, options)
        plan_keys(self._spark, ledger, found, bounds, numbers, KEY_TASK_BYTES)
        _chunks, errors = find_latest(self._spark, ledger, None)
        assert {} == errors

    def group(self) -> None:
        """Find the latest records as Spark does."""
        from pyspark.sql import functions as sql

        latest = sql.max_by("value", "offset")
        noop(self._frame.groupBy("partition", "key").agg(latest))


def indexing(
    spark: SparkSession, root: Path, workspace: Workspace, count: int, value_size: int
) -> Iterator[Comparison]:
    """Yield the comparison of two queries of the latest records, then their shuffled bytes."""
    indexed = Indexing(spark, root, workspace.fresh())
    comparison = briefly(
        f"{value_size} B, {RECORDS_OF_A_KEY} records a key",
        count,
        {
            "index": indexed.counted("index", indexed.index),
            "groupBy": indexed.counted("groupBy", indexed.group),
        },
        [
            at_most("G10 index phase", "index", count / INDEXED_RECORDS_A_SECOND),
            Goal("G10 index phase / groupBy with max_by", "index", "groupBy", 0),
        ],
    )
    yield comparison
    # The queries of the rounds: during the warm-up the number depends on the time of each side.
    rounds = len(comparison.seconds["index"])
    ours, theirs = (
        tuple(size / count for size in indexed.shuffled[name][-rounds:])
        for name in ("index", "groupBy")
    )
    bound = (SHUFFLED_BYTES_A_RECORD,) * len(ours)
    for peer, ratio, other in ((THE_GOAL, 1.0, bound), ("groupBy with max_by", 0.0, theirs)):
        comparison.notes.append(
            Result("G10", "shuffled", comparison.title, "B a record", peer, ratio, ours, other)
        )


def read_all(spark: SparkSession, root: Path, _out: Path) -> None:
    """Read all records."""
    noop(spark.read.format("kafkalog").load(str(root)))


def write_all(spark: SparkSession, root: Path, out: Path) -> None:
    """Read all records, and write them to another log."""
    frame = spark.read.format("kafkalog").load(str(root)).select("key", "value")
    writer = frame.write.format("kafkalog").mode("append")
    writer.options(path=str(out), topic="t", partitions=str(PARTITIONS)).save()


def compact_all(spark: SparkSession, root: Path, _out: Path) -> None:
    """Compact everything, but leave the logs as they are."""
    compact(spark, root, policy={"cleanup.policy": "compact"}, dry_run=True)


def peaks(root: Path, workspace: Workspace) -> Iterator[Result]:
    """Yield the largest memory of a worker for each kind of work, in separate workers."""
    for name, work in (
        ("read", read_all),
        ("write", write_all),
        ("compact", compact_all),
        ("export", export),
    ):
        with session() as spark:
            work(spark, root, workspace.fresh())
            workers = python_workers(spark).values()
        peak = max(size for module, size in workers if module == WORKERS)
        what, bound = f"memory of a worker, {name}", (WORKER_BYTES / MIB,)
        measured = (peak / MIB,)
        yield Result("G12", what, "100 B", "MiB a worker", THE_GOAL, 1.0, measured, bound)


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons; memory comes first."""
    counts = RECORDS_QUICK if quick else RECORDS
    roots = {}
    for value_size, count in counts.items():
        roots[value_size] = workspace.fresh()
        make_partitions(roots[value_size], count, value_size)
    small = min(counts)
    results = list(peaks(roots[small], workspace))
    with session() as spark:
        first = verifying(spark, roots[small], workspace, COPIES_QUICK if quick else COPIES)
        first.notes += results
        yield first
        for value_size, count in counts.items():
            yield exporting(spark, roots[value_size], workspace, count, value_size)
            yield from indexing(spark, roots[value_size], workspace, count, value_size)


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
