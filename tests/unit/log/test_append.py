"""Appending records: what is stored, what the answer says, what is refused and leaves no trace."""

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
    """Return what of a record does not depend on where it is."""
    return record.key, record.value, tuple(record.headers)


def test_append_returns_where_the_records_are(directory: Path) -> None:
    """Offsets, counts, bytes and the largest timestamp; the next append goes on behind."""
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


def test_append_of_nothing_is_a_success_without_effect(directory: Path) -> None:
    """No bytes, no offset, no timestamp; also where durability was asked for."""
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


def test_append_takes_any_iterable(directory: Path) -> None:
    """A generator, a tuple, another log's records: read once, in order."""

    def generate() -> Iterator[Record]:
        yield from numbered(0, 3)

    with manual_log(directory) as log, manual_log(directory.with_name("copy-0")) as copy:
        log.append(generate())
        log.append(tuple(numbered(3, 2)))
        copy.append(log.records())
        assert list(log.records()) == list(copy.records())


def test_append_of_a_generator_that_fails_leaves_no_trace(directory: Path) -> None:
    """All or none: the error passes, the log is as before and goes on."""

    def generate() -> Iterator[Record]:
        yield from numbered(0, 1000)
        raise RuntimeError("no more")

    with manual_log(directory, batch_bytes=100) as log:
        with pytest.raises(RuntimeError, match="no more"):
            log.append(generate())
        assert 0 == log.log_end_offset
        assert 0 == log.append(numbered(0, 1)).first_offset
        assert 1 == len(list(log.records()))


def test_append_of_a_single_record_is_refused(directory: Path) -> None:
    """Surely a slip: the message shows the right call."""
    with manual_log(directory) as log, pytest.raises(TypeError, match=r"append\(\[record\]\)"):
        log.append(Record(value=b"x"))  # type: ignore[arg-type]


def test_append_of_something_else_is_refused_without_trace(directory: Path) -> None:
    """A list with one thing that is no record is not appended in part."""
    wrong: Any = [Record(value=b"a"), b"b"]
    with manual_log(directory) as log:
        with pytest.raises(TypeError):
            log.append(wrong)
        assert 0 == log.log_end_offset


def test_append_ignores_the_offsets_of_records(directory: Path) -> None:
    """Records that were read somewhere carry that place's offsets."""
    with manual_log(directory) as log:
        log.append([Record(value=b"a", offset=77), Record(value=b"b", offset=5)])
        assert [0, 1] == [record.offset for record in log.records()]


@pytest.mark.parametrize(
    ("own_ms", "given_ms", "expected_ms"),
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
def test_append_timestamps_come_from_record_call_or_clock(
    directory: Path, own_ms: int, given_ms: int | None, expected_ms: int
) -> None:
    """A record's own counts; else the call's; else the clock's. -1 leaves it without."""
    with manual_log(directory) as log:
        info = log.append([Record(value=b"x", timestamp_ms=own_ms)], timestamp_ms=given_ms)
        assert expected_ms == info.max_timestamp_ms
        record = next(log.records())
        assert (expected_ms, 0) == (record.timestamp_ms, record.timestamp_type)


def test_append_with_log_append_time_replaces_every_timestamp(directory: Path) -> None:
    """Whatever the records say: all carry the time of their append, and say what it is."""
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
def test_append_in_every_codec_reads_back(directory: Path, codec: str) -> None:
    """Keys, values and headers, null, empty and large; the batch says its codec."""
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
def test_append_compression_level_is_used(
    tmp_path: Path, codec: str, fast: int, thorough: int
) -> None:
    """The thorough level makes fewer bytes of the same records."""
    records = [Record(value=b"%d" % (number * number)) for number in range(2000)]
    sizes = []
    for level in (fast, thorough):
        settings: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": level}
        with manual_log(tmp_path / f"level-{abs(level)}", **settings) as log:
            sizes.append(log.append(records).size_bytes)
            assert 2000 == len(list(log.records()))
    assert sizes[1] < sizes[0]


def test_append_packs_batches_of_the_configured_size(directory: Path) -> None:
    """No batch above `kafkalog.batch.bytes` but one that holds a single large record."""
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
    """A batch of `max.message.bytes` is taken; one byte more is refused, and nothing of it kept."""
    with manual_log(directory, max_message_bytes=500) as log:
        log.append([sized_record(500)])
        before = golden.snapshot(directory)
        with pytest.raises(RecordTooLargeError, match=r"501 bytes.*max\.message\.bytes is 500"):
            log.append([sized_record(501)])
        assert before == golden.snapshot(directory)
        assert 1 == log.append([sized_record(100)]).first_offset


def test_append_with_one_record_too_large_keeps_none_of_the_others(directory: Path) -> None:
    """All or none, although the batches before it would have fitted."""
    with manual_log(directory, max_message_bytes=500, batch_bytes=200) as log:
        with pytest.raises(RecordTooLargeError):
            log.append([*numbered(0, 50), sized_record(600), *numbered(50, 50)])
        assert (0, 0) == (log.log_end_offset, log.segments()[0].size_bytes)


def test_append_compressed_may_hold_more_than_the_limit_uncompressed(directory: Path) -> None:
    """What counts is the batch as stored."""
    with manual_log(directory, max_message_bytes=1000, compression_type="zstd") as log:
        info = log.append([Record(value=bytes(100_000))])
        assert info.size_bytes < 1000
        assert bytes(100_000) == next(log.records()).value


def test_append_of_a_huge_record_reads_back(directory: Path) -> None:
    """Larger than every window that readers use, between small ones."""
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
def test_append_of_an_impossible_timestamp_is_refused(directory: Path, timestamp_ms: int) -> None:
    """Below -1 there is no time."""
    with manual_log(directory) as log:
        with pytest.raises((InvalidRecordError, ValueError)):
            log.append([Record(value=b"x", timestamp_ms=timestamp_ms)])
        assert 0 == log.log_end_offset


def test_append_with_an_unknown_wait_is_refused(directory: Path) -> None:
    """A misspelt wait must not silently mean the weaker one."""
    with manual_log(directory) as log:
        with pytest.raises(ValueError, match="durable"):
            log.append([Record(value=b"x")], wait="durabel")  # type: ignore[arg-type]
        assert 0 == log.log_end_offset


def test_append_after_close_is_refused(directory: Path) -> None:
    """With the error for that, not one of the disk."""
    with manual_log(directory) as log:
        pass
    with pytest.raises(LogClosedError):
        log.append([])


def test_every_change_of_a_read_only_log_is_refused(directory: Path) -> None:
    """And none of them has an effect."""
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


def test_append_stamps_the_latest_leader_epoch(directory: Path) -> None:
    """As a broker's follower would see it: epochs never fall."""
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 1\n")
    with manual_log(directory) as log:
        log.append(numbered(0, 1))
        assert 7 == next(log.batches()).header.partition_leader_epoch
