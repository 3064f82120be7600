"""A file of batches becomes the last segment of a log."""

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
    """Write a file of batches, as from offset 0 on, and return it."""
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
def test_append_file_becomes_the_last_segment(tmp_path: Path, before: int) -> None:
    """Its records follow those before, an empty active segment gives way, appends go on."""
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


def test_append_file_answers_look_ups_by_offset_and_time(tmp_path: Path) -> None:
    """Its indexes are those of a segment that was appended to."""
    with opened(tmp_path / "orders-0") as log:
        log.append([Record(value=b"first", timestamp_ms=START_MS - 5)])
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))
        for row in (0, 37, 99):
            found = log.offset_for_timestamp(START_MS + row)
            assert found is not None
            assert (row + 1, START_MS + row) == (found.offset, found.timestamp_ms)
            assert b"v%d" % row == next(iter(log.records(row + 1))).value


def test_append_file_stamps_anew_what_was_stamped_in_part(tmp_path: Path) -> None:
    """A crash between two stamps leaves offsets that contradict each other; none is believed."""
    path = staged(tmp_path / "staged")
    content = bytearray(path.read_bytes())
    content[0:8] = (2**40).to_bytes(8, "big")
    path.write_bytes(content)
    with opened(tmp_path / "orders-0") as log:
        partition_of(log).appender.ingest(path)
        assert [(row, b"v%d" % row) for row in range(100)] == values(log)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_append_file_with_damage_is_refused(tmp_path: Path, damage: str) -> None:
    """Every CRC is checked, to the last byte; the file and the log stay as they are."""
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
def test_append_file_by_headers_alone_refuses_what_they_contradict(
    tmp_path: Path, damage: str
) -> None:
    """Without CRCs the headers still have to lead to the last byte of the file."""
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


def test_append_file_by_headers_alone_leaves_the_rest_to_readers(tmp_path: Path) -> None:
    """What is in the batches is not read; who reads a damaged one later is told."""
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


def test_append_file_larger_than_a_segment_or_its_index_is_refused(tmp_path: Path) -> None:
    """A segment holds what its settings say."""
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


def test_append_file_of_a_producer_is_refused(tmp_path: Path) -> None:
    """What the log has to ask the state of producers about is appended, not taken over."""
    path = tmp_path / "staged"
    path.write_bytes(encoded([Produced(7, 0, 0, 3)]))
    with opened(tmp_path / "orders-0") as log, pytest.raises(InvalidRecordError, match="producer"):
        partition_of(log).appender.ingest(path)


def test_append_file_of_an_old_format_is_refused(tmp_path: Path) -> None:
    """Neither may the batches be old, nor the log."""
    old = LogConfig(message_format_version="0.10.0")
    with opened(tmp_path / "orders-0") as log, pytest.raises(UnsupportedForMessageFormatError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged", config=old))
    with opened(tmp_path / "orders-1", old) as log, pytest.raises(UnsupportedForMessageFormatError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))


def test_append_file_that_is_missing_or_read_only_is_refused(tmp_path: Path) -> None:
    """No file, or no right to write."""
    with opened(tmp_path / "orders-0") as log, pytest.raises(LogStorageError):
        partition_of(log).appender.ingest(tmp_path / "staged")
    with opened(tmp_path / "orders-0", read_only=True) as log, pytest.raises(ReadOnlyLogError):
        partition_of(log).appender.ingest(staged(tmp_path / "staged"))
