"""Spark Connect: the same source through a server, where its packages are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.logs import manual_log, numbered
from tests.support.spark_session import ROOT, environment, settings, why_not

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# A session of Connect replaces every other in a process, so it gets a separate process.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import kafkalog.spark

path, settings = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.remote("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
kafkalog.spark.register(spark)
frame = spark.read.format("kafkalog").load(path)
print(frame.count(), frame.where("offset between 10 and 12").count(), end=" ")
print(kafkalog.spark.read(spark, path, view="segments").selectExpr("sum(recordCount)").first()[0])
try:
    spark.read.format("kafkalog").load(path + "/none").count()
except Exception as error:
    print("PATH_NOT_FOUND" in str(error))
spark.stop()
"""


def test_source_through_connect_reads_and_writes(tmp_path: Path) -> None:
    """Registered, read, filtered, viewed; an error comes with its code."""
    reason = why_not()
    if reason is None and importlib.util.find_spec("grpc_status") is None:
        reason = "grpcio and grpcio-status are not installed"
    if reason is not None:
        pytest.skip(f"NOT TESTED with Spark Connect: {reason}")
    with manual_log(tmp_path / "logs" / "orders-0") as log:
        log.append(numbered(0, 100))
    result = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "logs")),
            json.dumps(settings(tmp_path / "spark")),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment()},
        timeout=240,
    )
    assert ["100 3 100", "True"] == result.stdout.splitlines()[-2:], result.stderr[-2000:]
