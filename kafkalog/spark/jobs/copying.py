"""`copy`: logs byte for byte into another data directory, by the workers, with the same offsets.

For a backup, a test environment or a move to other disks. A task copies segments; of the last
segment of a log, which may be growing, the bytes at the time of the plan; and no indexes, which the
first opening of the copy rebuilds. Nothing is decoded and no CRC is checked: damage is copied
unchanged, and `verify` reports it.

Logs may be written and cleaned during the job. A segment that disappeared, or became shorter,
before it was copied makes its partition `changed`: its copied files are removed at the end, and a
new job copies it. Only partitions that are missing in the target are copied; nothing is
overwritten.

Crash points: each file is written under a `.tmp` name, synced and renamed, the `.log` of a segment
last. A run of a killed job under the same id copies what is missing; until it has ended, the target
must not be opened.

Thread-safety: none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    SegmentFiles,
    partition_directory_name,
    temporary_path,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.startup_cleanup import live_bases
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors
from kafkalog.spark.jobs.job_arguments import (
    JobReport,
    Paths,
    ensure_task_bytes,
    new_job_id,
    read_options,
    with_internal_topics,
    work_directory,
)
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import QuerySnapshot
from kafkalog.state.checkpoints import OffsetCheckpoint

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkalog.spark.jobs.job_source import JobProgress

__all__ = ["copy", "copy_task", "finish_copy", "plan_copy"]

_TASK_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 8 << 20
_OF_PARTITION: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)


@coded_errors()
def copy(
    spark: SparkSession,
    path: Paths,
    out: str | PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    task_bytes: int = _TASK_BYTES,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobReport:
    """
    Copy logs into another data directory.

    Args:
        spark: the session.
        path: a data directory, or several.
        out: the directory; made if it does not exist.
        options: selection of topics: `subscribe`, `subscribePattern` or `assign` of the data
            source.
        work_dir: for the job's files; next to `out` if None.
        job_id: of an earlier run that is to be finished; a new one if None.
        task_bytes: about how much one task copies; a segment is never split.
        on_progress: called now and then, from a separate thread.

    Raises:
        KafkaLogSparkError: OPTION_CONFLICT if a partition exists already; PATH_NOT_FOUND and others
            of the options.
    """
    from kafkalog.spark.jobs.job_source import run_stage

    begun = time.monotonic()
    ensure_task_bytes(task_bytes)
    target = Path(fspath(out)).absolute()
    job_id = new_job_id("copy") if job_id is None else job_id
    arguments = {"job": "copy", "read": read_options(path, options), "out": str(target)}
    ledger = JobLedger.begin(work_directory(target, work_dir), job_id, arguments)
    if (report := ledger.report()) is not None:
        return JobReport.from_json(report)
    if not ledger.is_planned("copy"):
        plan_copy(ledger, target, task_bytes)
    reports = run_stage(spark, ledger, "copy", on_progress)
    outcome = finish_copy(ledger, target, reports, begun)
    ledger.end(outcome.to_json())
    return outcome


def plan_copy(ledger: JobLedger, target: Path, task_bytes: int) -> None:
    """Record the partitions of a copy, and their segments in tasks of about `task_bytes`."""
    filesystem = PosixFileSystem()
    read = with_internal_topics(ReadOptions.parse(ledger.arguments["read"]))
    found = QuerySnapshot.take(read)
    partitions: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for row, (topic, number) in enumerate(found.names()):
        name = partition_directory_name(TopicPartition(topic, number))
        directory = target / name
        with storage_errors(directory, doing="looking at"):
            if filesystem.stat(directory) is not None and live_bases(filesystem, directory):
                raise KafkaLogSparkError(
                    ErrorCode.OPTION_CONFLICT,
                    f"{directory} exists already, and nothing is overwritten",
                    path=str(directory),
                )
        source = found.directories[row]
        start = int(found.log_starts[row])
        partitions.append({"topic": topic, "partition": number, "from": source, "start": start})
        bases, sizes = found.segments_of(row)
        for base, size in zip(bases, sizes, strict=True):
            segments.append(
                {
                    "number": row,
                    "from": source,
                    "to": str(directory),
                    "base": base,
                    "bytes": size,
                    "is_last": base == bases[-1],
                }
            )
    tasks: list[dict[str, Any]] = []
    left = 0
    for each in sorted(segments, key=lambda each: -int(each["bytes"])):
        if not tasks or left < each["bytes"]:
            tasks.append({"segments": []})
            left = task_bytes
        tasks[-1]["segments"].append(each)
        left -= each["bytes"]
    ledger.plan("partitions", partitions)
    ledger.plan("copy", tasks)


def finish_copy(
    ledger: JobLedger, target: Path, reports: Mapping[int, Mapping[str, Any]], begun: float
) -> JobReport:
    """Finish the partitions that are complete, and remove the files of the others."""
    filesystem = PosixFileSystem()
    changed = {number: message for each in reports.values() for number, message in each["changed"]}
    starts: dict[TopicPartition, int] = {}
    outcomes = []
    for number, each in enumerate(ledger.tasks("partitions")):
        name = TopicPartition(each["topic"], each["partition"])
        directory = target / partition_directory_name(name)
        outcome = {"directory": each["from"], "status": "copied"}
        with storage_errors(directory, doing="finishing"):
            if (message := changed.get(number)) is not None:
                outcome |= {"status": "changed", "error": message}
                _remove(filesystem, directory)
            else:
                _finish_partition(filesystem, Path(each["from"]), directory)
                starts[name] = each["start"]
        outcomes.append(outcome)
    with storage_errors(target, doing="making"):
        _make(filesystem, target)
    OffsetCheckpoint(filesystem, target / LOG_START_OFFSET_CHECKPOINT).update(starts)
    totals = {"partitions": len(outcomes), "copied": len(starts)}
    totals |= {name: sum(each[name] for each in reports.values()) for name in ("segments", "bytes")}
    status = "incomplete" if changed else "done"
    duration_ms = int((time.monotonic() - begun) * 1000)
    return JobReport("copy", ledger.job_id, status, totals, tuple(outcomes), duration_ms)


def _finish_partition(filesystem: FileSystem, source: Path, directory: Path) -> None:
    """Copy the files of a partition other than its segments."""
    _make(filesystem, directory)
    for name in _OF_PARTITION:
        _copy_file(filesystem, source / name, directory / name, None)
    filesystem.sync_directory(directory)
    filesystem.sync_directory(directory.parent)


def _remove(filesystem: FileSystem, directory: Path) -> None:
    if filesystem.stat(directory) is None:
        return
    for name in filesystem.list(directory):
        filesystem.unlink(directory / name)
    filesystem.remove_directory(directory)


# ---- in the tasks ----


def copy_task(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Copy the segments of a task, and report them."""
    from kafkalog.spark.jobs.job_source import report_batch

    filesystem = PosixFileSystem()
    changed: list[tuple[int, str]] = []
    copied = 0
    for each in task["segments"]:
        directory = Path(each["to"])
        with storage_errors(directory, doing="copying to"):
            message = _copy_segment(filesystem, each)
        if message is not None:
            changed.append((each["number"], message))
        else:
            copied += each["bytes"]
    done = len(task["segments"]) - len(changed)
    ledger.record_done("copy", number, {"segments": done, "bytes": copied, "changed": changed})
    yield report_batch(number, {"segments": done})


