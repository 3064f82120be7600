"""Goals G6 and G11: what planning a query costs, and the calls of a stream in the driver.

    python -m asv_bench.peers.spark_planning [--quick] [--directory DIR]

The floor of a micro-batch is what a trigger takes, by Spark's own progress, that finds ten records
in a log and hands them to the sink `noop`; beside it the same of Spark's own source of numbers.

G11 plans columns of segments that no file stands behind: a million of them, and as many as make a
hundred thousand tasks. G6 makes real partition directories, one small log each, and measures the
calls that Spark makes in one micro-batch: the first look, one where nothing is new, and those where
one partition of a hundred has grown; of these the goal is for all together. There is no peer: the
goals are times, and the floor is what the questions to the file system take by themselves. All of
it is CPU time of this thread; the wall clock stands beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import kafkalog
from kafkalog import Record
from kafkalog.spark import log_ends, start_session
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import LogSnapshot, LogSplit, resolve_bounds, split_and_pack
from kafkalog.spark.stream_plan import StreamPlan
from tests.support.planned import regular_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

ROUNDS = 5
GIB = 2**30


class Timed:
    """Prints a line for each thing that is timed: medians of CPU and wall, and the goal."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def run(self, what: str, call: Callable[[], object], goal_ms: float | None = None) -> None:
        """Time a call, some rounds."""
        cpu, wall = [], []
        for _ in range(self._rounds):
            began, began_wall = time.thread_time(), time.perf_counter()
            call()
            cpu.append((time.thread_time() - began) * 1000)
            wall.append((time.perf_counter() - began_wall) * 1000)
        median = statistics.median(cpu)
        goal = "" if goal_ms is None else f"goal {goal_ms:7.0f} ms {verdict(median <= goal_ms)}"
        print(f"{what:58} {median:9.1f} ms CPU {statistics.median(wall):9.1f} ms wall  {goal}")


def verdict(is_reached: bool) -> str:
    """Say whether a goal is reached."""
    return "reached" if is_reached else "MISSED"


def plan(snapshot: LogSnapshot, split_bytes: int) -> list[LogSplit]:
    """Plan a batch of everything."""
    bounds = resolve_bounds(snapshot, ReadOptions.parse({"path": "/data"}))
    return split_and_pack(snapshot, bounds, split_bytes=split_bytes)


def measure_plans(timed: Timed, scale: int) -> None:
    """Goal G11."""
    cases = (
        ("1 M segments of 1 GiB, tasks of 16 GiB", 10_000, 1_000_000, GIB, 16 * GIB, 1000),
        ("1 M segments of 16 MiB, packed to 256 MiB", 10_000, 1_000_000, 16 << 20, GIB >> 2, 1000),
        ("100 k segments of 256 MiB, 100 k tasks", 1_000, 100_000, GIB >> 2, GIB >> 2, 2000),
        ("100 k partitions of 1 MiB, packed", 100_000, 100_000, 1 << 20, GIB >> 2, 2000),
    )
    for what, partitions, segments, size, split_bytes, goal_ms in cases:
        shape = partitions // scale, segments // scale, size
        snapshot = regular_snapshot(*shape)
        timed.run(f"G11 {what}", lambda s=snapshot, b=split_bytes: plan(s, b), goal_ms / scale)
        del snapshot
        tracemalloc.start()
        snapshot = regular_snapshot(*shape)
        splits = plan(snapshot, split_bytes)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        reached = verdict(held <= 40e6 / scale)
        print(
            f"    {len(splits)} tasks; held {held / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB;"
            f" goal {40 / scale:.0f} MB {reached}"
        )


def make_partitions(root: Path, count: int) -> None:
    """Make partition directories that are copies of one."""
    (root / "meta.properties").write_text("version=1\n")
    with kafkalog.open_log(root / "t-0") as log:
        log.append([Record(value=b"v" * 100)] * 100)
    # What a writer that stands alone leaves does not belong to each of them.
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
    # The batch that a log begins with once more, with the offsets behind the last one.
    batch[0:8] = (100 * (times + 1)).to_bytes(8, "big")
    for number in range(0, count, 100):
        with (root / f"t-{number}" / name).open("ab") as file:
            file.write(batch)


