"""`compact`: the compaction of logs with more keys than one machine has memory.

    plan        partitions, how far each may be cleaned, and the files of its segments
    keys        tasks read keys; a shuffle of hashes and offsets leaves the latest
    clean       tasks write the kept records into the job's directory: small partitions together,
                runs of segments of a large one in parallel
    adopt       the driver replaces the segments, under the log's own lock, partition by partition

Rules and bytes are those of the engine's cleaner (`kafkalog.cleaner.staged`): transactions,
tombstones, markers, last batches of producers, the active segment and `min.compaction.lag.ms`. Logs
may be written while the first three stages run. The last one needs a log to itself, for a few
syncs; if another process has it open, or its segments have changed (retention, truncation, another
cleaning), that partition is left unchanged and reported.

Crash points: a run under the same id does what is not done. A replacement that was interrupted is
finished; or, if the start of a writer has removed files that were not in use yet, its partition is
reported as changed, and the next job cleans it.

Thread-safety: none; two jobs over one log do the work twice, and the second one replaces nothing.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkalog.cleaner.log_to_clean import log_to_clean
from kafkalog.cleaner.staged import (
    StagedCleaning,
    identify_segments,
    install_cleaning,
    staging_runs,
)
from kafkalog.clock import Clock, SystemClock
from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.log.opening import open_log
from kafkalog.spark.errors import coded_errors
from kafkalog.spark.jobs.job_arguments import (
    JobReport,
    Paths,
    configs_of,
    new_job_id,
    read_options,
    work_directory,
)
from kafkalog.spark.jobs.job_source import JobProgress, run_stage
from kafkalog.spark.jobs.job_tasks import outcome_of
from kafkalog.spark.jobs.latest_records import KEY_TASK_BYTES, find_latest, plan_keys
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import Bounds, QuerySnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compact"]

logger = logging.getLogger(__name__)

OnProgress = Callable[[JobProgress], object]


@coded_errors()
def compact(
    spark: SparkSession,
    path: Paths,
    *,
    policy: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    include_active: bool = False,
    dry_run: bool = False,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    task_bytes: int = KEY_TASK_BYTES,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> JobReport:
    """
    Compact logs: keep the latest record of each key.

    Args:
        spark: the session.
        path: a data directory, or several.
        policy: settings of topics, over those that a manager has stored;
            `{"cleanup.policy": "compact"}` compacts logs without any settings.
        options: selection of topics: `subscribe`, `subscribePattern`, `assign` of the data source.
        include_active: True to begin new segments first, so that everything allowed is cleaned.
        dry_run: compute what would be removed, and change nothing; no segments are begun either.
        work_dir: for the job's files, on the logs' file system; next to the first path if None.
        job_id: of an earlier run that is to be finished; a new one if None.
        task_bytes: about how much of a log one task reads.
        on_progress: called now and then, from a separate thread.
        clock: source of time; the machine's if None.

    Returns:
        The result. Partitions that could not be compacted are in it, with the reason.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND, TOPIC_NOT_FOUND, OPTION_CONFLICT, STORAGE;
            OPTION_INVALID if a setting is wrong.
    """
    begun = time.monotonic()
    job_id = new_job_id("compact") if job_id is None else job_id
    read = read_options(path, options, isolationLevel="read_committed")
    work = work_directory(path, work_dir)
    arguments: dict[str, Any] = {
        "job": "compact",
        "read": read,
        "policy": dict(policy or {}),
        "include_active": include_active and not dry_run,
        "dry_run": dry_run,
    }
    arguments = _with_secret(arguments, JobLedger(work / job_id), clock or SystemClock())
    ledger = JobLedger.begin(work, job_id, arguments)
    if (report := ledger.report()) is not None:
        return JobReport.from_json(report)
    planned = _planned(spark, ledger, task_bytes)
    outcomes = _cleaned(spark, ledger, planned, task_bytes, on_progress, dry_run=dry_run)
    outcome = _report(ledger, outcomes, dry_run=dry_run, begun=begun)
    for folder in ("staged", "latest", "keys", "clean"):
        ledger.discard(folder)
    ledger.end(outcome.to_json())
    return outcome


def _cleaned(
    spark: SparkSession,
    ledger: JobLedger,
    planned: list[dict[str, Any]],
    task_bytes: int,
    on_progress: OnProgress | None,
    *,
    dry_run: bool,
) -> dict[int, dict[str, Any]]:
    """Execute the plan; return the result of each partition."""
    slices, errors = find_latest(spark, ledger, on_progress)
    good = [each for each in planned if each["number"] not in errors]
    runs = [run for each in good for run in _runs_of(each, slices.get(each["number"], []))]
    ledger.plan("clean", _packed(runs, task_bytes))
    reports: dict[int, list[dict[str, Any]]] = {}
    for report in run_stage(spark, ledger, "clean", on_progress).values():
        for each in report["runs"]:
            reports.setdefault(each["number"], []).append(each)
    outcomes = {
        each["number"]: {"directory": each["directory"], "status": "failed", "error": message}
        for each in planned
        if (message := errors.get(each["number"])) is not None
    }
    for each in good:
        slice_reports = sorted(reports[each["number"]], key=lambda report: int(report["first"]))
        outcomes[each["number"]] = _adopted(each, slice_reports, dry_run=dry_run)
    return outcomes


def _runs_of(planned: dict[str, Any], slices: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """
    Yield the input of tasks for a partition: of each run, and the files of its latest offsets.
    """
    runs = planned["runs"]
    ends = [*(run["start_offset"] for run in runs[1:]), planned["end"]]
    rest = {name: value for name, value in planned.items() if name != "runs"}
    for run, end in zip(runs, ends, strict=True):
        yield {**rest, "run": run, "run_end": end, "slices": slices}


def _packed(runs: list[dict[str, Any]], task_bytes: int) -> list[dict[str, Any]]:
    """Return tasks of about `task_bytes`, the largest first."""
    tasks: list[dict[str, Any]] = []
    for run in sorted(runs, key=lambda run: -int(run["run"]["size_bytes"])):
        size = run["run"]["size_bytes"]
        if tasks and tasks[-1]["size_bytes"] + size <= task_bytes:
            tasks[-1]["runs"].append(run)
            tasks[-1]["size_bytes"] += size
        else:
            tasks.append({"runs": [run], "size_bytes": size})
    return tasks


def _with_secret(arguments: dict[str, Any], ledger: JobLedger, clock: Clock) -> dict[str, Any]:
    """Return the arguments, with the secret and the time of an earlier run or with new ones."""
    try:
        earlier = ledger.arguments
    except KafkaLogError:
        earlier = {"secret": secrets.token_hex(16), "now_ms": clock.now_ms()}
    return {**arguments, "secret": earlier["secret"], "now_ms": earlier["now_ms"]}


def _planned(spark: SparkSession, ledger: JobLedger, task_bytes: int) -> list[dict[str, Any]]:
    """Return the plan of each partition; made now, or by an earlier run."""
    if not ledger.is_planned("partitions"):
        filesystem = PosixFileSystem()
        options, settings = ReadOptions.parse(ledger.arguments["read"]), ledger.arguments["policy"]
        snapshot = QuerySnapshot.take(options, filesystem=filesystem)
        configs = configs_of(filesystem, snapshot, settings)
        if ledger.arguments["include_active"]:
            for directory, config in zip(snapshot.directories, configs, strict=True):
                if config.is_compacted:
                    _roll(directory, config)
            # Planned again: the partitions may have changed.
            snapshot = QuerySnapshot.take(options, filesystem=filesystem)
            configs = configs_of(filesystem, snapshot, settings)
        rows = [row for row, config in enumerate(configs) if config.is_compacted]
        tasks = [_plan_of(ledger, snapshot, row, configs[row], task_bytes) for row in rows]
        tasks = [task for task in tasks if task["start"] < task["end"]]
        starts = np.zeros(len(snapshot), np.int64)
        ends = np.zeros(len(snapshot), np.int64)
        for task in tasks:
            starts[task["number"]] = max(task["start"], int(snapshot.log_starts[task["number"]]))
            ends[task["number"]] = max(task["end"], starts[task["number"]])
        numbers = {name: number for number, name in enumerate(snapshot.names())}
        plan_keys(spark, ledger, snapshot, Bounds(starts, ends), numbers, task_bytes)
        ledger.plan("partitions", tasks)
    return ledger.tasks("partitions")


def _roll(directory: str, config: LogConfig) -> None:
    with open_log(directory, config=config, filesystem=without_mappings(PosixFileSystem())) as log:
        log.roll()


def _plan_of(
    ledger: JobLedger, snapshot: QuerySnapshot, row: int, config: LogConfig, task_bytes: int
) -> dict[str, Any]:
    directory = snapshot.directories[row]
    disk = without_mappings(snapshot.disk)
    with open_log(directory, config=config, read_only=True, filesystem=disk) as log:
        target = log_to_clean(log, now_ms=ledger.arguments["now_ms"])
        span = target.span()
        end = target.boundary(span)
        start = target.facts.segments[0].base_offset
        if span.first_dirty >= end:
            # All was cleaned before.
            end = start
        segments = identify_segments(log, end)
        runs = staging_runs(log, target, task_bytes) if start < end else []
    return {
        "number": row,
        "directory": directory,
        "config": config.to_properties(),
        "start": start,
        "end": end,
        "segments": [asdict(each) for each in segments],
        "runs": [asdict(each) for each in runs],
    }


def _adopted(
    task: Mapping[str, Any], reports: Sequence[Mapping[str, Any]], *, dry_run: bool
) -> dict[str, Any]:
    """Replace the segments of a partition; return the result."""
    outcome: dict[str, Any] = {"directory": task["directory"]}
    for report in reports:
        if report["status"] != "staged":
            return {**outcome, "status": report["status"], "error": report["error"]}
    staged = StagedCleaning.joined([StagedCleaning.from_json(each["staged"]) for each in reports])
    outcome |= {
        "bytes_before": staged.bytes_before,
        "bytes_after": staged.bytes_after,
        **staged.statistics,
    }
    if dry_run:
        return {**outcome, "status": "would be compacted"}
    try:
        config, disk = (
            LogConfig.from_properties(task["config"]),
            without_mappings(PosixFileSystem()),
        )
        with open_log(task["directory"], config=config, filesystem=disk) as log:
            install_cleaning(log, staged)
    except KafkaLogError as error:
        return {**outcome, **outcome_of(error, "changed")}
    return {**outcome, "status": "compacted"}


def _report(
    ledger: JobLedger, outcomes: Mapping[int, dict[str, Any]], *, dry_run: bool, begun: float
) -> JobReport:
    status = "would be compacted" if dry_run else "compacted"
    good = [each for each in outcomes.values() if each["status"] == status]
    names = ("bytes_before", "bytes_after", "records_read", "records_kept")
    totals = {"partitions": len(outcomes), "compacted": len(good)}
    totals |= {name: sum(int(each.get(name, 0)) for each in good) for name in names}
    return JobReport(
        "compact",
        ledger.job_id,
        "done" if len(good) == len(outcomes) else "incomplete",
        totals,
        tuple(outcomes[number] for number in sorted(outcomes)),
        int((time.monotonic() - begun) * 1000),
    )
