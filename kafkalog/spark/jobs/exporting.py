"""`export`: logs as Parquet, written by the workers; no record goes through the JVM.

A task is a range of offsets, and writes one file for each partition, or for each day if files are
partitioned by date. File names consist of topic, partition, first and last offset of the range, so
a repeated task writes the same files, and a resumed job writes only what is missing. Each file is
synced under another name first. At the end, `manifest.json` lists the files, with their rows and
offsets.

Crash points: before a rename, a file of another name is left, which no reader uses and the end of
the job removes; before the report of a task, its files are written once more, the same.

Thread-safety: none.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalog.errors import KafkaLogError
from kafkalog.files.atomic_files import replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark.arrow_cells import array_of, numbers_of
from kafkalog.spark.errors import coded_errors
from kafkalog.spark.jobs.job_arguments import (
    JobReport,
    Paths,
    cores_of,
    ensure_task_bytes,
    new_job_id,
    ranges_as_json,
    read_options,
)
from kafkalog.spark.jobs.job_tasks import partition_error, ranges_of, records_of
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.options.option import invalid
from kafkalog.spark.plan import QuerySnapshot, SplitRange, resolve_bounds, split_and_pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog.spark.jobs.job_source import JobProgress

__all__ = ["export", "export_task"]

_TASK_BYTES: Final = 256 << 20
_PARTED_BY: Final = ("topic", "date")
_CODECS: Final = ("none", "snappy", "gzip", "lz4", "zstd")
_DAY_MS: Final = 86_400_000
# A row group: large enough to compress well; a worker needs about four times as much to encode it.
_GROUP_BYTES: Final = 8 << 20
_NAMES: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@coded_errors()
def export(
    spark: SparkSession,
    path: Paths,
    out: str | PathLike[str],
    *,
    format: str = "parquet",  # noqa: A002 - the word that Spark has for it
    codec: str = "zstd",
    partition_by: Sequence[str] = ("topic", "date"),
    options: Mapping[str, str] | None = None,
    include_headers: bool = False,
    job_id: str | None = None,
    task_bytes: int = _TASK_BYTES,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobReport:
    """
    Write the records of logs as Parquet files.

    Args:
        spark: the session.
        path: a data directory, or several.
        out: a directory that all workers see; made if it does not exist.
        format: "parquet".
        codec: of the columns: none, snappy, gzip, lz4 or zstd.
        partition_by: directories: `topic`, `date` (UTC; `none` without a timestamp), or neither.
        options: of the data source: topics, start and end, handling of damage.
        include_headers: True for a column of headers.
        job_id: of an earlier run that is to be finished; a new one if None.
        task_bytes: about how much of a log goes into one file.
        on_progress: called now and then, by another thread.

    Raises:
        KafkaLogSparkError: OPTION_INVALID; PATH_NOT_FOUND and others of the options.
    """
    from kafkalog.spark.jobs.job_source import run_stage

    begun = time.monotonic()
    _check(format, codec, partition_by)
    ensure_task_bytes(task_bytes)
    directory = Path(fspath(out)).absolute()
    job_id = new_job_id("export") if job_id is None else job_id
    arguments = {
        "job": "export",
        "read": read_options(path, options),
        "out": str(directory),
        "codec": codec,
        "partition_by": list(partition_by),
        "headers": include_headers,
    }
    # A name that readers of Parquet ignore.
    ledger = JobLedger.begin(directory / "_kafkalog_jobs", job_id, arguments)
    if (report := ledger.report()) is not None:
        return JobReport.from_json(report)
    if not ledger.is_planned("export"):
        _plan(ledger, task_bytes, cores_of(spark))
    reports = run_stage(spark, ledger, "export", on_progress)
    finish_files(directory, job_id, [each["files"] for each in reports.values()])
    outcome = _outcome(ledger, reports, begun)
    ledger.end(outcome.to_json())
    return outcome


def _plan(ledger: JobLedger, task_bytes: int, cores: int) -> None:
    read = ReadOptions.parse(ledger.arguments["read"])
    found = QuerySnapshot.take(read)
    numbers = {name: number for number, name in enumerate(found.names())}
    splits = split_and_pack(found, resolve_bounds(found, read), split_bytes=task_bytes)
    # Names of files contain the ranges, which must not depend on the cluster: with fewer tasks than
    # cores, the ranges of each task are distributed.
    hands = -(-cores // max(len(splits), 1))
    tasks = [
        {"ranges": ranges[first::hands]}
        for ranges in (ranges_as_json(each, numbers) for each in splits)
        for first in range(min(hands, len(ranges)))
    ]
    ledger.plan("export", tasks)


def finish_files(directory: Path, job_id: str, files: list[list[dict[str, Any]]]) -> None:
    """List the written files, after all other files of the job are removed."""
    listed = [each for of_task in files for each in of_task]
    _clear_away(listed)
    _write_manifest(directory, job_id, listed)


def _clear_away(files: Sequence[Mapping[str, Any]]) -> None:
    """Remove the files of killed attempts from the directories of a job."""
    by_folder: dict[Path, set[str]] = {}
    for each in files:
        path = Path(each["path"])
        by_folder.setdefault(path.parent, set()).add(f".{path.name}")
    for folder, names in by_folder.items():
        with storage_errors(folder, doing="clearing up"):
            for left in folder.iterdir():
                if left.stem in names:
                    left.unlink(missing_ok=True)


def _write_manifest(directory: Path, job_id: str, files: list[dict[str, Any]]) -> None:
    files.sort(key=lambda each: (each["topic"], each["partition"], each["first_offset"]))
    with storage_errors(directory, doing="writing to"):
        text = json.dumps({"job_id": job_id, "files": files}, indent=1)
        replace_file(PosixFileSystem(), directory / "_manifest.json", text.encode())


def _check(format_name: str, codec: str, partition_by: Sequence[str]) -> None:
    for option, value, allowed in (
        ("format", format_name, ("parquet",)),
        ("codec", codec, _CODECS),
        *(("partition_by", each, _PARTED_BY) for each in partition_by),
    ):
        if value not in allowed:
            raise invalid(option, value, f"one of {', '.join(allowed)}")


def _outcome(
    ledger: JobLedger, reports: Mapping[int, Mapping[str, Any]], begun: float
) -> JobReport:
    by_directory: dict[str, dict[str, Any]] = {}
    totals = {"files": 0, "rows": 0, "bytes": 0}
    for report in reports.values():
        for each in report["files"]:
            totals["files"] += 1
            totals["rows"] += each["rows"]
            totals["bytes"] += each["bytes"]
        for directory, message in report["ranges"].items():
            entry = by_directory.setdefault(directory, {"directory": directory, "status": "done"})
            if message is not None:
                entry |= {"status": "failed", "error": message}
    failed = any(each["status"] == "failed" for each in by_directory.values())
    return JobReport(
        "export",
        ledger.job_id,
        "incomplete" if failed else "done",
        totals,
        tuple(by_directory[name] for name in sorted(by_directory)),
        int((time.monotonic() - begun) * 1000),
    )


def export_task(ledger: JobLedger, number: int, task: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Write the files of one task, and report them."""
    from kafkalog.spark.jobs.job_source import report_batch

    arguments = ledger.arguments
    options = ReadOptions.parse(arguments["read"])
    files: list[dict[str, Any]] = []
    ranges: dict[str, str | None] = {}
    for _number, each in ranges_of(task):
        writer = _RangeWriter(arguments, each)
        try:
            names = (*_NAMES, "headers") if arguments["headers"] else _NAMES
            for batch in records_of(each, names, options):
                writer.add(batch)
            files += writer.finish()
            ranges.setdefault(each.directory, None)
        except KafkaLogError as error:
            writer.abandon()
            message = partition_error(error)
            if message is None:
                raise
            ranges[each.directory] = message
        except BaseException:
            writer.abandon()
            raise
    ledger.record_done("export", number, {"files": files, "ranges": ranges})
    yield report_batch(number, {"files": len(files)})


