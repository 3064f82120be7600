"""Logs in an old message format: appends, reads, reopening and rolls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import (
    AppendOrigin,
    BytesColumn,
    ConfigError,
    InvalidTimestampError,
    Log,
    LogConfig,
    OffsetsOutOfOrderError,
    Record,
    RecordTooLargeError,
    RecordValidationError,
    UnsupportedForMessageFormatError,
)
from kafkalog.records.batch_view import BatchView
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import BatchSpec, batch
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.reference_messages import Message, encode_set

RELEASES = {0: "0.9.0", 1: "0.10.2"}
MAGICS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", ["producer", "gzip", "snappy", "lz4"])


def old_log(directory: Path, magic: int, **settings: Any) -> Log:
    """Open a log in the format of a magic."""
    return manual_log(directory, message_format_version=RELEASES[magic], **settings)


def rows(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return offset, timestamp, key and value of every record."""
    return [(each.offset, each.timestamp_ms, each.key, each.value) for each in log.records()]


def entries(log: Log) -> list[BatchView]:
    """Return the outer entries."""
    return list(log.batches(0))


def long_records(first: int, count: int) -> list[Record]:
    """Return records that compress well."""
    return [
        Record(key=b"k%d" % number, value=b"value " * 30, timestamp_ms=START_MS + number)
        for number in range(first, first + count)
    ]


@CODECS
@MAGICS
def test_append_every_input_to_old_log_reads_back(directory: Path, magic: int, codec: str) -> None:
    """Records, lists, Arrow columns and encoded batches, at rising offsets; reopened as well."""
    records = long_records(0, 20)
    keys, values = [each.key for each in records], [each.value for each in records]
    times = np.array([each.timestamp_ms for each in records], dtype=np.int64)
    ends = np.cumsum([0, *(len(key or b"") for key in keys)], dtype=np.int32)
    column = BytesColumn(b"".join(key or b"" for key in keys), ends)
    sent = BatchSpec(timestamps=tuple(times.tolist()), keys=tuple(keys))
    old = [
        Message(number, magic, 0, START_MS if magic else -1, b"old", b"value " * 30)
        for number in range(4)
    ]
    with old_log(directory, magic, compression_type=codec, batch_bytes=1000) as log:
        infos = [
            log.append(records),
            log.append_columns(keys, values, timestamps=times),
            log.append_columns(column, None, timestamps=times),
            log.append_batches(batch(sent)),
            log.append_batches(encode_set(old, codec=codecs.GZIP), origin=AppendOrigin.CLIENT),
            log.append_batches(encode_set(old), origin=AppendOrigin.CLIENT),
        ]
        assert [0, 20, 40, 60, 80, 84] == [info.first_offset for info in infos]
        assert [19, 39, 59, 79, 83, 87] == [info.last_offset for info in infos]
        largest = START_MS + 19 if magic else -1
        assert [largest] * 4 == [info.max_timestamp_ms for info in infos[:4]]
        content = rows(log)
        expected_times = [START_MS + number if magic else -1 for number in range(20)]
        assert expected_times == [time for _, time, _, _ in content[:20]]
        for start, value in ((0, values), (20, values), (40, [None] * 20)):
            assert list(zip(keys, value, strict=True)) == [row[2:] for row in content[start:][:20]]
        assert list(range(88)) == [offset for offset, _, _, _ in content]
        assert {magic} == {each.header.magic for each in entries(log)}
        assert (codec != "producer") == entries(log)[0].header.is_wrapper
        assert [85, 86, 87] == [each.offset for each in log.records(85)]
    with old_log(directory, magic) as log:
        assert content == rows(log)
        assert 88 == log.append(numbered(0, 1)).first_offset


@CODECS
@MAGICS
def test_append_log_append_time_to_old_log_is_stored_from_v1(
    directory: Path, magic: int, codec: str
) -> None:
    """Every v1 message has the time, plain or in a wrapper; v0 and its index have none."""
    settings = {"message_timestamp_type": "LogAppendTime", "compression_type": codec}
    with old_log(directory, magic, **settings) as log:
        info = log.append(long_records(5, 10))
        expected = START_MS if magic else -1
        last = (9 if codec != "producer" else 0) if magic else -1
        assert (START_MS, expected, last) == (
            info.log_append_time_ms,
            info.max_timestamp_ms,
            info.shallow_offset_of_max_timestamp,
        )
        assert {expected} == {time for _, time, _, _ in rows(log)}
        found = log.offset_for_timestamp(START_MS)
        assert (0 if magic else None) == (found and found.offset)


