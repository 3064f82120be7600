"""Appends of records: stored bytes, the returned info, and refusals that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    AppendInfo,
    InvalidRecordError,
    LogClosedError,
    ReadOnlyLogError,
    Record,
    RecordTooLargeError,
)
from kafkalog.log.log import Wait
from tests.support import golden
from tests.support.logs import manual_log, numbered, sized_record
from tests.support.manual_time import START_MS, ManualClock

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def plain(
    record: Record,
) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    """Return the fields of a record that do not depend on its place in the log."""
    return record.key, record.value, tuple(record.headers)


def test_append_returns_offsets_counts_and_timestamp(directory: Path) -> None:
    """Offsets, counts, bytes and the largest timestamp; the next append begins after them."""
    with manual_log(directory) as log:
        info = log.append(
            [
                Record(value=b"a", timestamp_ms=START_MS + 5),
                Record(value=b"b", timestamp_ms=START_MS + 9),
                Record(value=b"c", timestamp_ms=START_MS),
            ]
        )
        assert info == AppendInfo(
            first_offset=0,
            last_offset=2,
            record_count=3,
            batch_count=1,
            size_bytes=log.segments()[0].size_bytes,
            log_append_time_ms=None,
            max_timestamp_ms=START_MS + 9,
            shallow_offset_of_max_timestamp=2,
        )
        assert 3 == log.append([Record(value=b"d")]).first_offset
        assert 4 == log.log_end_offset


def test_append_empty_list_succeeds_and_changes_nothing(directory: Path) -> None:
    """No bytes, no offset, no timestamp, also with wait="durable"."""
    with manual_log(directory) as log:
        log.append(numbered(0, 2))
        before = golden.snapshot(directory)
        waits: tuple[Wait, ...] = ("written", "durable")
        for wait in waits:
            info = log.append([], wait=wait)
            assert (2, 1, 0, 0, 0, -1) == (
                info.first_offset,
                info.last_offset,
                info.record_count,
                info.batch_count,
                info.size_bytes,
                info.max_timestamp_ms,
            )
        assert 2 == log.log_end_offset
        assert before == golden.snapshot(directory)


def test_append_any_iterable_is_read_once_in_order(directory: Path) -> None:
    """A generator, a tuple and the records of another log."""

    def generate() -> Iterator[Record]:
        yield from numbered(0, 3)

    with manual_log(directory) as log, manual_log(directory.with_name("copy-0")) as copy:
        log.append(generate())
        log.append(tuple(numbered(3, 2)))
        copy.append(log.records())
        assert list(log.records()) == list(copy.records())


def test_append_generator_raises_appends_nothing(directory: Path) -> None:
    """The caller gets the generator's error, and the next append begins at offset 0."""

    def generate() -> Iterator[Record]:
        yield from numbered(0, 1000)
        raise RuntimeError("no more")

    with manual_log(directory, batch_bytes=100) as log:
        with pytest.raises(RuntimeError, match="no more"):
            log.append(generate())
        assert 0 == log.log_end_offset
        assert 0 == log.append(numbered(0, 1)).first_offset
        assert 1 == len(list(log.records()))


def test_append_single_record_raises_type_error(directory: Path) -> None:
    """The error shows the right call, `append([record])`."""
    with manual_log(directory) as log, pytest.raises(TypeError, match=r"append\(\[record\]\)"):
        log.append(Record(value=b"x"))  # type: ignore[arg-type]


def test_append_list_with_a_wrong_item_appends_nothing(directory: Path) -> None:
    """The record before the wrong item is not appended either."""
    wrong: Any = [Record(value=b"a"), b"b"]
    with manual_log(directory) as log:
        with pytest.raises(TypeError):
            log.append(wrong)
        assert 0 == log.log_end_offset


def test_append_ignores_offsets_of_records(directory: Path) -> None:
    """Records that were read from another log have the offsets of that log."""
    with manual_log(directory) as log:
        log.append([Record(value=b"a", offset=77), Record(value=b"b", offset=5)])
        assert [0, 1] == [record.offset for record in log.records()]


