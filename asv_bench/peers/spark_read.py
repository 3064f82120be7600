"""Reading with Spark, goals G1 to G5: a log against Parquet of the same rows, and against tuples.

    python -m asv_bench.peers.spark_read [--quick]

One session of two threads with unix sockets; the wall clock, since the work is done by a JVM and
its Python workers. The peers are `spark.read.parquet`, uncompressed and zstd, of the same columns,
and a source that yields the same records as Python tuples, as sources without Arrow do. The files
lie in the page cache. Filters and columns are compared with the same query without them.

G1 wants 333 ns a record or less of 100 bytes, 1,333 of 1 KiB; G2 seven times less than tuples; G3
half of the time with the offset alone; G4 a point query within 0.15 s, a hundredth of the offsets
within 0.25 s, and of the times within 0.3 s. Sizes of `--quick` show that it runs, and little else:
a query has some tenths of a second of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    make_records,
)
from asv_bench.peers.stores import Workspace, fill_log, run_in_workspace
from kafkalog.spark.source import KafkaLogDataSource

BATCH_BYTES = 16 * 1024
PARTITIONS = 2
RECORDS = {100: 2_000_000, 1024: 500_000}
RECORDS_QUICK = {100: 200_000, 1024: 50_000}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class TupleReader(DataSourceReader):
    """Reads what ours reads, and takes it apart into tuples."""

    def __init__(self, reader: DataSourceReader) -> None:
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
        source = KafkaLogDataSource({**self.options, "filterpushdown": "false"})
        return TupleReader(source.reader(schema))


def noop(frame: DataFrame) -> None:
    """Carry all rows to a sink that drops them."""
    frame.write.format("noop").mode("overwrite").save()


def make_logs(root: Path, count: int, value_size: int) -> list[Path]:
    """Write the records into partitions, and each of them as Parquet too; return the latter."""
    written = []
    for partition in range(PARTITIONS):
        records = make_records(count // PARTITIONS, value_size, seed=partition)
        with fill_log(root / f"records-{partition}", records, BATCH_BYTES) as log:
            log.flush()
    table = kafkalog_table(root)
    for codec in ("none", "zstd"):
        path = root.parent / f"{root.name}-{codec}.parquet"
        pq.write_table(table, path, compression=codec)
        written.append(path)
    return written


def kafkalog_table(root: Path) -> Any:
    """Return all records as an Arrow table, of the columns that the source has."""
    import pyarrow as pa

    tables = []
    for partition in range(PARTITIONS):
        with kafkalog.open_log(root / f"records-{partition}", read_only=True) as log:
            columns = ("key", "value", "topic", "partition", "offset", "timestamp_type")
            tables.append(pa.table(log.scan(columns=[*columns, "timestamp"])))
    return pa.concat_tables(tables)


def comparisons(workspace: Workspace, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons, one for each size of values and kind of query."""
    spark = kafkalog.spark.start_session(
        "local[2]", spark__ui__enabled="false", spark__driver__memory="2g"
    )
    spark.dataSource.register(TupleSource)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for value_size in VALUE_SIZES:
            count = (RECORDS_QUICK if quick else RECORDS)[value_size]
            root = workspace.fresh()
            root.mkdir(parents=True)
            paths = make_logs(root, count, value_size)
            yield whole(spark, root, paths, count, value_size)
            yield parts(spark, root, count, value_size)
    finally:
        spark.stop()


def whole(
    spark: SparkSession, root: Path, paths: list[Path], count: int, value_size: int
) -> Comparison:
    """Return the comparison of all columns of all records."""
    plain, packed = (spark.read.parquet(str(path)) for path in paths)
    ours = spark.read.format("kafkalog").load(str(root))
    tuples = spark.read.format("kafkalog_tuples").load(str(root))
    return Comparison(
        title=f"{value_size} B",
        items=count,
        cases={
            "ours": lambda: noop(ours),
            "parquet": lambda: noop(plain),
            "parquet zstd": lambda: noop(packed),
            "tuples": lambda: noop(tuples),
        },
        goals=[
            Goal("G1 noop / parquet", "ours", "parquet", 0),
            Goal("G1 noop / parquet zstd", "ours", "parquet zstd", 0),
            Goal("G2 noop / tuples", "ours", "tuples", 7),
        ],
        clock=time.perf_counter,
    )


def parts(spark: SparkSession, root: Path, count: int, value_size: int) -> Comparison:
    """Return the comparison of queries that need little with the same on everything."""
    each = count // PARTITIONS
    ours = spark.read.format("kafkalog").load(str(root))
    offsets = spark.read.format("kafkalog").schema("offset long").load(str(root))
    segments = kafkalog.spark.read(spark, root, view="segments")
    late = f"timestamp >= timestamp_millis({TIMESTAMP_MS + each - each // 100})"
    return Comparison(
        title=f"{value_size} B",
        items=count,
        cases={
            "count": ours.count,
            "count of offsets": offsets.count,
            "count of headers": segments.selectExpr("sum(recordCount)").collect,
            "ten offsets": ours.where(f"partition = 1 and offset between 7 and {16}").count,
            "1 % of offsets": ours.where(f"offset >= {each - each // 100}").count,
            "1 % of times": ours.where(late).count,
        },
        goals=[
            Goal("G3 offset alone / all columns", "count of offsets", "count", 2),
            Goal("G3 view=segments / all columns", "count of headers", "count", 0),
            Goal("G4 ten offsets / all", "ten offsets", "count", 0),
            Goal("G4 1 % of offsets / all", "1 % of offsets", "count", 0),
            Goal("G4 1 % of times / all", "1 % of times", "count", 0),
        ],
        clock=time.perf_counter,
    )


if __name__ == "__main__":
    sys.exit(run_in_workspace(sys.argv[1:], comparisons))
