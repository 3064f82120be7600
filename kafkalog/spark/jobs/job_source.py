"""The stages of a job as a data source of Spark: tasks that read, report, or write rows.

Spark can run a Python function over a list only by carrying its results through the JVM row by row,
or with pandas; a data source avoids both. Its partitions are the tasks of a stage in the job's
ledger that are not done; a table here gives the function and the columns of each stage by its name.
So a stage runs on any master, and resumes after it was killed.

Thread-safety: none; Spark calls one method after the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from kafkalog.records.codecs import Codec
from kafkalog.spark.arrow_cells import array_of, texts_of
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors
from kafkalog.spark.jobs.latest_offsets import LatestOffsets
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.jobs.offset_keeping_writer import OffsetKeepingWriter
from kafkalog.spark.schema import VERIFY_COLUMNS, ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "IMPORT_STAGE",
    "KEY_HASHES_STAGE",
    "JobProgress",
    "KafkaLogJobSource",
    "latest_slices",
    "register_stages",
    "report_batch",
    "run_stage",
    "stage_frame",
    "watched",
]

KEY_HASHES_STAGE: Final = "marks"
IMPORT_STAGE: Final = "import"
_NAME: Final = "kafkalog-job"
_PACKED: Final = "number int, slice int, base bigint, entries binary"
_REPORT: Final = "task int, report string"
_RECORDS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
_VERIFIED: Final = f"{ddl_of(VERIFY_COLUMNS.values())}, error string"
# Function of a stage's tasks, as module and name, and the columns of their results.
_STAGES: Final = {
    "keys": ("kafkalog.spark.jobs.job_tasks:read_keys", _PACKED),
    "copy": ("kafkalog.spark.jobs.copying:copy_task", _REPORT),
    "clean": ("kafkalog.spark.jobs.job_tasks:stage_runs", _REPORT),
    "latest": ("kafkalog.spark.jobs.job_tasks:read_latest", _RECORDS),
    "export": ("kafkalog.spark.jobs.exporting:export_task", _REPORT),
    "verify": ("kafkalog.spark.jobs.maintenance:verify_task", _VERIFIED),
    "reindex": ("kafkalog.spark.jobs.maintenance:reindex_task", _REPORT),
}
# The results of these stages are rows, so all of their tasks run each time.
_GIVING: Final = ("keys", "latest", "verify")
_POLL_SECONDS: Final = 0.5

_Item = TypeVar("_Item")

Work = Callable[[JobLedger, int, dict[str, Any]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """
    Progress of a job.

    Attributes:
        job_id: the job.
        stage: its present stage.
        done, total: tasks.
    """

    job_id: str
    stage: str
    done: int
    total: int


class KafkaLogJobSource(DataSource):
    """The tasks of one stage of one job; for `run_stage` and `stage_frame`, not for users."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `register`."""
        return _NAME

    def schema(self) -> str:
        """Return the columns of the stage's results."""
        return _STAGES[self.options["stage"]][1]

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return a reader that runs the tasks."""
        return _StageReader(self.options["ledger"], self.options["stage"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        """Return a writer that makes files of batches of rows."""
        return _ImportWriter(self.options["ledger"])


class _StageReader(DataSourceReader):
    def __init__(self, directory: str, stage: str) -> None:
        self._directory = directory
        self._stage = stage

    def partitions(self) -> list[InputPartition]:
        """Return the tasks that are not done; an empty task if all are done."""
        ledger = JobLedger(Path(self._directory))
        done = set() if self._stage in _GIVING else set(ledger.numbers_done(self._stage))
        tasks = enumerate(ledger.tasks(self._stage))
        waiting = [InputPartition((number, task)) for number, task in tasks if number not in done]
        return waiting or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        if partition.value is None:
            return iter(())
        number, task = partition.value
        module, _, function = _STAGES[self._stage][0].partition(":")
        work: Work = getattr(import_module(module), function)
        return _coded(work(JobLedger(Path(self._directory)), number, task))


def _coded(batches: Iterator[_Item]) -> Iterator[_Item]:
    with coded_errors():
        yield from batches


@dataclass
class _Written(WriterCommitMessage):
    """Files of batches that one task has written."""

    files: list[Any]


class _ImportWriter(DataSourceArrowWriter):
    """Writer of files of batches, from rows sorted by partition and offset."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @coded_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the files of one task."""
        ledger = JobLedger(Path(self._directory))
        codec = Codec[ledger.arguments["codec"].upper()]
        writer = OffsetKeepingWriter(ledger.folder("imported"), codec)
        try:
            for batch in iterator:
                if batch.num_rows:
                    writer.add(batch)
            return _Written(writer.finish())
        except BaseException:
            writer.abandon()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the files of the successful attempts."""
        files = [file for each in messages if isinstance(each, _Written) for file in each.files]
        JobLedger(Path(self._directory)).finish(IMPORT_STAGE, {"files": files})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: they are not in use, and are removed with the job."""