@pytest.mark.parametrize(
    ("own_ms", "call_ms", "expected_ms"),
    [
        (-1, None, START_MS),
        (-1, -1, -1),
        (-1, 12345, 12345),
        (99, None, 99),
        (99, -1, 99),
        (99, 12345, 99),
        (0, None, 0),
    ],
)
def test_append_timestamp_is_of_record_else_call_else_clock(
    directory: Path, own_ms: int, call_ms: int | None, expected_ms: int
) -> None:
    """The record's timestamp counts first. A call with -1 writes records without a timestamp."""
    with manual_log(directory) as log:
        info = log.append([Record(value=b"x", timestamp_ms=own_ms)], timestamp_ms=call_ms)
        assert expected_ms == info.max_timestamp_ms
        record = next(log.records())
        assert (expected_ms, 0) == (record.timestamp_ms, record.timestamp_type)


def test_append_log_append_time_replaces_all_timestamps(directory: Path) -> None:
    """All records have the time of the append and the timestamp type LogAppendTime."""
    clock = ManualClock()
    with manual_log(directory, clock=clock, message_timestamp_type="LogAppendTime") as log:
        clock.advance(1234)
        info = log.append([Record(value=b"a", timestamp_ms=1), Record(value=b"b")])
        assert (START_MS + 1234, START_MS + 1234) == (
            info.log_append_time_ms,
            info.max_timestamp_ms,
        )
        assert [(START_MS + 1234, 1)] * 2 == [
            (record.timestamp_ms, record.timestamp_type) for record in log.records()
        ]
        found = log.offset_for_timestamp(START_MS + 1234)
        assert found is not None
        assert (START_MS + 1234, 0) == (found.timestamp_ms, found.offset)


@pytest.mark.parametrize("codec", CODECS)
def test_append_any_codec_reads_back(directory: Path, codec: str) -> None:
    """Keys, values and headers, null, empty and large; the batch header names the codec."""
    records = [
        Record(),
        Record(key=b"", value=b""),
        Record(key=b"k", value=bytes(100_000)),
        Record(value=b"h", headers=[("a", b"1"), ("a", None), ("", b""), ("\u00e4", b"\xff")]),
        *numbered(0, 500),
    ]
    with manual_log(directory, compression_type=codec, batch_bytes=1 << 20) as log:
        log.append(records)
        batches = list(log.batches())
        assert [CODECS.index(codec)] == [batch.header.codec for batch in batches]
    with manual_log(directory, read_only=True) as log:
        assert [plain(record) for record in records] == [plain(r) for r in log.records()]


@pytest.mark.parametrize(
    ("codec", "fast", "thorough"),
    [("gzip", 1, 9), ("zstd", -50, 19), ("lz4", 9, 16)],
)
def test_append_higher_compression_level_writes_fewer_bytes(
    tmp_path: Path, codec: str, fast: int, thorough: int
) -> None:
    """The same records are written with a fast and a thorough level."""
    records = [Record(value=b"%d" % (number * number)) for number in range(2000)]
    sizes = []
    for level in (fast, thorough):
        settings: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": level}
        with manual_log(tmp_path / f"level-{abs(level)}", **settings) as log:
            sizes.append(log.append(records).size_bytes)
            assert 2000 == len(list(log.records()))
    assert sizes[1] < sizes[0]


def test_append_packs_batches_of_the_configured_size(directory: Path) -> None:
    """Only a batch with a single large record exceeds `kafkalog.batch.bytes`."""
    records = [*numbered(0, 100), Record(value=bytes(5000)), *numbered(100, 100)]
    with manual_log(directory, batch_bytes=1000) as log:
        info = log.append(records)
        headers = [batch.header for batch in log.batches()]
        assert info.batch_count == len(headers)
        large = [header for header in headers if header.size_bytes > 1000]
        assert [1] == [header.record_count for header in large]
        assert min(h.size_bytes for h in headers[:-1] if h.next_offset not in (100, 201)) > 900
        assert [plain(record) for record in records] == [plain(r) for r in log.records()]


