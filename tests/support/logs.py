"""Helpers of tests of a log: a log on manual time, records of a size, its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog import FileSystem, KafkaLogError, Log, LogConfig, Record, open_log
from kafkalog.files.names import SegmentFiles
from tests.support import reference
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler

__all__ = [
    "BATCH_OVERHEAD",
    "SMALL_INDEX_BYTES",
    "append_sized",
    "expected_indexes",
    "index_files",
    "manual_log",
    "numbered",
    "records_until_error",
    "sized_record",
]

# Bytes of a batch of one record around a value of at most 63 bytes without key: header of 61, then
# length, attributes, timestamp and offset delta, null key, value length, number of headers.
BATCH_OVERHEAD = 61 + 7

SMALL_INDEX_BYTES = 64 * 1024


def manual_log(
    directory: Path,
    *,
    clock: ManualClock | None = None,
    scheduler: ManualScheduler | None = None,
    filesystem: FileSystem | None = None,
    read_only: bool = False,
    config: LogConfig | None = None,
    **settings: Any,
) -> Log:
    """
    Open a log with a manual clock whose background work waits for a test to run it.

    Settings are those of `config`, or single ones, with any timestamp allowed and small indexes: a
    simulated disk writes every byte of the ten mebibytes that one is given by default.
    """
    clock = ManualClock() if clock is None else clock
    if config is None:
        settings.setdefault("message_timestamp_after_max_ms", 2**63 - 1)
        settings.setdefault("segment_index_bytes", SMALL_INDEX_BYTES)
        config = LogConfig(**settings)
    elif settings:
        raise TypeError("settings must be in the config or arguments, got both")
    return open_log(
        directory,
        config=config,
        clock=clock,
        scheduler=ManualScheduler(clock) if scheduler is None else scheduler,
        filesystem=filesystem,
        read_only=read_only,
    )


def numbered(first: int, count: int, *, timestamp_ms: int = START_MS) -> list[Record]:
    """Return records with their number in key and value; timestamps rise by one."""
    return [
        Record(key=b"k%d" % number, value=b"v%d" % number, timestamp_ms=timestamp_ms + number)
        for number in range(first, first + count)
    ]


def records_until_error(log: Log) -> tuple[list[Record], KafkaLogError | None]:
    """Read with the default of raising; return what came before the error, and the error."""
    found: list[Record] = []
    try:
        found.extend(log.records())
    except KafkaLogError as error:
        return found, error
    return found, None


def sized_record(batch_bytes: int, timestamp_ms: int = START_MS) -> Record:
    """Return the record that makes, alone and uncompressed, a batch of `batch_bytes`."""
    for overhead in range(BATCH_OVERHEAD, BATCH_OVERHEAD + 10):
        size = batch_bytes - overhead
        if size >= 0 and _batch_bytes(size) == batch_bytes:
            return Record(value=bytes(size), timestamp_ms=timestamp_ms)
    raise ValueError(f"no record makes a batch of {batch_bytes} bytes")


def _batch_bytes(value_size: int) -> int:
    body = 1 + 1 + 1 + 1 + len(reference.encode_varint(reference.zigzag(value_size))) + value_size
    body += 1
    return 61 + len(reference.encode_varint(reference.zigzag(body))) + body


def append_sized(log: Log, batch_bytes: int, timestamp_ms: int = START_MS) -> int:
    """Append one batch of exactly `batch_bytes`; return its offset."""
    info = log.append([sized_record(batch_bytes, timestamp_ms)])
    assert batch_bytes == info.size_bytes
    return info.first_offset


def index_files(directory: Path, base_offset: int) -> tuple[bytes, bytes]:
    """Return the bytes of a segment's offset index and time index file."""
    files = SegmentFiles(directory, base_offset)
    return files.offset_index.read_bytes(), files.time_index.read_bytes()


def expected_indexes(directory: Path, base_offset: int, interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the index files that the reference selects for the batches of a segment."""
    data = SegmentFiles(directory, base_offset).log.read_bytes()
    batches = reference.scan_batches(data).batches
    return reference.select_entries(batches, base_offset, interval_bytes)