class _RangeWriter:
    """
    Writer of the records of one range, to a file for each day if files are partitioned by date.
    """

    def __init__(self, arguments: Mapping[str, Any], each: SplitRange) -> None:
        self._arguments = arguments
        self._range = each
        self._files: dict[str, _File] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        if "date" not in self._arguments["partition_by"]:
            self._file("").add(batch)
            return
        times = numbers_of(batch.column("timestamp"), np.int64) // 1000
        days = np.where(times >= 0, times // _DAY_MS, -1)
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for start, end in pairwise(cuts):
            if start < end:
                self._file(_date_of(int(days[start]))).add(batch.slice(start, end - start))

    def finish(self) -> list[dict[str, Any]]:
        """Give the files their names; return their descriptions."""
        return [each.finish() for each in self._files.values()]

    def abandon(self) -> None:
        """Remove the written files."""
        for each in self._files.values():
            each.abandon()

    def _file(self, date: str) -> _File:
        if date not in self._files:
            folder = Path(self._arguments["out"])
            if "topic" in self._arguments["partition_by"]:
                folder /= f"topic={self._range.topic}"
            if date:
                folder /= f"date={date}"
            self._files[date] = _File(folder, self._range, self._arguments["codec"])
        return self._files[date]


def _with_topic_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of one topic with the topic as a dictionary: its name is looked up once."""
    place = batch.schema.get_field_index("topic")
    zeros = array_of(pa.int32(), np.zeros(len(batch), np.int32))
    named = pa.DictionaryArray.from_arrays(zeros, batch.column(place).slice(0, 1))
    return batch.set_column(place, "topic", named)


def _date_of(day: int) -> str:
    return "none" if day < 0 else str(np.datetime64(day, "D"))


class _File:
    """One file under construction."""

    def __init__(self, folder: Path, each: SplitRange, codec: str) -> None:
        self._range = each
        name = f"{each.topic}-{each.partition}-{each.start:020}-{each.end:020}.parquet"
        self._path = folder / name
        with storage_errors(folder, doing="making"):
            folder.mkdir(parents=True, exist_ok=True)
        # Of this attempt alone, on any machine.
        self._temporary = folder / f".{name}.{uuid.uuid4().hex}"
        self._codec = codec
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._first = self._last = -1

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records; a full row group is written."""
        offsets = batch.column("offset")
        if self._first < 0:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._rows += len(batch)
        self._waiting.append(_with_topic_once(batch))
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> dict[str, Any]:
        """Sync the file and give it its name."""
        self._flush()
        assert self._writer is not None
        self._writer.close()
        filesystem = PosixFileSystem()
        with storage_errors(self._path, doing="writing"):
            handle = filesystem.open(self._temporary, write=True)
            try:
                handle.sync()
                size = handle.size()
            finally:
                handle.close()
            filesystem.rename(self._temporary, self._path)
            filesystem.sync_directory(self._path.parent)
        return {
            "path": str(self._path),
            "topic": self._range.topic,
            "partition": self._range.partition,
            "rows": self._rows,
            "bytes": size,
            "first_offset": self._first,
            "last_offset": self._last,
        }

    def abandon(self) -> None:
        """Remove the written file."""
        if self._writer is not None:
            self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if self._writer is None:
            # Dictionaries pay for names, and cost memory and time for keys and values. Numbers that
            # rise in steps are written as deltas, in which the codec finds nothing. Readers of the
            # file do not see that the topic came as a dictionary.
            self._writer = pq.ParquetWriter(
                self._temporary,
                table.schema,
                compression=self._codec,
                use_dictionary=["topic"],
                column_encoding=dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
                write_statistics=["offset", "timestamp", "partition", "topic"],
                store_schema=False,
            )
        self._writer.write_table(table)
