"""Goal G14: Spark on a log, against Spark's own Kafka connector, the same records.

    python -m asv_bench.peers.spark_kafka [--quick] [--kafka JARS] [--connector DIRECTORY]

Ours runs on this Python's Spark, the peer on the newest Spark that has a connector on Maven Central
(see `connector`), each with two threads; both come from a registry where the arguments do not name
them. The broker is a real one, on this machine. Both sides read the same Parquet rows, write them
to two partitions by their keys, uncompressed, and read back what they wrote; counts and sums of
both have to be equal. By the wall clock; both JVMs are warmed up (see `spark_bench`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from asv_bench.peers import connector
from asv_bench.peers.common import (
    KEY_SIZE,
    Comparison,
    Goal,
    Options,
    add_options,
    options_of,
    run_all,
)
from asv_bench.peers.line_process import LineProcess
from asv_bench.peers.long_running import LongRunning
from asv_bench.peers.spark_bench import compared, noop, session, write_rows
from tests.interop.broker import Broker, format_directory
from tests.interop.clients import TopicPlan, create_topics
from tests.interop.kafka_maven import KAFKA_VERSION, fetch_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_SIZE = 100
PARTITIONS = 2
RECORDS = 4_000_000
RECORDS_QUICK = 400_000
READ, WRITTEN = "read", "written"
PROGRAM = Path(__file__).with_name("connector_program.py")


@contextmanager
def broker(jars: Path, directory: Path) -> Iterator[str]:
    """Start a broker with two topics; yield its address, and stop it at the end."""
    install = LongRunning(jars, KAFKA_VERSION)
    format_directory(install, directory)
    # The cleaner's index files would be too small for segments of this size.
    with Broker(install, directory, settings={"log.index.size.max.bytes": "10485760"}) as started:
        plans = [TopicPlan(name, PARTITIONS) for name in (READ, WRITTEN)]
        create_topics(started.address, plans)
        yield started.address


def program(environment: Path, address: str, rows: Path, directory: Path) -> LineProcess:
    """Start the peer."""
    python = str(connector.python_of(environment))
    jars = ",".join(map(str, connector.jars_of(environment)))
    # Nothing of this Python's Spark may reach the other one.
    unwanted = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR")
    variables = {name: value for name, value in os.environ.items() if name not in unwanted}
    variables |= {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [python, str(PROGRAM), address, READ, str(rows), str(directory), jars]
    return LineProcess(command, environment=variables)


def write(rows: DataFrame, root: Path) -> None:
    """Write all rows to a log of two partitions."""
    writer = rows.write.format("kafkalog").option("path", str(root)).option("topic", READ)
    writer.option("partitions", PARTITIONS).option("compression", "none").mode("append").save()


def reading(spark: SparkSession, theirs: LineProcess, root: Path, count: int) -> Comparison:
    """Return the comparison of queries over everything."""
    # As many tasks as the connector has; what is so small would be one.
    reader = spark.read.format("kafkalog").option("minPartitions", PARTITIONS)
    frame = reader.load(str(root))

    def value_bytes() -> int:
        return int(frame.selectExpr("sum(length(value))").first()[0])

    assert [count] == [frame.count()] == theirs.ask("count")
    assert [count * VALUE_SIZE] == [value_bytes()] == theirs.ask("sum")
    return compared(
        f"{VALUE_SIZE} B, {PARTITIONS} partitions",
        count,
        {
            "count": frame.count,
            "their count": lambda: theirs.ask("count"),
            "sum": value_bytes,
            "their sum": lambda: theirs.ask("sum"),
            "noop": lambda: noop(frame),
            "their noop": lambda: theirs.ask("noop"),
        },
        [
            Goal("G14 count / Spark's Kafka connector", "count", "their count", 2.5),
            Goal("G14 sum of sizes / Spark's Kafka connector", "sum", "their sum", 2.5),
            Goal("G14 noop, all columns / Spark's Kafka connector", "noop", "their noop", 2.5),
        ],
    )


def writing(rows: DataFrame, theirs: LineProcess, root: Path, count: int) -> Comparison:
    """Return the comparison of writes; ours goes to an empty directory each time."""

    def prepare(_case: str) -> None:
        shutil.rmtree(root, ignore_errors=True)

    return compared(
        f"{KEY_SIZE} + {VALUE_SIZE} B, {PARTITIONS} partitions",
        count,
        {
            "write": lambda: write(rows, root),
            "their write": lambda: theirs.ask(f"write {WRITTEN}"),
        },
        [Goal("G14 write / Spark's Kafka connector", "write", "their write", 6.0)],
        prepare=prepare,
    )


def comparisons(jars: Path, environment: Path, *, quick: bool) -> Iterator[Comparison]:
    """Yield the comparisons, all of them with one broker and two sessions."""
    count = RECORDS_QUICK if quick else RECORDS
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkalog-peers-")))
        write_rows(root / "rows", count, VALUE_SIZE, files=PARTITIONS)
        address = stack.enter_context(broker(jars, root / "broker"))
        theirs = stack.enter_context(program(environment, address, root / "rows", root / "spark"))
        spark = stack.enter_context(session())
        rows = spark.read.parquet(str(root / "rows"))
        assert [0] == theirs.ask(f"write {READ}")
        write(rows, root / "log")
        yield reading(spark, theirs, root / "log", count)
        yield writing(rows, theirs, root / "again", count)


def main() -> int:
    """Print the table; exit code 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description="Spark on a log, and Spark on a broker.")
    add_options(parser)
    parser.add_argument("--kafka", type=Path, help="directory of Kafka's jars")
    parser.add_argument("--connector", type=Path, help="environment of the older Spark")
    arguments = parser.parse_args()
    options: Options = options_of(arguments)
    jars = arguments.kafka or fetch_kafka().libraries
    environment = arguments.connector or connector.fetch()
    made = comparisons(jars, environment, quick=options.quick)
    return run_all(made, peer="Kafka connector", options=options)


if __name__ == "__main__":
    sys.exit(main())
