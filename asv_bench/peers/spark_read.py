"""Reading with Spark, goals G1 to G4: a log against Parquet, against tuples, against no reading.

    python -m asv_bench.peers.spark_read [--quick]

One session of two threads with unix sockets, warmed up (see `spark_bench`); the wall clock, since
the work is done by a JVM and its Python workers. The peers are `spark.read.parquet`, uncompressed
and zstd, of the same columns, and a source that yields the same records as Python tuples, as
sources without Arrow do. The files lie in the page cache. Filters and columns are compared with the
same query without them.

`no decode` is the limit of a Python source in Spark: it yields the same batches as ours from its
memory, for as many records; `one row` is a source that plans and reads nothing.

G1 is 333 ns a record or less of 100 bytes, 1,333 of 1 KiB, and 0.8 of that limit at 100 bytes;
G2 seven times less than tuples; G3 half of the time with the offset alone, and 0.3 s with
view=segments; G4 a point query within 0.15 s, a hundredth of the offsets within 0.25 s, and of the
times within 0.3 s. Sizes of `--quick` show that it runs, and little else: a query alone takes some
tenths of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import kafkalog
import kafkalog.spark
from asv_bench.peers.common import (
    TIMESTAMP_MS,
    VALUE_SIZES,
    Comparison,
    Goal,
    at_most,
)
from asv_bench.peers.spark_bench import compared, noop, session, write_log
from asv_bench.peers.stores import Workspace, run_in_workspace
from kafkalog.spark.source import KafkaLogDataSource

PARTITIONS = 2
RECORDS = {100: 3_000_000, 1024: 750_000}
RECORDS_QUICK = {100: 200_000, 1024: 50_000}
# Records of each partition in the memory of `no decode`.
BATCHES_KEPT = 16
# Goals in seconds a query, and in records a second.
SECONDS_WANTED = {
    "count of headers": 0.3,
    "ten offsets": 0.15,
    "1 % of offsets": 0.25,
    "1 % of times": 0.3,
}
RATES_WANTED = {100: 3.0e6, 1024: 0.75e6}


class TupleReader(DataSourceReader):
    """Reads what ours reads, and takes it apart into tuples."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._reader.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(DataSource):
    """A source of tuples; its offsets, keys and values are those of ours."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_tuples"

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset long"

    def reader(self, schema: Any) -> DataSourceReader:
        source = KafkaLogDataSource(dict(self.options))
        return TupleReader(source.reader(schema))


class MemoryReader(DataSourceReader):
    """Yields batches that ours has read once in this worker, until all records have been there."""

    kept: dict[str, list[pa.RecordBatch]] = {}  # noqa: RUF012 - of the process, and meant so

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        split = partition.value
        batches = MemoryReader.kept.get(repr((split, self._reader.columns)))
        if batches is None:
            batches = list(islice(self._reader.read(partition), BATCHES_KEPT))
            MemoryReader.kept[repr((split, self._reader.columns))] = batches
        left = sum(each.end - each.start for each in split.ranges)
        for batch in cycle(batches):
            if left <= batch.num_rows:
                yield batch.slice(0, left)
                return
            left -= batch.num_rows
            yield batch


class MemorySource(DataSource):
    """A source that decodes nothing after the first time."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_memory"

    def schema(self) -> str:
        return str(KafkaLogDataSource(dict(self.options)).schema())

    def reader(self, schema: Any) -> DataSourceReader:
        return MemoryReader(KafkaLogDataSource(dict(self.options)).reader(schema))


class OneRowReader(DataSourceReader):
    """One batch of one row."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"offset": pa.array([7], pa.int64())})


class OneRowSource(DataSource):
    """Cost of a query of a Python source without work."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_one_row"

    def schema(self) -> str:
        return "offset long"

    def reader(self, schema: Any) -> DataSourceReader:
        return OneRowReader()


