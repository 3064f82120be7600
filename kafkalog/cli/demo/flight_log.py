"""The main part of the demo: a year of flights is appended to a log and read back.

The appended records are kept as two columns (timestamps, checksums of key and value). The full read
is compared with them record by record, and every answer of a look-up with a search through all
timestamps.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkalog import Log, LogConfig, Record, open_log

__all__ = [
    "Appended",
    "DemoSegmentSummary",
    "LookUps",
    "ReadBack",
    "append_flights",
    "check_look_ups",
    "read_back",
    "segment_summaries",
]

RECORDS_PER_APPEND = 4096
# Small enough that a year of flights rolls several times, and by size alone: a segment of a week,
# the default, would make fifty of them.
CONFIG = LogConfig(
    compression_type="zstd",
    segment_bytes=4 * 1024 * 1024,
    segment_ms=10 * 366 * 24 * 3_600_000,
    retention_ms=-1,
)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Appended:
    """Result of the appends: count, duration in the log, and the columns to compare with."""

    count: int
    payload_bytes: int
    append_seconds: float
    durable_seconds: float
    timestamps: NDArray[np.int64]
    checksums: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Result of the full read: count of records, and count of records that differ."""

    count: int
    wrong: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LookUps:
    """Result of look-ups by offset or by time: count, and count that differ from a plain search."""

    count: int
    wrong: int
    seconds: float

    @property
    def microseconds_each(self) -> float:
        return self.seconds / max(self.count, 1) * 1e6


@dataclass(frozen=True, slots=True)
class DemoSegmentSummary:
    """One segment on disk: sizes of its files in bytes."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def checksum(record: Record) -> int:
    """Return a checksum over key and value; a null key is not an empty one."""
    return zlib.crc32(record.value or b"", zlib.crc32(record.key or b"", record.key is None))


def append_flights(log: Log, records: Iterator[Record], progress: Progress) -> Appended:
    """Append all records in runs, then wait for the disk; making the records is not counted."""
    timestamps: list[int] = []
    checksums: list[int] = []
    payload_bytes = 0
    append_seconds = 0.0
    while run := list(itertools.islice(records, RECORDS_PER_APPEND)):
        timestamps.extend(record.timestamp_ms for record in run)
        checksums.extend(map(checksum, run))
        payload_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in run)
        started = time.perf_counter()
        log.append(run)
        append_seconds += time.perf_counter() - started
        progress(len(run))
    started = time.perf_counter()
    log.flush()
    return Appended(
        count=len(timestamps),
        payload_bytes=payload_bytes,
        append_seconds=append_seconds,
        durable_seconds=time.perf_counter() - started,
        timestamps=np.array(timestamps, np.int64),
        checksums=np.array(checksums, np.uint32),
    )


def segment_summaries(log: Log) -> list[DemoSegmentSummary]:
    """Return the segments with the present sizes of their files."""

    def size(path: Path) -> int:
        return path.stat().st_size if path.exists() else 0

    return [
        DemoSegmentSummary(
            base_offset=segment.base_offset,
            log_bytes=size(segment.path),
            index_bytes=size(segment.path.with_suffix(".index")),
            time_index_bytes=size(segment.path.with_suffix(".timeindex")),
        )
        for segment in log.segments()
    ]


def read_back(log: Log, appended: Appended, progress: Progress) -> ReadBack:
    """Read the whole log; compare each record's offset, timestamp, key and value."""
    wrong = count = 0
    started = time.perf_counter()
    for record in log.records():
        same = (
            record.offset == count < appended.count
            and record.timestamp_ms == appended.timestamps[count]
            and checksum(record) == appended.checksums[count]
        )
        wrong += not same
        count += 1
        if count % RECORDS_PER_APPEND == 0:
            progress(RECORDS_PER_APPEND)
    progress(count % RECORDS_PER_APPEND)
    return ReadBack(count, wrong + abs(appended.count - count), time.perf_counter() - started)


def check_look_ups(log: Log, appended: Appended, count: int) -> tuple[LookUps, LookUps]:
    """Look up `count` offsets and `count` times, spread over the log, and check every answer."""
    offsets = np.linspace(0, appended.count - 1, count).astype(np.int64).tolist()
    wrong = 0
    started = time.perf_counter()
    for offset in offsets:
        record = next(log.records(offset, offset + 1))
        wrong += record.offset != offset or checksum(record) != appended.checksums[offset]
    by_offset = LookUps(count, wrong, time.perf_counter() - started)

    first, last = int(appended.timestamps.min()), int(appended.timestamps.max())
    times = np.linspace(first, last + 1, count).astype(np.int64).tolist()
    started = time.perf_counter()
    answers = [log.offset_for_timestamp(timestamp_ms) for timestamp_ms in times]
    seconds = time.perf_counter() - started
    wrong = 0
    for timestamp_ms, answer in zip(times, answers, strict=True):
        late = appended.timestamps >= timestamp_ms
        expected = int(late.argmax()) if late.any() else None
        wrong += expected != (None if answer is None else answer.offset)
    return by_offset, LookUps(count, wrong, seconds)


def open_flight_log(directory: Path) -> Log:
    """Open the demo's log for appending."""
    return open_log(directory, config=CONFIG)