def questions(root: Path, count: int) -> list[str]:
    """Return what a look asks the file system about: each log, and each directory in turn."""
    logs = [f"{root}/t-{number}/00000000000000000000.log" for number in range(count)]
    directories = [path[:-25] for path in logs]
    at_once = max(log_ends.DIRECTORY_LOOKS_MAX, count // 25)
    return [*logs[: log_ends.LOOKS_MAX], *directories[:at_once]]


def measure_stream(timed: Timed, root: Path, count: int, goal_ms: float) -> None:
    """Goal G6, with so many partitions."""
    make_partitions(root, count)
    # No time stamp is young enough for a second look.
    time.sleep(0.2)
    options = {"path": str(root), "startingOffsets": "earliest"}
    plan = StreamPlan(ReadOptions.parse(options, streaming=True))
    began = time.thread_time()
    start = end = plan.initial()
    taken = (time.thread_time() - began) * 1000
    print(f"{f'G6  {count} partitions: first look':58} {taken:9.1f} ms CPU")
    what = f"G6  {count} partitions"

    def settle() -> None:
        """Look until nothing is new, and no look is owed to what was new a moment ago."""
        nonlocal end
        time.sleep(0.1)
        for _ in range(count // log_ends.LOOKS_MAX + 2):
            end = plan.latest(end, is_limited=False)

    settle()
    asked = questions(root, count)
    timed.run(f"{what}: the questions alone", lambda: list(map(os.stat, asked)))
    timed.run(
        f"{what}: latestOffset, nothing new", lambda: plan.latest(end, is_limited=False), goal_ms
    )
    timed.run(f"{what}: reportLatestOffset", plan.newest, goal_ms)
    calls: dict[str, list[float]] = {"latestOffset": [], "reportLatestOffset": [], "partitions": []}
    for times in range(ROUNDS):
        grow(root, count, times)
        marks = [time.thread_time()]
        fresh = plan.latest(end, is_limited=False)
        marks.append(time.thread_time())
        plan.newest()
        marks.append(time.thread_time())
        plan.splits(end, fresh)
        marks.append(time.thread_time())
        for call, began, ended in zip(calls, marks, marks[1:], strict=False):
            calls[call].append((ended - began) * 1000)
        settle()
    for call, taken_ms in calls.items():
        print(f"{f'{what}: {call}, 1 % have grown':58} {statistics.median(taken_ms):9.1f} ms CPU")
    total = statistics.median(map(sum, zip(*calls.values(), strict=True)))
    print(
        f"{f'{what}: all calls, 1 % have grown':58} {total:9.1f} ms CPU {'':19}"
        f"goal {goal_ms:7.0f} ms {verdict(total <= goal_ms)}"
    )
    timed.run(f"{what}: partitions of everything", lambda: plan.splits(start, end))


def measure_micro_batches(root: Path, rounds: int) -> None:
    """The other half of goal G6: a trigger with ten records, of a log and of Spark's own source."""
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
    median = statistics.median(ours)
    print(
        f"{'G6  micro-batch of ten records':58} {median:9.1f} ms wall, Spark's own source"
        f" {statistics.median(floor):.1f} ms; goal {200:7} ms {verdict(median <= 200)}"
    )


def started(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Start a query whose rows are dropped."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.start()


def durations(query: StreamingQuery) -> list[float]:
    """Return how long the triggers took that had rows, but for those that warmed Spark up."""
    taken = [each for each in query.recentProgress if each["numInputRows"]]
    return [each["durationMs"]["triggerExecution"] for each in taken[len(taken) // 3 :]]


def main() -> int:
    """Measure both goals."""
    parser = argparse.ArgumentParser(description="Goals G6 and G11: planning for Spark.")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--directory", type=Path, help="where partitions are made")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    timed = Timed(ROUNDS)
    measure_plans(timed, scale)
    for count, goal_ms in ((1_000, 5.0), (100_000 // scale, 100.0)):
        root = Path(tempfile.mkdtemp(prefix="spark-planning-", dir=arguments.directory))
        try:
            measure_stream(timed, root, count, goal_ms)
        finally:
            shutil.rmtree(root)
    with tempfile.TemporaryDirectory(prefix="spark-planning-") as name:
        measure_micro_batches(Path(name), 10 if arguments.quick else 40)
    return 0


if __name__ == "__main__":
    sys.exit(main())
