"""`snapshot`: the latest record of each key, of logs with more keys than one machine has memory.

The logs are only read. Keys are shuffled as hashes and offsets (`latest_records`), values never:
tasks read the ranges of the log once more and return the records whose bits are set, in parallel.

Thread-safety: none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors
from kafkalog.spark.jobs.job_arguments import (
    Paths,
    new_job_id,
    ranges_as_json,
    read_options,
    work_directory,
)
from kafkalog.spark.jobs.job_source import JobProgress, stage_frame
from kafkalog.spark.jobs.latest_records import KEY_TASK_BYTES, find_latest, plan_keys
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import QuerySnapshot, resolve_bounds, split_and_pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["snapshot"]

_READ_TASK_BYTES = 256 << 20


@coded_errors()
def snapshot(
    spark: SparkSession,
    path: Paths,
    *,
    as_of: int | None = None,
    drop_tombstones: bool = True,
    options: Mapping[str, str] | None = None,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    task_bytes: int = KEY_TASK_BYTES,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> DataFrame:
    """
    Return the latest record of each key of each partition.

    The search for the latest records is done before this returns; the records are read when the
    frame is. The frame has the ranges of that moment, whatever is appended later. Aborted records,
    and records without a key, are not included. The job's files are needed for as long as the frame
    is used, and may be removed then.

    Args:
        spark: the session.
        path: a data directory, or several.
        as_of: time in ms; the first record at or after it and all later ones are left out. None for
            all.
        drop_tombstones: True to leave out keys whose latest value is null.
        options: of the data source: topics, start and end, handling of damage.
        work_dir: for the job's files; next to the first path if None.
        job_id: of an earlier run that is to be finished; a new one if None.
        task_bytes: about how much of a log one task reads for its keys.
        on_progress: called now and then, from a separate thread.

    Returns:
        The seven columns of the data source.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND and others of the options; JOB_FAILED if a partition
            cannot be read.
    """
    fixed = {"isolationLevel": "read_committed"}
    if as_of is not None:
        fixed |= {"endingTimestamp": str(as_of)}
    read = read_options(path, options, **fixed)
    work = work_directory(path, work_dir)
    job_id = new_job_id("snapshot") if job_id is None else job_id
    arguments: dict[str, Any] = {
        "job": "snapshot",
        "read": read,
        "drop_tombstones": drop_tombstones,
    }
    old_ledger = JobLedger(work / job_id)
    ledger = JobLedger.begin(work, job_id, {**arguments, "secret": _secret_of(old_ledger)})
    if not ledger.is_planned("ranges"):
        _plan(spark, ledger, task_bytes)
    _find(spark, ledger, on_progress)
    return stage_frame(spark, ledger, "latest")


def _find(
    spark: SparkSession,
    ledger: JobLedger,
    on_progress: Callable[[JobProgress], object] | None,
) -> None:
    """Find the latest records, and plan the reading of them."""
    slices, errors = find_latest(spark, ledger, on_progress)
    if errors:
        raise KafkaLogSparkError(
            ErrorCode.JOB_FAILED,
            f"{len(errors)} partitions cannot be read: {next(iter(errors.values()))}",
            job_id=ledger.job_id,
            errors=list(errors.values())[:100],
        )
    tasks = ledger.tasks("ranges")
    for task in tasks:
        numbers = {each[0] for each in task["ranges"]}
        task["slices"] = {str(number): slices.get(number, []) for number in numbers}
    ledger.plan("latest", tasks)


def _secret_of(ledger: JobLedger) -> str:
    try:
        found: str = ledger.arguments["secret"]
    except KafkaLogSparkError:
        return secrets.token_hex(16)
    return found


def _plan(spark: SparkSession, ledger: JobLedger, task_bytes: int) -> None:
    options = ReadOptions.parse(ledger.arguments["read"])
    found = QuerySnapshot.take(options)
    bounds = resolve_bounds(found, options)
    numbers = {name: number for number, name in enumerate(found.names())}
    plan_keys(spark, ledger, found, bounds, numbers, task_bytes)
    splits = split_and_pack(found, bounds, split_bytes=min(task_bytes, _READ_TASK_BYTES))
    ledger.plan("ranges", [{"ranges": ranges_as_json(split, numbers)} for split in splits])
