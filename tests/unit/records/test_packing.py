"""Tests of packing of records: batch sizes, codecs, timestamps, limits, and offsets."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

import pytest

from kafkalog._core.batch import scan_batches
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.config import LogConfig
from kafkalog.errors import RecordTooLargeError
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec
from kafkalog.records.packing import pack_records

NOW_MS = 1_761_000_000_000


def packed(
    records: Iterable[Record], config: LogConfig, now_ms: int, timestamp_ms: int | None = None
) -> MemoryRecords:
    """Return the batches that a log with these settings makes of the records."""
    return pack_records(records, AppendRules.of(config), now_ms, timestamp_ms)


def views(run: MemoryRecords) -> list[BatchView]:
    """Return views of the batches of a run, each checked."""
    found, position = [], 0
    for facts in run.batches:
        view = BatchView(bytes(run.data[position : position + facts.size_bytes]))
        view.check()
        assert (facts.base_offset, facts.last_offset) == (view.base_offset, view.last_offset)
        assert facts.max_timestamp == view.header.max_timestamp
        found.append(view)
        position += facts.size_bytes
    assert len(run.data) == position
    return found


def records(count: int, size_bytes: int = 100) -> list[Record]:
    """Return records that all differ."""
    return [
        Record(
            key=str(number).encode(), value=bytes([number % 251]) * size_bytes, timestamp_ms=number
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_pack_records_every_codec_keeps_the_records(codec: str) -> None:
    """In batches of the configured size, the largest timestamp in each header."""
    config = LogConfig(compression_type=codec, batch_bytes=4000)
    source = records(100)
    run = packed(source, config, NOW_MS)
    info = assign_run_offsets(run, 500, 7)
    found = views(run)
    expected_codec = Codec.of_config(codec) or Codec.NONE
    assert {expected_codec} == {view.codec for view in found}
    assert {7} == {view.header.partition_leader_epoch for view in found}
    unpacked = [record for view in found for record in view.records()]
    assert [(each.key, each.value, each.timestamp_ms) for each in source] == [
        (each.key, each.value, each.timestamp_ms) for each in unpacked
    ]
    assert list(range(500, 600)) == [record.offset for record in unpacked]
    assert (500, 599, 100, len(found), len(run.data), None, 99) == (
        info.first_offset,
        info.last_offset,
        info.record_count,
        info.batch_count,
        info.size_bytes,
        info.log_append_time_ms,
        info.max_timestamp_ms,
    )
    assert (0, 600) == (scan_batches(run.data).status, scan_batches(run.data).next_offset)


def test_pack_records_batches_are_filled_to_the_limit() -> None:
    """A record above the limit has a separate batch."""
    config = LogConfig(batch_bytes=1000, compression_type="uncompressed")
    source = [*records(20), Record(value=bytes(5000), timestamp_ms=1), *records(3)]
    sizes = [facts.size_bytes for facts in packed(source, config, NOW_MS).batches]
    assert [5070] == [size for size in sizes if size > 1000]
    # Each record takes 108 to 110 bytes: one more would not fit into a closed batch.
    full = [size for size in sizes[:-1] if size <= 1000]
    last_before_the_big_one = sizes[sizes.index(5070) - 1]
    assert all(size > 1000 - 111 for size in full if size != last_before_the_big_one)


def test_pack_records_incompressible_batch_stays_uncompressed() -> None:
    """A codec that would only add bytes is not used, so that no limit is exceeded by it."""
    value = random.Random(3).randbytes(900)
    plain = packed([Record(value=value)], LogConfig(compression_type="uncompressed"), NOW_MS)
    config = LogConfig(compression_type="zstd", max_message_bytes=len(plain.data))
    run = packed([Record(value=value)], config, NOW_MS)
    assert [Codec.NONE] == [view.codec for view in views(run)]


@pytest.mark.parametrize(
    ("record_ms", "default_ms", "expected"),
    [(-1, None, NOW_MS), (-1, 5, 5), (-1, -1, -1), (77, None, 77), (77, 5, 77)],
)
def test_pack_records_default_timestamp_is_for_records_without_one(
    record_ms: int, default_ms: int | None, expected: int
) -> None:
    """The clock's time, the caller's, or -1."""
    run = packed([Record(timestamp_ms=record_ms)], LogConfig(), NOW_MS, default_ms)
    assert [expected] == [record.timestamp_ms for record in views(run)[0].records()]
    assert expected == assign_run_offsets(run, 0, 0).max_timestamp_ms


def test_pack_records_log_append_time_applies_to_every_record() -> None:
    """The header has it, the records keep their timestamps."""
    config = LogConfig(message_timestamp_type="LogAppendTime")
    run = packed(records(3), config, NOW_MS)
    found = views(run)[0].records()
    assert [(NOW_MS, 1)] * 3 == [(each.timestamp_ms, each.timestamp_type) for each in found]
    info = assign_run_offsets(run, 0, 0)
    assert (NOW_MS, NOW_MS) == (info.log_append_time_ms, info.max_timestamp_ms)


def test_pack_records_over_max_message_bytes_is_refused() -> None:
    """After compression: a batch that shrinks below the limit passes."""
    big = [Record(value=bytes(5000))]
    config = LogConfig(max_message_bytes=1000)
    with pytest.raises(RecordTooLargeError, match=r"most 1000 bytes \(max\.message\.bytes\)"):
        packed(big, config, NOW_MS)
    assert 1 == len(packed(big, config.replace(compression_type="zstd"), NOW_MS).batches)


def test_pack_records_single_record_is_refused() -> None:
    """Probably a mistake: the message has the correct form."""
    with pytest.raises(TypeError, match=r"append\(\[record\]\)"):
        packed(Record(value=b"x"), LogConfig(), NOW_MS)  # type: ignore[arg-type]


def test_pack_records_without_records_is_an_empty_run() -> None:
    """Of a generator too; the info has no offsets."""
    kinds: list[Iterable[Record]] = [[], iter(())]
    for nothing in kinds:
        info = assign_run_offsets(packed(nothing, LogConfig(), NOW_MS), 9, 0)
        assert (9, 8, 0, 0, -1) == (
            info.first_offset,
            info.last_offset,
            info.record_count,
            info.batch_count,
            info.max_timestamp_ms,
        )


def test_pack_records_from_several_threads_are_separate() -> None:
    """Each thread has its own builder, and a run is a copy of the builder's bytes."""
    failures: list[int] = []

    def work(seed: int) -> None:
        for _ in range(30):
            value = bytes([seed]) * 700
            first = packed([Record(value=value)] * 40, LogConfig(batch_bytes=3000), NOW_MS)
            packed([Record(value=b"other")] * 40, LogConfig(), NOW_MS)
            seen = {record.value for view in views(first) for record in view.records()}
            if {value} != seen:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
