"""`verify`, `stats`, `reindex`: verification of directories, and rebuilding of their indexes.

Thread-safety: none.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError
from kafkalog.files.atomic_files import replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.log.log import partition_of
from kafkalog.log.opening import open_log
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.spark.arrow_cells import cell_of
from kafkalog.spark.errors import coded_errors
from kafkalog.spark.jobs.job_arguments import (
    JobReport,
    Paths,
    configs_of,
    new_job_id,
    ranges_as_json,
    read_options,
    shared_out,
    with_internal_topics,
    work_directory,
)
from kafkalog.spark.jobs.job_tasks import outcome_of, partition_error, ranges_of, records_of
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.options.option import invalid
from kafkalog.spark.plan import LogSplit, QuerySnapshot, SplitRange, resolve_bounds
from kafkalog.spark.schema import RECORD_COLUMNS, VERIFY_COLUMNS, arrow_type
from kafkalog.spark.segment_verification import verify_segment
from kafkalog.spark.views import plan_view

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.spark.jobs.job_source import JobProgress

__all__ = ["reindex", "reindex_task", "stats", "verify", "verify_task"]

_VERIFY_TASK_BYTES: Final = 1 << 30


@coded_errors()
def verify(
    spark: SparkSession,
    path: Paths,
    *,
    deep: bool = False,
    sample: float | None = None,
    options: Mapping[str, str] | None = None,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> DataFrame:
    """
    Verify every byte of logs.

    The work is done when the frame is first read, in tasks of about a gibibyte; damage is a row
    like any other, and fails nothing. The results of a task are kept in the job's files, and
    returned again whenever the frame, or that of another run with the same `job_id`, is read.

    Args:
        spark: the session.
        path: a data directory, or several.
        deep: True to decode batches as well, and check every record in them.
        sample: the share of the segments to verify, above 0 and up to 1, the same ones in every
            run; all if None.
        options: of the data source: selection of topics.
        work_dir: for the job's files; next to the first path if None.
        job_id: of an earlier run that is to be finished; a new one, which verifies again, if None.
        on_progress: called now and then, from a separate thread; all work is then done at once, and
            the frame has the results.

    Returns:
        The columns of `view=verify`, a row for each segment: its content, how much of it is bad and
        where that begins, the kind of its tail, the state of its indexes. And `error`: the error of
        the records that `deep` has found.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND and others of the options; OPTION_INVALID for a share
            outside its range.
    """
    from kafkalog.spark.jobs.job_source import stage_frame, watched

    if sample is not None and not 0 < sample <= 1:
        raise invalid("sample", sample, "above 0, and at most 1")
    arguments = {
        "job": "verify",
        "read": read_options(path, options, view="verify"),
        "deep": deep,
        "sample": sample,
    }
    job_id = new_job_id("verify") if job_id is None else job_id
    ledger = JobLedger.begin(work_directory(path, work_dir), job_id, arguments)
    if not ledger.is_planned("verify"):
        _plan_verify(spark, ledger, sample)
    frame = stage_frame(spark, ledger, "verify")
    if on_progress is not None:
        with watched(ledger, "verify", on_progress):
            frame.count()
    return frame


def _plan_verify(spark: SparkSession, ledger: JobLedger, sample: float | None) -> None:
    read = with_internal_topics(ReadOptions.parse(ledger.arguments["read"]))
    found = QuerySnapshot.take(read)
    task_bytes = shared_out(spark, _VERIFY_TASK_BYTES, int(found.sizes.sum()))
    read = replace(read, split_bytes=task_bytes)
    numbers = {name: number for number, name in enumerate(found.names())}
    splits = plan_view(found, resolve_bounds(found, read), read)
    tasks = [ranges_as_json(each, numbers) for each in splits if isinstance(each, LogSplit)]
    chosen = [[each for each in ranges if _is_sampled(each, sample)] for ranges in tasks]
    ledger.plan("verify", [{"ranges": ranges} for ranges in chosen if ranges])


def _is_sampled(
    split_range: tuple[int, str, str, int, int, int, bool], sample: float | None
) -> bool:
    """Choose segments by a hash of their names, so that a larger share includes a smaller one."""
    if sample is None:
        return True
    _number, _directory, topic, partition, start, *_end = split_range
    name = f"{topic}-{partition}/{start}".encode()
    return zlib.crc32(name) < sample * 2**32


def verify_task(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each segment of a task; known results are not computed again."""
    import pyarrow as pa

    fields = [(column.name, arrow_type(column.kind)) for column in VERIFY_COLUMNS.values()]
    schema = pa.schema([*fields, ("error", pa.string())])
    report = ledger.report_of("verify", number)
    found: list[dict[str, Any]] = []
    for row in _verified_rows(ledger, task) if report is None else report["rows"]:
        found.append(row)
        arrays = [cell_of(field.type, row[field.name]) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, names=schema.names)
    if report is None:
        ledger.record_done("verify", number, {"rows": found})


