"""Writes with Spark: `format("kafkalog")` against Parquet and against sinks that keep nothing.

Records of 16 byte keys and 100 or 1,024 byte values, cut out of random bytes by Spark itself, with
`local[2]`: what is timed is the whole write, planning and commit included, by the wall clock, in a
JVM that is warm (see `spark_bench`).
`noop` is what making the records and handing them to a sink of Java costs by itself; `dropped` what
it costs Spark to hand them to a Python writer of Arrow batches that looks at none, which is the
ceiling for any.

    python -m asv_bench.peers.spark_write [--quick] [--rounds N] [--results FILE]

G7 asks for 2.4 million records of 100 bytes a second, and 0.5 million of 1 KiB.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from asv_bench.peers.common import Comparison, Goal, at_most, run_table
from asv_bench.peers.spark_bench import compared, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Value size, records, records a second that are wanted, rows of an Arrow batch.
WORK = ((100, 4_000_000, 2.4e6, 10_000), (1024, 600_000, 0.5e6, 10_000))
PARTITIONS = 2
POOL_BYTES = 64 * 1024


class DroppingWriter(DataSourceArrowWriter):
    """Takes batches, and looks at none of them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _batch in iterator:
            pass
        return WriterCommitMessage()


class DroppingSink(DataSource):
    """A sink that drops what it gets."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_dropped"

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


def make_rows(spark: SparkSession, value_size: int, count: int) -> DataFrame:
    """Return rows of as many partitions as there are tasks, which are made as they are read."""
    pool = random.Random(value_size).randbytes(POOL_BYTES)
    rows = spark.range(0, count, 1, PARTITIONS)
    return rows.select(
        functions.expr("cast(concat('key-', lpad(id, 12, '0')) as binary) as key"),
        functions.substring(
            functions.lit(pool),
            functions.expr(f"cast(id * 7919 % {POOL_BYTES - value_size} as int) + 1"),
            functions.lit(value_size),
        ).alias("value"),
    )


def writers(rows: DataFrame, directory: Path) -> dict[str, Callable[[], object]]:
    """Return the cases; each writes all rows to a separate directory, cleared by the next round."""

    def log(compression: str) -> None:
        rows.write.format("kafkalog").options(
            path=str(directory / f"log-{compression}"),
            topic="t",
            partitions=str(PARTITIONS),
            compression=compression,
        ).mode("append").save()

    def parquet() -> None:
        rows.write.option("compression", "none").parquet(str(directory / "parquet"))

    return {
        "none": lambda: log("none"),
        "zstd": lambda: log("zstd"),
        "dropped": lambda: rows.write.format("kafkalog_dropped").mode("append").save(),
        "parquet": parquet,
        "noop": lambda: rows.write.format("noop").mode("append").save(),
    }


def writing(
    rows: DataFrame, directory: Path, value_size: int, count: int, goal_rate: float
) -> Comparison:
    """Return the comparison of writes of the rows, each time into an empty directory."""

    def prepare(_case: str) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()

    return compared(
        f"{value_size} B, {PARTITIONS} partitions",
        count,
        writers(rows, directory),
        [
            at_most("G7 write", "none", count / goal_rate),
            Goal("G7 write / dropped", "none", "dropped", 0),
            Goal("G7 write / parquet", "none", "parquet", 0),
            Goal("G7 write / noop", "none", "noop", 0),
            Goal("G7 write, zstd / parquet", "zstd", "parquet", 0),
        ],
        prepare=prepare,
    )


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield a comparison for each size of a value, in one session."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as name:
        directory = Path(name)
        places = {
            "spark__local__dir": str(directory / "spark"),
            "spark__sql__warehouse__dir": str(directory / "warehouse"),
        }
        with session(**places) as spark:
            spark.dataSource.register(DroppingSink)
            for value_size, count, goal_rate, batch_rows in WORK:
                if quick:
                    count //= 10
                spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
                rows = make_rows(spark, value_size, count)
                out = directory / f"out-{value_size}"
                comparison = writing(rows, out, value_size, count, goal_rate)
                yield comparison
                shutil.rmtree(out, ignore_errors=True)
                for case in comparison.cases:
                    rate = count / comparison.median(case)
                    comparison.notes.append(
                        f"G7, {value_size} B, {case}: {rate / 1e6:.2f} Mrec/s"
                        + (f", {goal_rate / 1e6:.1f} wanted" if case == "none" else "")
                    )


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="peer"))