@MAGICS
def test_append_old_format_rolls_and_recovers(directory: Path, magic: int) -> None:
    """Segments begin at the first offset inside a wrapper; an unclean stop loses nothing."""
    settings = {"segment_bytes": 700, "compression_type": "gzip", "batch_bytes": 2000}
    with old_log(directory, magic, **settings) as log:
        for number in range(20):
            log.append(long_records(number * 10, 10))
        bases = [segment.base_offset for segment in log.segments()]
        assert len(bases) > 3
        assert all(base % 10 == 0 for base in bases)
        content = rows(log)
        assert [number * 10 for number in range(20)] == [
            next(iter(log.records(number * 10))).offset for number in range(20)
        ]
    (directory / ".." / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for index in directory.glob("*index"):
        index.unlink()
    with old_log(directory, magic) as log:
        assert content == rows(log)
        if magic:
            found = log.offset_for_timestamp(START_MS + 57)
            assert found is not None
            assert 57 == found.offset


@MAGICS
def test_append_unsupported_by_old_format_appends_nothing(directory: Path, magic: int) -> None:
    """Headers are refused, not dropped. Invalid records are listed as in a v2 log."""
    named = Record(key=b"k", headers=[("name", b"text")])
    limits = {"cleanup_policy": ("compact",), "batch_bytes": 150}
    with old_log(directory, magic, **limits) as log:
        with pytest.raises(UnsupportedForMessageFormatError, match="1 headers: messages of magic"):
            log.append([*numbered(0, 3), named])
        records = numbered(0, 30)
        records[4] = records[27] = Record(value=b"no key", timestamp_ms=START_MS)
        with pytest.raises(RecordValidationError) as caught:
            log.append(records)
        assert [4, 27] == [each.index for each in caught.value.record_errors]
        assert (0, []) == (log.log_end_offset, rows(log))
    bounds = {"message_timestamp_after_max_ms": 5}
    with old_log(directory.with_name("bounds-0"), magic, **bounds) as log:
        if magic:
            with pytest.raises(InvalidTimestampError) as fault:
                log.append(numbered(0, 9))
            assert [6, 7, 8] == [each.index for each in fault.value.record_errors]
        else:
            assert 8 == log.append(numbered(0, 9)).last_offset


@MAGICS
def test_append_old_message_over_the_limit_is_refused(directory: Path, magic: int) -> None:
    """Each message is a batch: the limit applies to one message, not to their sum."""
    with old_log(directory, magic, max_message_bytes=100) as log:
        assert 19 == log.append(numbered(0, 20)).last_offset
        with pytest.raises(RecordTooLargeError, match=r"most 100 bytes \(max\.message\.bytes\)"):
            log.append([Record(value=b"x" * 100)])
        assert 20 == log.log_end_offset


@MAGICS
def test_append_after_format_change_writes_the_new_format(directory: Path, magic: int) -> None:
    """As after a raised `message.format.version`: old entries stay, new ones have the new magic."""
    with old_log(directory, magic, compression_type="lz4") as log:
        log.append(long_records(0, 10))
    with manual_log(directory) as log:
        log.append(long_records(10, 5))
    with old_log(directory, 1 - magic) as log:
        log.append(long_records(15, 2))
        assert [magic, 2, 1 - magic, 1 - magic] == [each.header.magic for each in entries(log)]
        assert [b"k%d" % number for number in range(17)] == [key for _, _, key, _ in rows(log)]
        assert list(range(17)) == [offset for offset, _, _, _ in rows(log)]


def test_replicate_old_entries_keeps_bytes_and_offsets(directory: Path) -> None:
    """In a log of any format. Offsets must rise, also those inside wrappers."""
    inside = [Message(10 + number, 0, 0, -1, b"k%d" % number, b"v" * 50) for number in range(4)]
    plain = [Message(20 + number, 1, 0, START_MS + number, b"p", b"v") for number in range(2)]
    data = encode_set(inside, codec=codecs.GZIP) + encode_set(plain) + batch(base_offset=30)
    with manual_log(directory) as log:
        info = log.append_batches(data, assign_offsets=False)
        assert (10, 32, 9, 4) == (
            info.first_offset,
            info.last_offset,
            info.record_count,
            info.batch_count,
        )
        assert [10, 11, 12, 13, 20, 21, 30, 31, 32] == [offset for offset, _, _, _ in rows(log)]
        assert data == b"".join(bytes(each.data) for each in entries(log))
        again = encode_set([Message(33, 1, 0, START_MS, b"k", b"v")])
        reaching_back = encode_set(
            [Message(32, 1, 0, START_MS), Message(33, 1, 0, START_MS)], codec=codecs.GZIP
        )
        with pytest.raises(OffsetsOutOfOrderError):
            log.append_batches(reaching_back, assign_offsets=False)
        assert 33 == log.append_batches(again, assign_offsets=False).last_offset


def test_config_old_format_with_zstd_is_refused() -> None:
    """zstd came with format v2."""
    with pytest.raises(ConfigError, match=r"zstd: came with format v2"):
        LogConfig(message_format_version="0.10.0", compression_type="zstd")
