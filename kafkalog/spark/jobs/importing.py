"""`import_`: rows become logs whose records keep their offsets.

    write       tasks, each with whole partitions sorted by offset, encode batches into files; gaps
                between offsets stay gaps
    append      the driver appends the files to the logs, through the engine, under their lock

A partition accepts only rows above its end: nothing is overwritten, and nothing is inserted. If one
partition overlaps, none is changed.

Crash points: the end of a partition before the import is recorded before its first append; a run
under the same id resumes after the records that the log has by then.

Thread-safety: none; a job is one thread's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import Log
from kafkalog.manager.manager import LogManager
from kafkalog.records.codecs import Codec
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors, of_engine
from kafkalog.spark.jobs.job_arguments import JobReport, new_job_id, work_directory
from kafkalog.spark.jobs.job_source import JobProgress, register_stages
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.options.option import invalid
from kafkalog.spark.schema import ensure_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["import_"]

_NEEDED: Final = ("topic", "partition", "offset", "value")
# The columns to write, with the types that each may have.
_TAKEN: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_CODECS: Final = tuple(codec.kafka_name for codec in Codec)
_APPEND_BYTES: Final = 64 << 20


@coded_errors()
def import_(
    spark: SparkSession,
    source: DataFrame | str | PathLike[str],
    path: str | PathLike[str],
    *,
    preserve_offsets: bool = True,
    codec: str = "zstd",
    options: Mapping[str, str] | None = None,
    work_dir: str | PathLike[str] | None = None,
    job_id: str | None = None,
    on_progress: Callable[[JobProgress], object] | None = None,
) -> JobReport:
    """
    Write rows into the logs of a data directory, with the offsets that they have.

    Args:
        spark: the session.
        source: a frame, or a directory of Parquet files as `export` writes them. Columns: topic,
            partition, offset, value; optionally key, timestamp, headers.
        path: the data directory; missing topics are made.
        preserve_offsets: False appends the rows as any write does, with new offsets.
        codec: of the batches: none, gzip, snappy, lz4 or zstd.
        options: of the data source's writing, if offsets are not kept.
        work_dir: for the job's files; next to the data directory if None.
        job_id: of an earlier run that is to be finished; a new one if None.
        on_progress: called after a partition was appended; the work before is Spark's, which
            reports it.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND, OPTION_INVALID, COLUMN_MISSING, TYPE_INVALID;
            RECORD_INVALID for two rows of one offset; OFFSET_OUT_OF_RANGE if a partition ends above
            the first row's offset; TXN_CONFLICT if another writer has appended since an earlier
            run; LOCKED if another process has the data directory open.
    """
    begun = time.monotonic()
    if codec not in _CODECS:
        raise invalid("codec", codec, f"one of {', '.join(_CODECS)}")
    source_name, frame = _rows_of(spark, source)
    directory = Path(fspath(path)).absolute()
    job_id = new_job_id("import") if job_id is None else job_id
    if not preserve_offsets:
        # The name prevents that the same job is written a second time.
        named = {"txnAppId": job_id, "txnVersion": "0"}
        write_options = {**named, **(options or {}), "path": str(directory), "compression": codec}
        frame.write.format("kafkalog").options(**write_options).mode("append").save()
        return JobReport("import", job_id, "done", {}, (), _since(begun))
    _check_columns({field.name: field.dataType.simpleString() for field in frame.schema.fields})
    arguments = {"job": "import", "source": source_name, "path": str(directory), "codec": codec}
    ledger = JobLedger.begin(work_directory(directory, work_dir), job_id, arguments)
    if (report := ledger.report()) is not None:
        return JobReport.from_json(report)
    if ledger.facts("import") is None:
        ledger.discard("imported")
        _write(spark, ledger, frame)
    facts = ledger.facts("import")
    assert facts is not None
    outcome = _append(ledger, directory, facts["files"], begun, on_progress)
    ledger.discard("imported")
    ledger.end(outcome.to_json())
    return outcome


def _rows_of(spark: SparkSession, source: DataFrame | str | PathLike[str]) -> tuple[str, DataFrame]:
    """Return the name of a source for the ledger, and its rows."""
    if not isinstance(source, (str, PathLike)):
        return "a frame", source
    path = Path(fspath(source)).absolute()
    if not path.exists():
        raise KafkaLogSparkError(
            ErrorCode.PATH_NOT_FOUND, f"there is nothing at {path}", path=str(path)
        )
    return str(path), spark.read.parquet(str(path))


def _check_columns(types: Mapping[str, str]) -> None:
    missing = [name for name in _NEEDED if name not in types]
    if missing:
        raise KafkaLogSparkError(
            ErrorCode.COLUMN_MISSING,
            f"rows that keep their offsets need {', '.join(_NEEDED)}; {missing[0]} is missing",
            column=missing[0],
        )
    for name, allowed in _TAKEN.items():
        if name in types:
            ensure_type(name, types[name], allowed)


def _since(begun: float) -> int:
    return int((time.monotonic() - begun) * 1000)


def _write(spark: SparkSession, ledger: JobLedger, frame: DataFrame) -> None:
    """Sort the rows into partitions, which tasks encode."""
    register_stages(spark)
    rows = frame.select(*(name for name in _TAKEN if name in frame.columns))
    rows = rows.repartition("topic", "partition")
    rows = rows.sortWithinPartitions("topic", "partition", "offset")
    writer = rows.write.format("kafkalog-job").option("ledger", str(ledger.directory))
    writer.option("stage", "import").mode("append").save()


def _append(
    ledger: JobLedger,
    directory: Path,
    files: list[dict[str, Any]],
    begun: float,
    on_progress: Callable[[JobProgress], object] | None,
) -> JobReport:
    files = sorted(files, key=lambda each: (each["topic"], each["partition"]))
    partitions: list[dict[str, Any]] = []
    try:
        with LogManager([directory]) as manager:
            _make_topics(manager, files)
            ends = _ends(ledger, manager, files)
            for each in files:
                log = manager.log(each["topic"], each["partition"])
                append_file(log, each, ends[f"{each['topic']}-{each['partition']}"])
                log.flush()
                partitions.append({**each, "directory": str(log.directory), "status": "imported"})
                if on_progress is not None:
                    progress = JobProgress(ledger.job_id, "append", len(partitions), len(files))
                    on_progress(progress)
    except KafkaLogSparkError:
        raise
    except KafkaLogError as error:
        raise of_engine(error, job_id=ledger.job_id) from error
    totals = {
        "partitions": len(partitions),
        "rows": sum(each["rows"] for each in files),
        "bytes": sum(each["size_bytes"] for each in files),
    }
    return JobReport("import", ledger.job_id, "done", totals, tuple(partitions), _since(begun))


def _make_topics(manager: LogManager, files: list[dict[str, Any]]) -> None:
    """Make the missing topics, with as many partitions as the rows have."""
    counts: dict[str, int] = {}
    for each in files:
        counts[each["topic"]] = max(counts.get(each["topic"], 0), each["partition"] + 1)
    topics = manager.topics()
    for topic, count in counts.items():
        if topic not in topics:
            manager.create_topic(topic, count)
            continue
        for partition in sorted(set(range(count)) - set(topics[topic])):
            manager.create_partition(topic, partition)


def _ends(ledger: JobLedger, manager: LogManager, files: list[dict[str, Any]]) -> Mapping[str, int]:
    """Return the end of each log before the import; raise if rows are below it."""
    ends = ledger.facts("ends")
    if ends is None:
        ends = {
            f"{each['topic']}-{each['partition']}": manager.log(
                each["topic"], each["partition"]
            ).log_end_offset
            for each in files
        }
        for each in files:
            end = ends[f"{each['topic']}-{each['partition']}"]
            if each["first_offset"] < end:
                raise KafkaLogSparkError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{each['topic']}-{each['partition']} ends at {end}, and rows begin at"
                    f" {each['first_offset']}: nothing was written",
                    topic=each["topic"],
                    partition=each["partition"],
                    log_end_offset=end,
                    first_offset=each["first_offset"],
                )
        ledger.finish("ends", ends)
    return ends


def append_file(log: Log, file: Mapping[str, Any], end_before: int) -> None:
    """Append the batches of a file that are missing in the log."""
    if log.log_end_offset == end_before == log.log_start_offset and end_before == 0:
        # Else retention would find a log that begins far below its first record.
        log.truncate_fully_and_start_at(file["first_offset"])
    _ensure_own(log, file, end_before)
    for data in _pieces(Path(file["path"]), file["size_bytes"]):
        rest = _batches_from(data, log.log_end_offset)
        if len(rest):
            log.append_batches(rest, assign_offsets=False)


def _ensure_own(log: Log, file: Mapping[str, Any], end_before: int) -> None:
    """
    Check that an earlier run of the job appended all records that a log got since the job began.

    Raises:
        KafkaLogSparkError: TXN_CONFLICT if another writer has appended, whose records would pass
            for rows.
    """
    start, end = max(end_before, log.log_start_offset), log.log_end_offset
    if start >= end:
        return
    config = log.config
    # If the log rewrites batches, their CRCs differ from those of the file.
    is_kept = config.compression_type == "producer" and not config.is_log_append_time
    own: set[tuple[int, int, int]] = set()
    for data in _pieces(Path(file["path"]), file["size_bytes"]):
        columns, _end = _scan(data)
        rows = len(columns)
        sums = columns.crc[:rows] if is_kept else np.zeros(rows, np.int64)
        own.update(
            zip(
                columns.base_offset[:rows].tolist(),
                columns.last_offset[:rows].tolist(),
                sums.tolist(),
                strict=True,
            )
        )
    for view in log.batches(start):
        header = view.header
        if (header.base_offset, header.last_offset, header.crc if is_kept else 0) not in own:
            raise KafkaLogSparkError(
                ErrorCode.TXN_CONFLICT,
                f"{log.directory.name} has got records of another writer since the job began, at"
                f" {header.base_offset}: rows would be passed over; run another job for the rest",
                topic=file["topic"],
                partition=file["partition"],
                base_offset=header.base_offset,
            )


def _pieces(path: Path, size_bytes: int) -> Iterator[memoryview]:
    """Yield whole batches of a file, about _APPEND_BYTES at a time."""
    filesystem = PosixFileSystem()
    with storage_errors(path, doing="reading"):
        handle = filesystem.open(path)
        try:
            position = 0
            while position < size_bytes:
                data = memoryview(handle.pread(_APPEND_BYTES, position))
                end = _scan(data)[1]
                if not end:
                    raise OSError(f"{path}: no whole batch at {position}")
                yield data[:end]
                position += end
        finally:
            handle.close()


def _scan(data: memoryview) -> tuple[BatchColumns, int]:
    columns = BatchColumns(1 << 16)
    return columns, scan_batches(data, columns=columns, check_crc=False).position


def _batches_from(data: memoryview, end_offset: int) -> memoryview:
    """Return the batches that begin at an offset or above it."""
    columns, end = _scan(data)
    bases = columns.base_offset[: len(columns)]
    first = int(np.searchsorted(bases, end_offset))
    return data[int(columns.position[first]) if first < len(columns) else end : end]