def _copy_segment(filesystem: FileSystem, each: Mapping[str, Any]) -> str | None:
    """Copy the files of a segment, its log last; return the differences from the plan."""
    source = SegmentFiles(Path(each["from"]), each["base"])
    target = SegmentFiles(Path(each["to"]), each["base"])
    _make(filesystem, target.directory)
    if filesystem.stat(target.log) is not None:
        # An earlier run has copied it.
        return None
    others = [(source.snapshot, target.snapshot)]
    if not each["is_last"]:
        others += [*zip(source, target, strict=True)][1:]
    for old, new in others:
        _copy_file(filesystem, old, new, None)
    if not _copy_file(filesystem, source.log, target.log, each["bytes"]):
        return f"{source.log} is gone, or is shorter than it was"
    filesystem.sync_directory(target.directory)
    return None


def _copy_file(filesystem: FileSystem, old: Path, new: Path, size: int | None) -> bool:
    """
    Copy a file, or its first bytes; return True if it existed, and was as long.

    It keeps the time of its last change, by which cleaners judge a segment.
    """
    try:
        reading = filesystem.open(old)
    except FileNotFoundError:
        return False
    temporary = temporary_path(new)
    try:
        facts = filesystem.stat(old)
        size_bytes = reading.size() if size is None else size
        writing = filesystem.create_new(temporary)
        try:
            position = 0
            while position < size_bytes:
                piece = reading.pread(min(_PIECE_BYTES, size_bytes - position), position)
                if not piece:
                    break
                writing.pwrite(piece, position)
                position += len(piece)
            writing.sync()
        finally:
            writing.close()
    finally:
        reading.close()
    if size is not None and position < size_bytes:
        filesystem.unlink(temporary)
        return False
    if facts is not None:
        filesystem.set_modified_ms(temporary, facts.modified_ms)
    filesystem.rename(temporary, new)
    return True


def _make(filesystem: FileSystem, directory: Path) -> None:
    for each in (*reversed(directory.parents), directory):
        if filesystem.stat(each) is None:
            try:
                filesystem.make_directory(each)
            except FileExistsError:
                continue
            filesystem.sync_directory(each.parent)