def make_logs(root: Path, count: int, value_size: int) -> list[Path]:
    """Write the records into partitions, and each of them as Parquet too; return the latter."""
    written = []
    for partition in range(PARTITIONS):
        path = root / f"records-{partition}"
        write_log(path, count // PARTITIONS, value_size, seed=partition)
    table = kafkalog_table(root)
    for codec in ("none", "zstd"):
        path = root.parent / f"{root.name}-{codec}.parquet"
        pq.write_table(table, path, compression=codec)
        written.append(path)
    return written


def kafkalog_table(root: Path) -> Any:
    """Return all records as an Arrow table, of the columns that the source has."""
    tables = []
    for partition in range(PARTITIONS):
        with kafkalog.open_log(root / f"records-{partition}", read_only=True) as log:
            columns = ("key", "value", "topic", "partition", "offset", "timestamp_type")
            tables.append(pa.table(log.scan(columns=[*columns, "timestamp"])))
    return pa.concat_tables(tables)


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons, one for each size of values and kind of query."""
    with session() as spark:
        for source in (TupleSource, MemorySource, OneRowSource):
            spark.dataSource.register(source)
        for value_size in VALUE_SIZES:
            count = (RECORDS_QUICK if quick else RECORDS)[value_size]
            root = workspace.fresh()
            root.mkdir(parents=True)
            paths = make_logs(root, count, value_size)
            all_columns = whole(spark, root, paths, count, value_size)
            yield all_columns
            all_columns.notes += rates(all_columns, value_size)
            some = parts(spark, root, count, value_size)
            yield some
            some.notes += times(some)


def rates(comparison: Comparison, value_size: int) -> Iterator[str]:
    """Return the records per second of each case."""
    for case in comparison.cases:
        rate = comparison.items / comparison.median(case)
        goal = f", {RATES_WANTED[value_size] / 1e6:.2f} wanted" if case == "ours" else ""
        yield f"G1, {value_size} B, {case}: {rate / 1e6:.2f} Mrec/s{goal}"


def times(comparison: Comparison) -> Iterator[str]:
    """Return the duration of each case."""
    for case in comparison.cases:
        goal = SECONDS_WANTED.get(case)
        yield (
            f"{comparison.title}, {case}: {comparison.median(case):.3f} s"
            f" (best {min(comparison.seconds[case]):.3f})"
            + ("" if goal is None else f", {goal} wanted")
        )


def whole(
    spark: SparkSession, root: Path, paths: list[Path], count: int, value_size: int
) -> Comparison:
    """Return the comparison of all columns of all records."""
    plain, packed = (spark.read.parquet(str(path)) for path in paths)
    ours = spark.read.format("kafkalog").load(str(root))
    tuples = spark.read.format("kafkalog_tuples").load(str(root))
    memory = spark.read.format("kafkalog_memory").load(str(root))
    return compared(
        title=f"{value_size} B",
        items=count,
        cases={
            "ours": lambda: noop(ours),
            "no decode": lambda: noop(memory),
            "parquet": lambda: noop(plain),
            "parquet zstd": lambda: noop(packed),
            "tuples": lambda: noop(tuples),
        },
        goals=[
            at_most("G1 noop", "ours", count / RATES_WANTED[value_size]),
            Goal("G1 noop / parquet", "ours", "parquet", 0),
            Goal("G1 noop / parquet zstd", "ours", "parquet zstd", 0),
            Goal("G1 noop / no decode", "ours", "no decode", 0.8 if value_size == 100 else 0),
            Goal("G2 noop / tuples", "ours", "tuples", 7),
        ],
    )


def parts(spark: SparkSession, root: Path, count: int, value_size: int) -> Comparison:
    """Return the comparison of queries that need little with the same on everything."""
    each = count // PARTITIONS

    def filtered(condition: str) -> DataFrame:
        # Spark keeps one plan for each load, so every condition has a separate load.
        reader = spark.read.format("kafkalog").option("filterPushdown", "true")
        return reader.load(str(root)).where(condition)

    ours = spark.read.format("kafkalog").load(str(root))
    offsets = spark.read.format("kafkalog").schema("offset long").load(str(root))
    segments = kafkalog.spark.read(spark, root, view="segments")
    late = f"timestamp >= timestamp_millis({TIMESTAMP_MS + each - each // 100})"
    return compared(
        title=f"{value_size} B",
        items=count,
        cases={
            "count": ours.count,
            "count of offsets": offsets.count,
            "count of headers": segments.selectExpr("sum(recordCount)").collect,
            "ten offsets": filtered("partition = 1 and offset between 7 and 16").count,
            "1 % of offsets": filtered(f"offset >= {each - each // 100}").count,
            "1 % of times": filtered(late).count,
            "one row": spark.read.format("kafkalog_one_row").load().where("offset = 7").count,
            "range": spark.range(10).where("id = 7").count,
        },
        goals=[
            Goal("G3 offset alone / all columns", "count of offsets", "count", 2),
            Goal("G3 view=segments / all columns", "count of headers", "count", 0),
            at_most("G3 view=segments", "count of headers", SECONDS_WANTED["count of headers"]),
            *(
                at_most(f"G4 {name}", name, SECONDS_WANTED[name])
                for name in ("ten offsets", "1 % of offsets", "1 % of times")
            ),
            Goal("G4 ten offsets / all", "ten offsets", "count", 0),
            Goal("G4 1 % of offsets / all", "1 % of offsets", "count", 0),
            Goal("G4 1 % of times / all", "1 % of times", "count", 0),
            Goal("G4 ten offsets / one row", "ten offsets", "one row", 0),
        ],
    )


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
