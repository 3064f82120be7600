"""The data pipeline on Spark: logs as a data source, a stream, a sink, and jobs over them.

Importing this package imports neither pyspark nor pyarrow; both are loaded on first use.

>>> import kafkalog.spark
>>> kafkalog.spark.register(spark)
>>> spark.read.format("kafkalog").load("/data/kafka").groupBy("topic").count().show()
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.prerequisites import require_java, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ErrorCode", "KafkaLogSparkError", "read", "register", "start_session"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SOCKETS = "spark.python.unix.domain.socket.enabled"
_WORKER_LOGS = "spark.sql.pyspark.worker.logging.enabled"


def register(spark: SparkSession, *, tune: bool = True, worker_logs: bool = False) -> None:
    """
    Register the format `kafkalog` in a session.

    Args:
        spark: the session, classic or Connect.
        tune: push filters down to the sources that support it (`filterPushdown`), and warn if the
            session was started without unix sockets, which makes reading about a third slower.
        worker_logs: keep warnings of workers, as `select * from python_worker_logs()`.

    Raises:
        KafkaLogSparkError: SPARK_MISSING.
    """
    require_pyspark()
    from kafkalog.spark.source import KafkaLogDataSource

    spark.dataSource.register(KafkaLogDataSource)
    if worker_logs:
        spark.conf.set(_WORKER_LOGS, "true")
    if not tune:
        return
    spark.conf.set(_PUSHDOWN, "true")
    if str(spark.conf.get(_SOCKETS, "false")).lower() != "true":
        warnings.warn(
            f"{_SOCKETS} is off, and can be set only when a session starts (start_session does):"
            " reading would be faster with it",
            stacklevel=2,
        )


def read(
    spark: SparkSession,
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """
    Return the records below a path, or several, as a DataFrame.

    Args:
        spark: a session in which the format is registered.
        path: data directories, or directories of single partitions.
        columns: the columns to read; Spark does not report which ones a query uses.
        options: of reading, by their names.
    """
    reader = spark.read.format("kafkalog").options(**options)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if isinstance(path, (str, PathLike)):
        return reader.load(str(path))
    return reader.load([str(each) for each in path])


def start_session(master: str = "local[*]", **settings: str) -> SparkSession:
    """
    Start a session with the settings that the source needs, or return the running one; register the
    format.

    The workers of a local session run the Python of this process, unless `PYSPARK_PYTHON` is set.

    Args:
        master: as of `SparkSession.builder`.
        settings: more of Spark's, with double underscores for the dots.

    Raises:
        KafkaLogSparkError: SPARK_MISSING, JAVA_MISSING.
    """
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession

    if master.startswith("local"):
        # Else Spark runs the first python3 of the path, which may not have the packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).config(_SOCKETS, "true")
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