def register_stages(spark: SparkSession) -> None:
    """Register the source of jobs in a session."""
    spark.dataSource.register(KafkaLogJobSource)


def stage_frame(spark: SparkSession, ledger: JobLedger, stage: str) -> DataFrame:
    """Return the results of a stage's tasks; the tasks run when the frame is read."""
    register_stages(spark)
    reader = spark.read.format(_NAME).option("ledger", str(ledger.directory))
    return reader.option("stage", stage).load()


class _LatestOfTask:
    """
    Writer of the latest rows of packed entries, which returns in its last row where they are.

    Spark gets it as a function of columns and not as a writer, because a writer's result is
    returned by a call that loads pandas if that is installed.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Yield a cell for each row of a task: null, except for the report in the last one."""
        return _coded(self._cells(rows))

    def _cells(self, rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        latest = LatestOffsets(JobLedger(Path(self._directory)).folder("latest"))
        waiting = 0
        try:
            for columns in rows:
                latest.add(*columns)
                if waiting:
                    yield pa.nulls(waiting, pa.string())
                waiting = len(columns[0])
            written = latest.finish()
        except BaseException:
            latest.abandon()
            raise
        if waiting:
            parts = [pa.nulls(waiting - 1, pa.string()), texts_of([json.dumps(written)])]
            yield pa.concat_arrays(parts)


def latest_slices(spark: SparkSession, ledger: JobLedger) -> list[list[Any]]:
    """
    Bring together the results of the stage "keys", and return the slices of the latest offsets.
    """
    from pyspark.sql.pandas import functions

    writer = _LatestOfTask(str(ledger.directory))

    def write(rows: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return writer.write(rows)

    # Its types do not cover a function described by hints alone.
    arrow_udf: Any = functions.arrow_udf
    # Evaluated once, instead of once for the null cells and once for the others.
    report = arrow_udf(write, "string").asNondeterministic()
    slices = stage_frame(spark, ledger, "keys").repartition("number", "slice")
    rows = slices.sortWithinPartitions("number", "slice")
    reported = rows.select(report("number", "slice", "base", "entries").alias("report"))
    found = reported.where("report is not null").collect()
    return [each for row in found for each in json.loads(row["report"])]


def run_stage(
    spark: SparkSession,
    ledger: JobLedger,
    stage: str,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> dict[int, dict[str, Any]]:
    """
    Run the tasks of a stage that are not done, and return the reports of all.

    Args:
        spark: the session.
        ledger: of the job; the stage is planned.
        stage: a stage whose tasks report.
        on_progress: called now and then, from a separate thread.

    Raises:
        KafkaLogSparkError: JOB_FAILED if a task has left no report.
    """
    if ledger.facts(stage) is None:
        with watched(ledger, stage, on_progress):
            for row in stage_frame(spark, ledger, stage).collect():
                json.loads(row["report"])
        missing = set(range(len(ledger.tasks(stage)))) - set(ledger.numbers_done(stage))
        if missing:
            raise KafkaLogSparkError(
                ErrorCode.JOB_FAILED,
                f"{len(missing)} tasks of the stage {stage!r} left no report",
                job_id=ledger.job_id,
                tasks=sorted(missing)[:100],
            )
        ledger.finish(stage, {})
    return ledger.done(stage)


def report_batch(number: int, report: dict[str, Any]) -> pa.RecordBatch:
    """Return the report of a task as a row for Spark."""
    return pa.RecordBatch.from_arrays(
        [array_of(pa.int32(), np.array([number], np.int32)), texts_of([json.dumps(report)])],
        names=["task", "report"],
    )


@contextmanager
def watched(
    ledger: JobLedger, stage: str, on_progress: Callable[[JobProgress], object] | None
) -> Iterator[None]:
    """Report the number of finished tasks of a stage, during its run and at its end."""
    if on_progress is None:
        yield
        return
    total = len(ledger.tasks(stage))
    ended = threading.Event()

    def report_progress() -> None:
        on_progress(JobProgress(ledger.job_id, stage, len(ledger.numbers_done(stage)), total))

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            report_progress()

    watcher = threading.Thread(target=watch, name="kafkalog-job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        report_progress()
