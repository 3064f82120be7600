"""Goal K10: compaction of a log on disk where one record of ten survives, against Kafka's Cleaner.

    python -m asv_bench.peers.cleaning [--quick] [--wall] --kafka JARS

JARS is a directory with Kafka's jars (the interop tests keep one in `.kafka`). The peer is the
class `Cleaner` with its `SkimpyOffsetMap` on an `UnifiedLog`, in a Java process that stays warm.
Both sides clean copies of one log by turns, all of it but the active segment, in one thread each
with the same memory for keys: what is timed are both passes and the exchange of segments, by that
thread's CPU clock, or with `--wall` by the wall clock. What they left is compared.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, thread_time

import kafkalog
from asv_bench.peers.common import Comparison, Goal, make_records
from asv_bench.peers.java_process import JavaProcess
from asv_bench.peers.kafka_classes import compare_with_kafka
from asv_bench.peers.stopwatch import Seconds, Stopwatch
from asv_bench.peers.stores import CHUNK_RECORDS, Workspace
from kafkalog import LogConfig

SOURCE = Path(__file__).with_name("CompactLog.java")
RECORDS = 5_000_000
RECORDS_QUICK = 1_000_000
RECORDS_PER_KEY = 10
VALUE_BYTES = 100
BATCH_BYTES = 16 * 1024
SEGMENT_BYTES = 64 << 20
MEMORY_BYTES = 128 << 20
WARM_UP = 4
GOALS = {"uncompressed": 7.0, "zstd": 3.0}


def config_of(codec: str) -> LogConfig:
    """Return the settings of the log."""
    return LogConfig(
        batch_bytes=BATCH_BYTES,
        segment_bytes=SEGMENT_BYTES,
        cleanup_policy=("compact",),
        compression_type=codec,
        message_timestamp_after_max_ms=2**62,
    )


def make_log(directory: Path, codec: str, count: int) -> None:
    """Make a closed log whose keys have RECORDS_PER_KEY records each, in random order."""
    made = make_records(count // RECORDS_PER_KEY, VALUE_BYTES)
    numbers = list(range(len(made.keys))) * RECORDS_PER_KEY
    random.Random(2).shuffle(numbers)
    with kafkalog.open_log(directory, config=config_of(codec)) as log:
        for start in range(0, len(numbers), CHUNK_RECORDS):
            chosen = numbers[start : start + CHUNK_RECORDS]
            log.append_columns(
                [made.keys[number] for number in chosen],
                [made.values[number] for number in chosen],
                timestamps=made.timestamps[0],
            )
        log.roll()


class OneLog:
    """Copies of a log, one at a time, and what a side left of the last one."""

    def __init__(self, workspace: Workspace, source: Path, clean: Callable[[Path], Seconds]):
        self._workspace = workspace
        self._source = source
        self._clean = clean
        self._directory: Path | None = None

    def prepare(self) -> None:
        """Put a fresh copy there."""
        self._workspace.remove_store(self._directory)
        self._directory = self._workspace.fresh()
        shutil.copytree(self._source, self._directory)

    def clean(self) -> Seconds:
        """Clean the copy."""
        assert self._directory is not None
        return self._clean(self._directory)

    def left(self) -> list[bytes]:
        """Return the contents of the segments that live."""
        assert self._directory is not None
        return [path.read_bytes() for path in sorted(self._directory.glob("*.log"))]


def ours(codec: str) -> Callable[[Path], Seconds]:
    """Return what cleans a directory here; opening and closing are not counted."""

    def clean(directory: Path) -> Seconds:
        with kafkalog.open_log(directory, config=config_of(codec)) as log:
            begun, begun_cpu = perf_counter(), thread_time()
            kafkalog.compact_log(log, memory_bytes=MEMORY_BYTES)
            return Seconds(perf_counter() - begun, thread_time() - begun_cpu)

    return clean


def theirs(kafka: JavaProcess) -> Callable[[Path], Seconds]:
    """Return what cleans a directory in Java."""

    def clean(directory: Path) -> Seconds:
        wall, cpu, *_counts = kafka.ask(str(directory))
        return Seconds(wall / 1e9, cpu / 1e9)

    return clean


def comparisons(
    workspace: Workspace, jars: Path, *, quick: bool, by_wall: bool
) -> Iterator[Comparison]:
    """Yield K10 without a codec and with zstd, the Java process warm."""
    count = RECORDS_QUICK if quick else RECORDS
    for codec, ratio in GOALS.items():
        source = workspace.fresh()
        make_log(source, codec, count)
        size = sum(path.stat().st_size for path in source.glob("*.log"))
        stopwatch = Stopwatch(by_wall=by_wall)
        with JavaProcess(SOURCE, jars, str(MEMORY_BYTES), str(SEGMENT_BYTES)) as kafka:
            sides = {
                "ours": OneLog(workspace, source, ours(codec)),
                "kafka": OneLog(workspace, source, theirs(kafka)),
            }
            for _ in range(WARM_UP):
                sides["kafka"].prepare()
                sides["kafka"].clean()
            comparison = Comparison(
                f"{codec}, {size >> 20} MiB",
                count,
                {name: stopwatch.time(side.clean) for name, side in sides.items()},
                [Goal("K10 compact a log on disk", "ours", "kafka", ratio)],
                clock=stopwatch.read,
                prepare=lambda name, sides=sides: sides[name].prepare(),
            )
            yield comparison
        for name, side in sides.items():
            rate = size / comparison.median(name) / 1e6
            left = side.left()
            comparison.notes.append(
                f"K10, {codec}, {name}: {rate:.0f} MB/s;"
                f" left {sum(map(len, left))} bytes in {len(left)} segments"
            )
        if codec == "uncompressed":
            assert sides["ours"].left() == sides["kafka"].left()
        workspace.remove_store(source)


if __name__ == "__main__":
    sys.exit(compare_with_kafka("Compact a log, here and in Kafka's classes.", comparisons))
