"""Tasks of jobs, run in the workers: read keys, stage a cleaning, read the latest records.

A partition whose task fails because of its content, such as a damaged batch or a changed segment,
is reported as failed, and does not affect the others. A failure of the worker or its disk fails the
task, and Spark tries it again.

A log is opened on a disk without mappings: the files are in use by a writer, a cleaner or a broker,
on shared storage, and a file that is mapped and then cut would kill the worker.

Thread-safety: none; each call is one thread's. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.cleaner.staged import SegmentIdentity, StagingRun, stage_cleaning
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    LogCleaningAbortedError,
    LogLockedError,
    UnsupportedCodecError,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.log.opening import open_log
from kafkalog.spark.arrow_cells import mask_of, numbers_of, validity_of
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.jobs.key_hashes import RangeKeyHashes
from kafkalog.spark.jobs.latest_offsets import load_live_records
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import LogSplit, SplitRange
from kafkalog.spark.schema import RECORD_COLUMNS, RECORD_EXTRAS, arrow_type
from kafkalog.spark.split_reader import read_split

__all__ = [
    "outcome_of",
    "partition_error",
    "read_keys",
    "read_latest",
    "records_of",
    "stage_runs",
]

_COLUMNS: Final = {**RECORD_COLUMNS, **RECORD_EXTRAS}
_KEYS: Final = ("offset", "key")
_BATCH_BYTES: Final = 1 << 20
# Errors of a partition, which any reader of it gets.
_OF_PARTITION: Final = (
    CorruptRecordError,
    InvalidRecordError,
    LogCleaningAbortedError,
    UnsupportedCodecError,
)
_OF_DATA: Final = (
    ErrorCode.CORRUPT_BATCH,
    ErrorCode.RECORD_INVALID,
    ErrorCode.UNSUPPORTED,
    ErrorCode.BATCH_TOO_LARGE,
    ErrorCode.DATA_LOSS,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)


def partition_error(error: KafkaLogError) -> str | None:
    """Return the error of a partition; None for an error that is not the partition's."""
    if isinstance(error, KafkaLogSparkError):
        return str(error) if error.code in _OF_DATA else None
    return f"{type(error).__name__}: {error}" if isinstance(error, _OF_PARTITION) else None


def outcome_of(error: KafkaLogError, status: str) -> dict[str, str]:
    """
    Return the report of a partition that failed.

    Raises:
        KafkaLogError: the error, if it is not the partition's.
    """
    if isinstance(error, LogLockedError):
        return {"status": "locked", "error": str(error)}
    message = partition_error(error)
    if message is None:
        raise error
    return {"status": status, "error": message}


def records_of(
    each: SplitRange, names: tuple[str, ...], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, with some of the columns of the source."""
    columns = tuple(_COLUMNS[name] for name in names)
    schema = pa.schema([(column.name, arrow_type(column.kind)) for column in columns])
    # Batches for Spark are large, since each one costs the JVM time; batches for this process are
    # not.
    size = min(options.arrow_batch_bytes, _BATCH_BYTES)
    options = replace(options, arrow_batch_bytes=size)
    return read_split(LogSplit((each,), 0), columns, schema, options)


def ranges_of(task: Mapping[str, Any]) -> Iterator[tuple[int, SplitRange]]:
    """Yield the ranges of a task with the numbers of their partitions."""
    for number, *named in task["ranges"]:
        yield number, SplitRange(*named)


def read_keys(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the latest records by key of the ranges of a task; see `key_hashes`."""
    options = ReadOptions.parse(ledger.arguments["read"])
    keys = RangeKeyHashes(bytes.fromhex(ledger.arguments["secret"]))
    slices = task["slices"]
    errors: dict[int, str] = {}
    for partition_number, each in ranges_of(task):
        try:
            batches = records_of(each, _KEYS, options)
            yield from keys.latest(partition_number, slices[str(partition_number)], batches)
        except KafkaLogError as error:
            message = partition_error(error)
            if message is None:
                raise
            errors[partition_number] = message
    ledger.record_done("keys", number, {"errors": errors})


def stage_runs(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Write the kept records of runs of segments into the job's directory, and report them."""
    from kafkalog.spark.jobs.job_source import report_batch

    reports = [_staged(ledger, each) for each in task["runs"]]
    ledger.record_done("clean", number, {"runs": reports})
    yield report_batch(number, {"runs": len(reports)})


def _staged(ledger: JobLedger, task: dict[str, Any]) -> dict[str, Any]:
    run = StagingRun(**task["run"])
    identity = {"number": task["number"], "first": run.first}
    name = f"staged/{task['number']}/{run.first}"
    ledger.discard(name)
    folder = ledger.folder(name)
    latest = ledger.folder("latest")
    marks = load_live_records(
        latest, task["slices"], run.start_offset, task["end"], task["run_end"]
    )
    expected = [SegmentIdentity(**each) for each in task["segments"]]
    config = LogConfig.from_properties(task["config"])
    try:
        disk = without_mappings(PosixFileSystem())
        with open_log(task["directory"], config=config, read_only=True, filesystem=disk) as log:
            target = log_to_clean(log, now_ms=ledger.arguments["now_ms"])
            staged = stage_cleaning(log, target, marks, folder, expected=expected, run=run)
    except KafkaLogError as error:
        message = partition_error(error)
        if message is None:
            raise
        ledger.discard(name)
        return {**identity, "status": "failed", "error": message}
    return {**identity, "status": "staged", "staged": staged.to_json()}


def read_latest(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges of a task that are their keys' latest."""
    arguments = ledger.arguments
    yield from latest_records(ledger, task, drop_tombstones=arguments["drop_tombstones"])
    ledger.record_done("latest", number, {})


def latest_records(
    ledger: JobLedger, task: Mapping[str, Any], *, drop_tombstones: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the latest records of the ranges of a task, in the columns of the source."""
    options = ReadOptions.parse(ledger.arguments["read"])
    folder = ledger.folder("latest")
    for partition_number, each in ranges_of(task):
        marks = load_live_records(
            folder, task["slices"][str(partition_number)], each.start, each.end
        )
        for batch in records_of(each, tuple(RECORD_COLUMNS), options):
            mask = marks.takes(numbers_of(batch.column("offset"), np.int64))
            if drop_tombstones:
                mask = mask & validity_of(batch.column("value"))
            if mask.all():
                yield batch
            elif np.any(mask):
                yield batch.filter(mask_of(mask))
