"""Goals G6 and G11: what planning a query costs, and the calls of a stream in the driver.

    python -m asv_bench.peers.spark_planning [--quick]

The floor of a micro-batch is the time of a trigger, by Spark's own progress, that finds ten records
in a log and passes them to the sink `noop`; the same time of Spark's own source of numbers is shown
with it.

G11 plans columns of segments without files: a million of them, and as many as make a hundred
thousand tasks. G6 makes real partition directories, one small log each, and measures the calls of
Spark in one micro-batch: the first look, a look without news, and looks at one grown partition of a
hundred; the goal is for all of these together. There is no peer: the goals are times, and the floor
is the time of the file system calls alone. All times are CPU times of this thread, except that of a
micro-batch, which is by the wall clock.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import kafkalog
from asv_bench.peers.common import parse_options, report
from asv_bench.peers.results import THE_GOAL, Result
from kafkalog import Record
from kafkalog.spark import log_ends, start_session
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import LogSplit, QuerySnapshot, resolve_bounds, split_and_pack
from kafkalog.spark.stream_plan import StreamPlan
from tests.support.planned import regular_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROUNDS = 5
GIB = 2**30


def in_time(goal: str, what: str, work: str, call: Callable[[], object], goal_ms: float) -> Result:
    """Return the CPU time of a call in this thread, in some rounds, with its limit."""
    taken = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        call()
        taken.append((time.thread_time() - began) * 1e9)
    return beside_goal(goal, what, work, "ns a call", taken, goal_ms * 1e6)


def beside_goal(
    goal: str, what: str, work: str, unit: str, ours: Sequence[float], most: float
) -> Result:
    """Return amounts with their limits."""
    return Result(goal, what, work, unit, THE_GOAL, 1.0, tuple(ours), (most,) * len(ours))


def plan(snapshot: QuerySnapshot, split_bytes: int) -> list[LogSplit]:
    """Plan a batch of everything."""
    bounds = resolve_bounds(snapshot, ReadOptions.parse({"path": "/data"}))
    return split_and_pack(snapshot, bounds, split_bytes=split_bytes)


def plans(scale: int) -> Iterator[Result]:
    """Yield what goal G11 asks for."""
    cases = (
        (1_000_000, "1 GiB, tasks of 16 GiB", 10_000, GIB, 16 * GIB, 1000),
        (1_000_000, "16 MiB, tasks of 256 MiB", 10_000, 16 << 20, GIB >> 2, 1000),
        (100_000, "256 MiB, a task each", 1_000, GIB >> 2, GIB >> 2, 2000),
        (100_000, "1 MiB, a partition each", 100_000, 1 << 20, GIB >> 2, 2000),
    )
    for segments, of_what, partitions, size, split_bytes, goal_ms in cases:
        work = f"{segments // scale} segments of {of_what}"
        shape = partitions // scale, segments // scale, size
        snapshot = regular_snapshot(*shape)
        call = partial(plan, snapshot, split_bytes)
        yield in_time("G11", "plan", work, call, goal_ms / scale)
        del snapshot, call
        tracemalloc.start()
        snapshot = regular_snapshot(*shape)
        splits = plan(snapshot, split_bytes)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        work = f"{work}: {len(splits)} tasks"
        yield beside_goal("G11", "memory held", work, "MB a plan", [held / 1e6], 40 / scale)


def make_partitions(root: Path, count: int) -> None:
    """Make partition directories that are copies of one."""
    (root / "meta.properties").write_text("version=1\n")
    with kafkalog.open_log(root / "t-0") as log:
        log.append([Record(value=b"v" * 100)] * 100)
    # Files of a standalone writer do not belong to each of them.
    files = [path for path in (root / "t-0").iterdir() if path.name.startswith("0")]
    contents = [(path.name, path.read_bytes()) for path in files]
    for number in range(1, count):
        directory = root / f"t-{number}"
        directory.mkdir()
        for name, content in contents:
            (directory / name).write_bytes(content)


def grow(root: Path, count: int, times: int) -> None:
    """Append a batch to every hundredth partition, which has got so many, as a writer does it."""
    name = "00000000000000000000.log"
    batch = bytearray((root / "t-1" / name).read_bytes())
    # The first batch of the log again, with the offsets after the last one.
    batch[0:8] = (100 * (times + 1)).to_bytes(8, "big")
    for number in range(0, count, 100):
        with (root / f"t-{number}" / name).open("ab") as file:
            file.write(batch)


def questions(root: Path, count: int) -> list[str]:
    """Return what a look asks the file system about: each log, and each directory in turn."""
    logs = [f"{root}/t-{number}/00000000000000000000.log" for number in range(count)]
    directories = [path[:-25] for path in logs]
    at_once = max(log_ends.DIRECTORY_CHECKS_MAX, count // 25)
    return [*logs[: log_ends.CHECKS_MAX], *directories[:at_once]]


def source_calls(root: Path, count: int, goal_ms: float) -> Iterator[Result]:
    """Yield one half of what goal G6 asks for, with so many partitions."""
    make_partitions(root, count)
    # No time stamp is young enough for a second look.
    time.sleep(0.2)
    options = {"path": str(root), "startingOffsets": "earliest"}
    plan = StreamPlan(ReadOptions.parse(options, streaming=True))
    end = plan.initial()
    work = f"{count} partitions"

    def settle() -> None:
        """Look until nothing is new, and no look is owed to what was new a moment ago."""
        nonlocal end
        time.sleep(0.1)
        for _ in range(count // log_ends.CHECKS_MAX + 2):
            end = plan.latest(end, is_limited=False)

    settle()
    paths = questions(root, count)
    questions_alone = in_time(
        "", "the questions alone", work, lambda: list(map(os.stat, paths)), goal_ms
    )
    yield in_time("G6", "nothing new", work, lambda: plan.latest(end, is_limited=False), goal_ms)
    calls = []
    for times in range(ROUNDS):
        grow(root, count, times)
        began = time.thread_time()
        fresh = plan.latest(end, is_limited=False)
        plan.newest()
        plan.splits(end, fresh)
        calls.append((time.thread_time() - began) * 1e9)
        settle()
    all_calls = beside_goal("G6", "1 % have grown", work, "ns a call", calls, goal_ms * 1e6)
    yield all_calls
    yield replace(
        all_calls, goal="", peer=questions_alone.what, wanted=0, theirs=questions_alone.ours
    )


def micro_batches(root: Path, rounds: int) -> Iterator[Result]:
    """Yield the other half: a trigger with ten records, of a log and of Spark's own source."""
    spark = start_session(
        "local[2]", spark__ui__enabled="false", spark__ui__showConsoleProgress="false"
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with kafkalog.open_log(root / "t-0") as log:
            log.append([Record(value=b"v")] * 10)
            source = spark.readStream.format("kafkalog").option("startingOffsets", "earliest")
            query = started(source.load(str(root)), root / "checkpoint")
            query.processAllAvailable()
            for _ in range(rounds):
                log.append([Record(value=b"v")] * 10)
                query.processAllAvailable()
            ours = durations(query)
            query.stop()
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        query = started(rate.load(), root / "checkpoint-rate")
        while len(query.recentProgress) < rounds + 1:
            time.sleep(0.1)
        query.stop()
        floor = durations(query)
    finally:
        spark.stop()
    count = min(len(ours), len(floor))
    found = beside_goal("G6", "micro-batch", "10 records", "ns a trigger", ours[-count:], 200e6)
    yield found
    yield replace(found, goal="", peer="Spark's own source", wanted=0, theirs=tuple(floor[-count:]))


def started(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Start a query whose rows are dropped."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.start()


def durations(query: StreamingQuery) -> list[float]:
    """Return how many ns the triggers took that had rows, but for those that warmed Spark up."""
    taken = [each for each in query.recentProgress if each["numInputRows"]]
    return [each["durationMs"]["triggerExecution"] * 1e6 for each in taken[len(taken) // 3 :]]


def results(*, quick: bool) -> Iterator[Result]:
    """Yield what both goals ask for."""
    yield from plans(10 if quick else 1)
    for count, goal_ms in ((1_000, 5.0),) if quick else ((1_000, 5.0), (100_000, 100.0)):
        root = Path(tempfile.mkdtemp(prefix="spark-planning-"))
        try:
            yield from source_calls(root, count, goal_ms)
        finally:
            shutil.rmtree(root)
    with tempfile.TemporaryDirectory(prefix="spark-planning-") as name:
        yield from micro_batches(Path(name), 10 if quick else 40)


def main(arguments: Sequence[str]) -> int:
    """Print the results; exit code 1 if a goal was missed."""
    options = parse_options(arguments)
    return report(results(quick=options.quick), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