def _verified_rows(ledger: JobLedger, task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    arguments = ledger.arguments
    options = ReadOptions.parse(arguments["read"])
    for _partition, split_range in ranges_of(task):
        row = verify_segment(PosixFileSystem(), split_range, options)
        message = _find_record_error(split_range, arguments["read"]) if arguments["deep"] else None
        yield {**row, "error": message}


def _find_record_error(split_range: SplitRange, read: Mapping[str, str]) -> str | None:
    options = ReadOptions.parse({**read, "view": "records", "includeHeaders": "true"})
    names = (*RECORD_COLUMNS, "headers")
    try:
        for _batch in records_of(split_range, names, options):
            pass
    except KafkaLogError as error:
        message = partition_error(error)
        if message is None:
            raise
        return message
    return None


@coded_errors()
def stats(
    spark: SparkSession, path: Paths, *, options: Mapping[str, str] | None = None
) -> DataFrame:
    """
    Return the content of each partition: segments, bytes, batches, records, times.

    No record is decoded: headers of batches suffice.

    Args:
        spark: the session.
        path: a data directory, or several.
        options: of the data source: selection of topics.
    """
    from pyspark.sql import functions as sql

    segments = _view(spark, path, options, view="segments")
    return (
        segments.groupBy("topic", "partition")
        .agg(
            sql.count("*").alias("segments"),
            sql.sum("sizeBytes").alias("sizeBytes"),
            sql.sum("batchCount").alias("batches"),
            sql.sum("recordCount").alias("records"),
            sql.min("startOffset").alias("startOffset"),
            sql.max("endOffset").alias("endOffset"),
            sql.max("maxTimestamp").alias("maxTimestamp"),
        )
        .orderBy("topic", "partition")
    )


def _view(
    spark: SparkSession, path: Paths, options: Mapping[str, str] | None, **fixed: str
) -> DataFrame:
    from kafkalog.spark import register

    register(spark)
    reader_options: dict[str, Any] = read_options(path, options, **fixed)
    return spark.read.format("kafkalog").options(**reader_options).load()


@coded_errors()
def reindex(
    spark: SparkSession,
    path: Paths,
    *,
    options: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobReport:
    """
    Rebuild the offset and time indexes of logs, from their batches.

    A task handles a data directory, and locks its logs one by one. A log with a damaged batch is
    left unchanged. Transaction indexes are left too: they are compared with the log on use.

    Args:
        spark: the session.
        path: a data directory, or several.
        options: of the data source: selection of topics.
        settings: of topics, over those that a manager has stored: the distance of entries.
        work_dir: for the job's files; next to the first path if None.
        job_id: of an earlier run that is to be finished; a new one if None.
        on_progress: called now and then, from a separate thread.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND and others of the options.
    """
    from kafkalog.spark.jobs.job_source import run_stage

    begun = time.monotonic()
    job_id = new_job_id("reindex") if job_id is None else job_id
    arguments = {"job": "reindex", "read": read_options(path, options), "settings": settings or {}}
    ledger = JobLedger.begin(work_directory(path, work_dir), job_id, arguments)
    if (report := ledger.report()) is not None:
        return JobReport.from_json(report)
    if not ledger.is_planned("reindex"):
        filesystem = PosixFileSystem()
        read = ReadOptions.parse(ledger.arguments["read"])
        snapshot = QuerySnapshot.take(with_internal_topics(read))
        configs = configs_of(filesystem, snapshot, settings or {})
        by_parent: dict[str, list[dict[str, Any]]] = {}
        for directory, config in zip(snapshot.directories, configs, strict=True):
            task = {"directory": directory, "config": config.to_properties()}
            by_parent.setdefault(str(Path(directory).parent), []).append(task)
        ledger.plan("reindex", [{"logs": logs} for logs in by_parent.values()])
    reports = run_stage(spark, ledger, "reindex", on_progress)
    partitions = tuple(each for report in reports.values() for each in report["logs"])
    good = sum(each["status"] == "done" for each in partitions)
    outcome = JobReport(
        "reindex",
        ledger.job_id,
        "done" if good == len(partitions) else "incomplete",
        {"partitions": len(partitions), "reindexed": good},
        partitions,
        int((time.monotonic() - begun) * 1000),
    )
    ledger.end(outcome.to_json())
    return outcome


def reindex_task(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rebuild the indexes of the logs of one data directory, one after the other."""
    from kafkalog.spark.jobs.job_source import report_batch

    report = {"logs": [_reindexed(each) for each in task["logs"]]}
    ledger.record_done("reindex", number, report)
    yield report_batch(number, {})


def _reindexed(task: Mapping[str, Any]) -> dict[str, Any]:
    directory = Path(task["directory"])
    config = LogConfig.from_properties(task["config"])
    outcome: dict[str, Any] = {"directory": str(directory), "status": "done"}
    try:
        disk = without_mappings(PosixFileSystem())
        with (
            open_log(directory, config=config, filesystem=disk) as log,
            storage_errors(directory, doing="indexing"),
        ):
            segments = partition_of(log).view.snapshot().segments.segments
            for segment in segments:
                _reindex_segment(partition_of(log).segment_context, segment)
            outcome["segments"] = len(segments)
    except KafkaLogError as error:
        return {**outcome, **outcome_of(error, "failed")}
    return outcome


def _reindex_segment(context: SegmentContext, segment: LogSegment) -> None:
    """
    Replace the indexes of a segment by indexes of its batches.

    Crash points: of each file, those of replacing it; an index is the old one or the new one.
    """
    scan = segment.scan()
    if scan.corrupt_ranges:
        raise scan.corrupt_ranges[0].to_error()
    files = context.files(segment.base_offset)
    replace_file(context.filesystem, files.offset_index, scan.offset_entries)
    replace_file(context.filesystem, files.time_index, scan.time_entries)
