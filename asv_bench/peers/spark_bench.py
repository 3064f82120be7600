"""A Spark of two threads for comparisons, what its workers hold, what it shuffles, and its logs.

A JVM compiles what it runs, the better the longer it has run: the first query over three million
records takes several times what the tenth takes. So all cases of a comparison together run for
WARM_SECONDS before the first round, each for its share, in the session that is then measured; with
`--quick` each runs once, and the figures of such a run have no meaning for Spark.

Memory is that of the processes below the JVM in the kernel; bytes of shuffles are those of Spark's
own store of stages. Logs have the records of `common.make_records`, made by the column.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import kafkalog
import kafkalog.spark
from asv_bench.peers.common import KEY_SIZE, TIMESTAMP_MS, Comparison, Goal
from kafkalog import BytesColumn, LogConfig
from tests.support import spark_session

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "compared",
    "next_stage",
    "noop",
    "python_workers",
    "session",
    "shuffled_bytes",
    "write_log",
    "write_rows",
]

WARM_SECONDS = 30.0
ROUNDS = 5

BATCH_BYTES = 16 * 1024
SEGMENT_BYTES = 32 << 20
CHUNK_RECORDS = 8192
POOL_BYTES = 64 * 1024
DIGITS = KEY_SIZE - len(b"key-")


@contextmanager
def session(**settings: str) -> Iterator[SparkSession]:
    """Start a session of two threads that knows the format, and stop it at the end."""
    os.environ.update(spark_session.environment(quick_start=False))
    fixed = {
        "spark__ui__enabled": "false",
        "spark__ui__showConsoleProgress": "false",
        "spark__driver__memory": "2g",
    }
    spark = kafkalog.spark.start_session("local[2]", **{**fixed, **settings})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def compared(
    title: str,
    items: int,
    cases: dict[str, Callable[[], object]],
    goals: Sequence[Goal],
    *,
    prepare: Callable[[str], object] = lambda _name: None,
    unit: str = "record",
) -> Comparison:
    """Return a comparison of what Spark does, of a warm JVM, by the wall clock."""
    return Comparison(
        title,
        items,
        cases,
        goals,
        clock=time.perf_counter,
        prepare=prepare,
        unit=unit,
        warm_seconds=WARM_SECONDS,
        rounds=ROUNDS,
    )


def noop(frame: DataFrame) -> None:
    """Carry all rows to a sink that drops them."""
    frame.write.format("noop").mode("overwrite").save()


def write_log(
    path: Path, count: int, value_size: int, *, keys: int | None = None, seed: int = 1
) -> int:
    """
    Write records into a log.

    Args:
        path: of the partition.
        count: how many records.
        value_size: bytes of a value.
        keys: how many different keys there are, in random order; each its own if None.
        seed: the same records for the same arguments.

    Returns:
        The bytes of its segments.
    """
    config = LogConfig(batch_bytes=BATCH_BYTES, segment_bytes=SEGMENT_BYTES)
    with kafkalog.open_log(path, config=config) as log:
        for key, value, numbers in _chunks(count, value_size, keys, seed):
            log.append_columns(
                BytesColumn(*key), BytesColumn(*value), timestamps=TIMESTAMP_MS + numbers
            )
    return sum(segment.stat().st_size for segment in path.glob("*.log"))


def write_rows(directory: Path, count: int, value_size: int, *, files: int) -> None:
    """Write keys and values as Parquet, of which each file is a task's, uncompressed."""
    directory.mkdir()
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    for number in range(files):
        path = directory / f"{number}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
            for columns in _chunks(count // files, value_size, None, seed=number):
                arrays = [
                    pa.Array.from_buffers(
                        pa.binary(),
                        len(column.ends) - 1,
                        [None, pa.py_buffer(column.ends), pa.py_buffer(column.data)],
                    )
                    for column in columns[:2]
                ]
                file.write_batch(pa.record_batch(arrays, schema=schema))


class _Cells(NamedTuple):
    """Cells of a column as bytes, and where they begin and end."""

    data: bytes
    ends: NDArray[np.int32]


def _chunks(
    count: int, value_size: int, keys: int | None, seed: int
) -> Iterator[tuple[_Cells, _Cells, NDArray[np.int64]]]:
    """Yield keys, values and numbers of records, some thousand at a time."""
    generator = np.random.default_rng(seed)
    pool = np.frombuffer(random.Random(seed).randbytes(POOL_BYTES + value_size), np.uint8)
    for start in range(0, count, CHUNK_RECORDS):
        numbers = np.arange(start, min(start + CHUNK_RECORDS, count))
        starts = generator.integers(POOL_BYTES, size=len(numbers))
        values = pool[starts[:, np.newaxis] + np.arange(value_size)]
        chosen = numbers if keys is None else generator.integers(keys, size=len(numbers))
        yield _cells(_keys(chosen)), _cells(values), numbers


def _keys(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return `key-%012d` of numbers, as rows of bytes."""
    rows = np.empty((len(numbers), KEY_SIZE), np.uint8)
    rows[:, :-DIGITS] = np.frombuffer(b"key-", np.uint8)
    rows[:, -DIGITS:] = numbers[:, np.newaxis] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10 + 48
    return rows


def _cells(rows: NDArray[np.uint8]) -> _Cells:
    return _Cells(rows.tobytes(), np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])


def shuffled_bytes(spark: SparkSession, first_stage: int) -> int:
    """Return the bytes that stages from a number on have written for others."""
    return sum(int(stage.shuffleWriteBytes()) for stage in _stages(spark, first_stage))


def next_stage(spark: SparkSession) -> int:
    """Return the number of the stage that comes next."""
    return max((int(stage.stageId()) + 1 for stage in _stages(spark, 0)), default=0)


def _stages(spark: SparkSession, first: int) -> list[Any]:
    context = spark.sparkContext
    gateway: Any = context._gateway
    none = gateway.jvm.java.util.ArrayList()
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(none, False, False, quantiles, none)
    each = (found.apply(slot) for slot in range(found.size()))
    return [stage for stage in each if int(stage.stageId()) >= first]


def python_workers(spark: SparkSession) -> dict[int, tuple[str, int]]:
    """Return of each Python process below the JVM its module, and the most memory it has had."""
    gateway: Any = spark.sparkContext._gateway
    parents = {pid: parent for pid, parent in map(_parent, Path("/proc").glob("[0-9]*")) if parent}
    below = {gateway.proc.pid}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    found = {}
    for pid in sorted(below):
        words = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
        peak = _peak_bytes(_read(Path(f"/proc/{pid}/status")))
        if "-m" in words and peak:
            # The daemon's last argument is the module of the workers that it forks.
            found[pid] = [word for word in words if word][-1], peak
    return found


def _parent(directory: Path) -> tuple[int, int]:
    words = _read(directory / "stat").rpartition(")")[2].split()
    return int(directory.name), int(words[1]) if words else 0


def _peak_bytes(status: str) -> int:
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> str:
    """Return the content of a file of the kernel; nothing if its process has ended."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
