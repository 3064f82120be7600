"""A streaming query into a log, as a separate program: for tests that kill it.

    python -m tests.support.sink_query DIRECTORY

It streams files of numbers from DIRECTORY/in, one a batch, into the topic `numbers` of
DIRECTORY/data, until all are there. What it does is the same whenever it is started. The first
attempt of every task whose number is odd fails when it has read everything, and is repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["TOPIC", "run"]

TOPIC = "numbers"


def failing_first(batches: Iterator[Any]) -> Iterator[Any]:
    """Pass rows through; fail after them in the first attempt of an odd task."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is not None and context.partitionId() % 2 and not context.attemptNumber():
        raise RuntimeError("the first attempt fails at its end")


def failing_source() -> type[DataSource]:
    """Return the data source with a writer whose first attempts of odd tasks fail at their end."""
    from kafkalog.spark.options.write import WriteOptions
    from kafkalog.spark.sink import KafkaLogStreamWriter, StagedMessage
    from kafkalog.spark.source import KafkaLogDataSource

    class FailingWriter(KafkaLogStreamWriter):
        def write(self, iterator: Iterator[Any]) -> StagedMessage:
            return super().write(failing_first(iterator))

    class Failing(KafkaLogDataSource):
        @classmethod
        def name(cls) -> str:
            return "kafkalog_failing"

        def streamWriter(self, schema: Any, overwrite: bool) -> FailingWriter:
            return FailingWriter(WriteOptions.parse(self.options), schema, overwrite)

    return Failing


def run(directory: Path) -> None:
    """Stream what is there, and end."""
    from tests.support.spark_session import start_session

    spark = start_session(directory / "spark", spark_master="local[2,3]")
    spark.dataSource.register(failing_source())
    query = (
        spark.readStream.schema("value long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / "in"))
        .selectExpr("cast(value as string) as key", "cast(value as string) as value")
        .repartition(2)
        .writeStream.format("kafkalog_failing")
        .option("path", str(directory / "data"))
        .option("topic", TOPIC)
        .option("partitions", "2")
        .option("segmentBytes", "64k")
        .option("compression", "none")
        .option("batchBytes", "8k")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