def test_append_batch_size_limit_is_exact(directory: Path) -> None:
    """A batch of `max.message.bytes` is appended; one with a byte more is refused and not kept."""
    with manual_log(directory, max_message_bytes=500) as log:
        log.append([sized_record(500)])
        before = golden.snapshot(directory)
        with pytest.raises(RecordTooLargeError, match=r"\(max\.message\.bytes\), got 501"):
            log.append([sized_record(501)])
        assert before == golden.snapshot(directory)
        assert 1 == log.append([sized_record(100)]).first_offset


def test_append_one_record_too_large_appends_nothing(directory: Path) -> None:
    """The batches before the large record would have fitted."""
    with manual_log(directory, max_message_bytes=500, batch_bytes=200) as log:
        with pytest.raises(RecordTooLargeError):
            log.append([*numbered(0, 50), sized_record(600), *numbered(50, 50)])
        assert (0, 0) == (log.log_end_offset, log.segments()[0].size_bytes)


def test_append_compressed_size_counts_for_the_limit(directory: Path) -> None:
    """100,000 bytes compress to less than `max.message.bytes` of 1,000, and are appended."""
    with manual_log(directory, max_message_bytes=1000, compression_type="zstd") as log:
        info = log.append([Record(value=bytes(100_000))])
        assert info.size_bytes < 1000
        assert bytes(100_000) == next(log.records()).value


def test_append_huge_record_reads_back(directory: Path) -> None:
    """The record exceeds every read window and has small records around it."""
    value = bytes(range(256)) * 50_000
    with manual_log(directory, max_message_bytes=20_000_000) as log:
        log.append([Record(value=b"before")])
        log.append([Record(value=value)])
        log.append([Record(value=b"behind")])
        assert [b"before", value, b"behind"] == [record.value for record in log.records()]
        assert [value] == [record.value for record in log.records(1, 2)]
        assert value == next(log.read(1, max_bytes=1).records()).value
        assert b"behind" == next(log.read(2).records()).value


@pytest.mark.parametrize("timestamp_ms", [-2, -(2**63)])
def test_append_timestamp_below_minus_1_is_refused(directory: Path, timestamp_ms: int) -> None:
    """-1 is the only value without a time; lower timestamps are invalid."""
    with manual_log(directory) as log:
        with pytest.raises((InvalidRecordError, ValueError)):
            log.append([Record(value=b"x", timestamp_ms=timestamp_ms)])
        assert 0 == log.log_end_offset


def test_append_unknown_wait_raises_value_error(directory: Path) -> None:
    """A misspelt wait must not silently become the weaker one."""
    with manual_log(directory) as log:
        with pytest.raises(ValueError, match="durable"):
            log.append([Record(value=b"x")], wait="durabel")  # type: ignore[arg-type]
        assert 0 == log.log_end_offset


def test_append_after_close_raises_log_closed_error(directory: Path) -> None:
    """The error is not one of the disk."""
    with manual_log(directory) as log:
        pass
    with pytest.raises(LogClosedError):
        log.append([])


def test_read_only_log_refuses_every_change(directory: Path) -> None:
    """Each call raises ReadOnlyLogError, and the directory stays unchanged."""
    with manual_log(directory) as log:
        log.append(numbered(0, 3))
    with golden.unchanged(directory), manual_log(directory, read_only=True) as reader:
        for change in (
            lambda: reader.append([Record(value=b"x")]),
            lambda: reader.append_batches(b""),
            reader.roll,
            reader.flush,
            lambda: reader.truncate_to(1),
            lambda: reader.truncate_fully_and_start_at(1),
            lambda: reader.delete_records(1),
        ):
            with pytest.raises(ReadOnlyLogError):
                change()


def test_append_assigns_the_latest_leader_epoch(directory: Path) -> None:
    """The epoch comes from the checkpoint file, so that epochs never fall."""
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 1\n")
    with manual_log(directory) as log:
        log.append(numbered(0, 1))
        assert 7 == next(log.batches()).header.partition_leader_epoch
