"""Ingest of a file of batches as the last segment of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import Log, LogConfig, Record
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogStorageError,
    ReadOnlyLogError,
    UnsupportedForMessageFormatError,
)
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION
from kafkalog.log.log import partition_of
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.packing import pack_records
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded

CONFIG = LogConfig(batch_bytes=300, index_interval_bytes=200, segment_index_bytes=4096)


def staged(path: Path, count: int = 100, config: LogConfig = CONFIG, tag: str = "v") -> Path:
    """Write a file of batches, with offsets from 0 on, and return it."""
    records = [
        Record(key=b"k", value=f"{tag}{row}".encode(), timestamp_ms=START_MS + row)
        for row in range(count)
    ]
    path.write_bytes(pack_records(records, AppendRules.of(config), START_MS).data)
    return path


def opened(directory: Path, config: LogConfig = CONFIG, *, read_only: bool = False) -> Log:
    """Open a log on manual time."""
    clock = ManualClock()
    return kafkalog.open_log(
        directory, config=config, clock=clock, scheduler=ManualScheduler(clock), read_only=read_only
    )


def values(log: Log) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record."""
    return [(record.offset, record.value) for record in log.records()]


@pytest.mark.parametrize("before", [0, 1])
def test_ingest_file_becomes_the_last_segment(tmp_path: Path, before: int) -> None:
    """It follows the log's records and replaces an empty active segment; appends continue."""
    with opened(tmp_path / "orders-0") as log:
        expected: list[tuple[int, bytes | None]] = []
        for number in range(before):
            log.append([Record(value=b"first")])
            expected.append((number, b"first"))
        with opened(tmp_path / "orders-0", read_only=True) as follower:
            assert before == follower.log_end_offset
            path = staged(tmp_path / "staged")
            size = path.stat().st_size
            info = partition_of(log).appender.ingest(path)
            expected += [(before + row, b"v%d" % row) for row in range(100)]
            log.append([Record(value=b"last")])
            expected.append((before + 100, b"last"))
            assert expected == values(follower)
        assert not path.exists()
        assert (before, before + 99, 100) == (
            info.first_offset, info.last_offset, info.record_count,
        )  # fmt: skip
        assert (size, START_MS + 99) == (info.size_bytes, info.max_timestamp_ms)
        assert expected == values(log)
    with opened(tmp_path / "orders-0") as log:
        assert log.recovery_report.clean
        assert expected == values(log)


def test_ingested_file_is_found_by_offset_and_time(tmp_path: Path) -> None:
    """Its indexes are those of a segment that was written by appends."""
    with opened(tmp_path / "orders-0") as log:
        log.append([Record(value=b"first", timestamp_ms=START_MS - 5)])
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))
        for row in (0, 37, 99):
            found = log.offset_for_timestamp(START_MS + row)
            assert found is not None
            assert (row + 1, START_MS + row) == (found.offset, found.timestamp_ms)
            assert b"v%d" % row == next(iter(log.records(row + 1))).value


def test_ingest_assigns_offsets_again_after_a_partial_assignment(tmp_path: Path) -> None:
    """A crash between two batches leaves offsets that contradict each other; all are ignored."""
    path = staged(tmp_path / "staged")
    content = bytearray(path.read_bytes())
    content[0:8] = (2**40).to_bytes(8, "big")
    path.write_bytes(content)
    with opened(tmp_path / "orders-0") as log:
        partition_of(log).appender.ingest(path)
        assert [(row, b"v%d" % row) for row in range(100)] == values(log)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_ingest_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    """Every CRC is checked, to the last byte; the file and the log stay unchanged."""
    path = staged(tmp_path / "staged")
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-1] ^= 1
    kept = {"flipped": len(content), "cut": len(content) - 1, "empty": 0}[damage]
    path.write_bytes(content[:kept])
    with opened(tmp_path / "orders-0") as log, pytest.raises(CorruptRecordError):
        partition_of(log).appender.ingest(path)
        assert path.exists()
        assert 0 == log.log_end_offset
        log.append([Record(value=b"goes on")])


@pytest.mark.parametrize("damage", ["magic", "length", "cut", "empty"])
def test_ingest_without_crc_check_refuses_wrong_headers(tmp_path: Path, damage: str) -> None:
    """The headers must lead to the last byte of the file."""
    path = staged(tmp_path / "staged")
    content = bytearray(path.read_bytes())
    if damage == "magic":
        content[MAGIC_POSITION] = 1
    elif damage == "length":
        content[LOG_OVERHEAD - 1] += 1
    kept = {"cut": len(content) - 1, "empty": 0}.get(damage, len(content))
    path.write_bytes(content[:kept])
    refused = UnsupportedForMessageFormatError if damage == "magic" else CorruptRecordError
    with opened(tmp_path / "orders-0") as log:
        with pytest.raises(refused):
            partition_of(log).appender.ingest(path, check_crc=False)
        assert path.exists()
        assert 0 == log.log_end_offset


def test_ingest_without_crc_check_accepts_damaged_records(tmp_path: Path) -> None:
    """Only the headers are read; a later reader gets the error."""
    path = staged(tmp_path / "staged")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with opened(tmp_path / "orders-0") as log:
        partition_of(log).appender.ingest(path, check_crc=False)
        assert not path.exists()
        assert 100 == log.log_end_offset
        assert b"v0" == next(log.records()).value
        with pytest.raises(CorruptRecordError):
            values(log)


def test_ingest_file_above_segment_or_index_size_is_refused(tmp_path: Path) -> None:
    """The segment must fit `segment.bytes`, and its entries `segment.index.bytes`."""
    path = staged(tmp_path / "staged")
    for config in (LogConfig(segment_bytes=600), LogConfig(segment_index_bytes=24)):
        small = LogConfig(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=100,
        )
        with (
            opened(tmp_path / f"orders-{config.segment_bytes}", small) as log,
            pytest.raises(InvalidRecordError, match="segment"),
        ):
            partition_of(log).appender.ingest(path)


def test_ingest_file_of_a_producer_is_refused(tmp_path: Path) -> None:
    """Batches that need the state of their producer must be appended."""
    path = tmp_path / "staged"
    path.write_bytes(encoded([Produced(7, 0, 0, 3)]))
    with opened(tmp_path / "orders-0") as log, pytest.raises(InvalidRecordError, match="producer"):
        partition_of(log).appender.ingest(path)


def test_ingest_old_format_is_refused(tmp_path: Path) -> None:
    """Neither the batches nor the log may be in an old format."""
    old = LogConfig(message_format_version="0.10.0")
    with opened(tmp_path / "orders-0") as log, pytest.raises(UnsupportedForMessageFormatError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged", config=old))
    with opened(tmp_path / "orders-1", old) as log, pytest.raises(UnsupportedForMessageFormatError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))


def test_ingest_missing_file_or_read_only_log_is_refused(tmp_path: Path) -> None:
    """Without the file, and without the right to write."""
    with opened(tmp_path / "orders-0") as log, pytest.raises(LogStorageError):
        partition_of(log).appender.ingest(tmp_path / "staged")
    with opened(tmp_path / "orders-0", read_only=True) as log, pytest.raises(ReadOnlyLogError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))
