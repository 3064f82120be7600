"""Program of `spark_kafka` in the environment of the older Spark: its connector, line by line.

    python connector_program.py ADDRESS TOPIC ROWS DIRECTORY JARS

Needs only that Spark. ADDRESS is the broker's, TOPIC the topic to read, ROWS are Parquet files with
keys and values, and JARS are separated by commas. Lines are `count`, `sum`, `noop` and
`write TOPIC`; the answer is a number: of records, or of bytes for `sum`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession


def session(directory: Path, jars: str) -> SparkSession:
    """Start a session of two threads."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": jars,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("connector")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def answer(frame: DataFrame, rows: DataFrame, address: str, line: str) -> int:
    """Do what a line asks for."""
    word, _, topic = line.partition(" ")
    if word == "count":
        return frame.count()
    if word == "sum":
        return int(frame.selectExpr("sum(length(value))").first()[0])
    if word == "noop":
        frame.write.format("noop").mode("overwrite").save()
        return 0
    if word == "write":
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", address)
        writer.option("topic", topic).save()
        return 0
    raise ValueError(f"line must be count, sum, noop or write TOPIC, got {line!r}")


def serve(answers: TextIO, address: str, topic: str, rows: str, directory: str, jars: str) -> None:
    """Answer lines until there are no more."""
    spark = session(Path(directory), jars)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    written = spark.read.parquet(rows)
    for line in sys.stdin:
        frame = reader.option("subscribe", topic).load()
        print(answer(frame, written, address, line.strip()), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    # Spark's own lines on the standard output are not answers.
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        serve(output, *sys.argv[1:])
