"""Write with Spark: `format("kafkalog")` beside Parquet and beside a sink that keeps nothing.

Records of 16 byte keys and 100 or 1,024 byte values, read from a Parquet file that is in the page
cache, by `local[2]`: what is timed is the whole write, planning and commit included, by the wall
clock. `noop` is what reading the records and handing them to a sink costs by itself.

    python -m asv_bench.peers.spark_write [--quick] [--rounds N] [--results FILE]

G7 asks for 2.4 million records of 100 bytes a second, and 0.5 million of 1 KiB.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from asv_bench.peers.common import Comparison, Goal, make_records, run_table
from kafkalog.spark import register
from tests.support.spark_session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Value size, records, records a second that are wanted, rows of an Arrow batch.
WORK = ((100, 2_000_000, 2.4e6, 10_000), (1024, 400_000, 0.5e6, 10_000))
PARTITIONS = 2


def make_rows(directory: Path, value_size: int, count: int) -> Path:
    """Write the records as Parquet, in as many row groups as there may be tasks."""
    records = make_records(min(count, 200_000), value_size)
    table = pa.table({"key": records.keys, "value": records.values})
    path = directory / f"rows-{value_size}"
    path.mkdir()
    for part in range(PARTITIONS):
        with pq.ParquetWriter(path / f"{part}.parquet", table.schema, compression="none") as file:
            for _ in range(count // PARTITIONS // len(table)):
                file.write_table(table)
    return path


def writers(
    spark: SparkSession, rows: DataFrame, directory: Path
) -> dict[str, Callable[[], object]]:
    """Return the cases; each writes all rows to a place of its own, which the next round clears."""

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
        "parquet": parquet,
        "noop": lambda: rows.write.format("noop").mode("append").save(),
    }


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield a comparison for each size of a value, in one session."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as name:
        directory = Path(name)
        spark = start_session(directory / "spark", spark_driver_memory="2g")
        register(spark, tune=False)
        try:
            for value_size, count, wanted, batch_rows in WORK:
                if quick:
                    count //= 2
                spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
                rows = spark.read.parquet(str(make_rows(directory, value_size, count)))
                out = directory / f"out-{value_size}"

                def prepare(_case: str, out: Path = out) -> None:
                    shutil.rmtree(out, ignore_errors=True)
                    out.mkdir()

                comparison = Comparison(
                    f"{value_size} B, {PARTITIONS} partitions",
                    count,
                    writers(spark, rows, out),
                    [
                        Goal("G7 write / parquet", "none", "parquet", 0),
                        Goal("G7 write / noop", "none", "noop", 0),
                        Goal("G7 write, zstd / parquet", "zstd", "parquet", 0),
                    ],
                    clock=time.perf_counter,
                    prepare=prepare,
                )
                yield comparison
                for case in comparison.cases:
                    rate = count / comparison.median(case)
                    comparison.notes.append(
                        f"G7, {value_size} B, {case}: {rate / 1e6:.2f} Mrec/s"
                        + (f", {wanted / 1e6:.1f} wanted" if case == "none" else "")
                    )
        finally:
            stop_session(spark)


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="peer"))
