"""Tests of encoded batches by origin and codec: recompression, and offsets in answers."""

from __future__ import annotations

import pytest

from kafkalog._core.batch import scan_batches
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.config import LogConfig
from kafkalog.errors import InvalidRecordError, RecordTooLargeError
from kafkalog.model import AppendOrigin, Rewriting
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec
from tests.support.encoded_batches import (
    NOW_MS,
    BatchSpec,
    batch,
    edited,
    validate_as_leader,
)

CONFIG = LogConfig()


def test_client_origin_accepts_one_batch_at_base_offset_0() -> None:
    """As in a broker's leader; the embedding program may append several at any offsets."""
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        with pytest.raises(InvalidRecordError, match="a second batch"):
            validate_as_leader(batch() * 2, CONFIG, NOW_MS, origin)
    with pytest.raises(InvalidRecordError, match="counts from 0, not from 3"):
        validate_as_leader(batch(base_offset=3), CONFIG, NOW_MS, AppendOrigin.CLIENT)
    assert 2 == len(validate_as_leader(batch(base_offset=3) * 2, CONFIG, NOW_MS).batches)


def test_coordinator_origin_accepts_markers_and_refuses_invalid_ones() -> None:
    """It writes control batches and producers without sequence; the records must fit."""
    coordinator = AppendOrigin.COORDINATOR
    builder = BatchBuilder()
    builder.append(bytes([0, 0, 0, 1]), bytes(6), NOW_MS)
    marker = bytes(
        builder.finish(producer_id=7, producer_epoch=0, transactional=True, control=True)
    )
    config = LogConfig(compression_type="zstd", cleanup_policy=("compact",))
    run = validate_as_leader(marker, config, NOW_MS, coordinator)
    assert (marker, NOW_MS) == (bytes(run.data), run.batches[0].max_timestamp)
    with pytest.raises(InvalidRecordError, match="only the log itself"):
        validate_as_leader(marker, CONFIG, NOW_MS, AppendOrigin.CLIENT)
    no_sequence = edited(batch(), 43, ">q", 4)
    assert validate_as_leader(no_sequence, CONFIG, NOW_MS, coordinator).batches
    with pytest.raises(InvalidRecordError, match="control record of unknown type 99"):
        unknown = edited(marker, 61 + 8, ">b", 99)
        validate_as_leader(unknown, CONFIG, NOW_MS, coordinator)
    with pytest.raises(InvalidRecordError, match="2 records, but offsets for 3"):
        validate_as_leader(edited(batch(), 57, ">i", 2), CONFIG, NOW_MS, coordinator)


ORIGINS = [AppendOrigin.EMBEDDED, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR]
TARGETS = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", list(Codec))
def test_leader_matrix_of_codecs_and_timestamp_types(
    source: Codec, target: str, timestamp_type: str, origin: AppendOrigin
) -> None:
    """Recompressed only if the codec differs; with the expected records, offsets and timestamps."""
    config = LogConfig(compression_type=target, message_timestamp_type=timestamp_type)
    producer = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 8}
    keys = tuple(b"%d" % number for number in range(50))
    times = tuple(NOW_MS - 9 + number % 7 for number in range(50))
    data = batch(BatchSpec(source, times, keys), **producer)
    target_codec = Codec.of_config(target)
    codec = source if target_codec is None else target_codec
    run = validate_as_leader(data, config, NOW_MS, origin)
    info = assign_run_offsets(run, 700, 2)
    view = BatchView(bytes(run.data))
    view.check()
    is_append_time = timestamp_type == "LogAppendTime"
    largest = NOW_MS if is_append_time else NOW_MS - 3
    assert (codec, 700, 749, 2, largest) == (
        view.codec,
        view.header.base_offset,
        view.header.last_offset,
        view.header.partition_leader_epoch,
        view.header.max_timestamp,
    )
    assert (5, 1, 8) == (
        view.header.producer_id,
        view.header.producer_epoch,
        view.header.base_sequence,
    )
    expected_times = [NOW_MS] * 50 if is_append_time else list(times)
    assert (list(keys), expected_times, list(range(700, 750))) == (
        [record.key for record in view.records()],
        [record.timestamp_ms for record in view.records()],
        [record.offset for record in view.records()],
    )
    assert Rewriting(source, codec, int(codec is not source)) == info.rewriting
    if codec is source:
        assert data[61:] == bytes(run.data[61:])
    assert (largest, 749, len(run.data), NOW_MS if is_append_time else None) == (
        info.max_timestamp_ms,
        info.shallow_offset_of_max_timestamp,
        info.size_bytes,
        info.log_append_time_ms,
    )


def test_recompressed_batches_among_others_keep_their_order() -> None:
    """Only batches of another codec are rewritten; metadata and bytes agree."""
    keys = tuple(b"%d" % number for number in range(40))
    mixed = [Codec.ZSTD, Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.LZ4, Codec.ZSTD]
    parts = [batch(BatchSpec(codec, (NOW_MS,) * 40, keys)) for codec in mixed]
    run = validate_as_leader(b"".join(parts), LogConfig(compression_type="zstd"), NOW_MS)
    info = assign_run_offsets(run, 10, 0)
    result = scan_batches(run.data, next_offset=10)
    assert (6, 0, 10 + 240) == (result.count, result.status, result.next_offset)
    assert (6, 240, Rewriting(Codec.ZSTD, Codec.ZSTD, 3)) == (
        info.batch_count,
        info.record_count,
        info.rewriting,
    )
    position = 0
    for part, facts, codec in zip(parts, run.batches, mixed, strict=True):
        written = bytes(run.data[position : position + facts.size_bytes])
        assert Codec.ZSTD == parse_header(written).codec
        assert (codec is Codec.ZSTD) == (written[61:] == part[61:])
        position += facts.size_bytes
    assert len(run.data) == position


def test_recompression_uses_the_level_of_the_settings() -> None:
    """And only if the codec differs: a level alone changes nothing, as in Kafka."""
    keys = tuple(b"key of %d" % (number * number) for number in range(500))
    made = BatchSpec(Codec.NONE, (NOW_MS,) * 500, keys)
    sizes = {
        level: len(
            validate_as_leader(
                batch(made),
                LogConfig(compression_type="gzip", compression_gzip_level=level),
                NOW_MS,
            ).data
        )
        for level in (1, 9)
    }
    assert sizes[9] < sizes[1]
    fast = batch(BatchSpec(Codec.GZIP, (NOW_MS,) * 500, keys))
    best = LogConfig(compression_type="gzip", compression_gzip_level=9)
    assert fast == bytes(validate_as_leader(fast, best, NOW_MS).data)


def test_recompression_that_grows_a_batch_is_checked_against_the_limits() -> None:
    """A batch that grows above the limit is refused; an incompressible batch stays uncompressed."""
    keys = tuple(b"k" * 50 for _ in range(100))
    small = batch(BatchSpec(Codec.ZSTD, (NOW_MS,) * 100, keys))
    config = LogConfig(compression_type="uncompressed", max_message_bytes=1000)
    assert len(small) < 1000
    with pytest.raises(RecordTooLargeError, match=r"most 1000 bytes \(max\.message\.bytes\)"):
        validate_as_leader(small, config, NOW_MS)
    tiny = batch(BatchSpec(timestamps=(NOW_MS,), keys=(b"k",)))
    run = validate_as_leader(tiny, LogConfig(compression_type="gzip"), NOW_MS)
    assert (tiny, Rewriting(0, 0)) == (bytes(run.data), run.rewriting)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (Codec.NONE, "producer", -1),
        (Codec.ZSTD, "producer", 52),
        (Codec.ZSTD, "uncompressed", -1),
    ],
)
def test_shallow_offset_without_timestamps_equals_kafkas(
    source: Codec, target: str, expected: int
) -> None:
    """Answers of Kafka's leader; a batch that stays compressed gives its last offset."""
    data = batch(BatchSpec(source, (-1, -1, -1)))
    run = validate_as_leader(data, LogConfig(compression_type=target), NOW_MS)
    info = assign_run_offsets(run, 50, 0)
    assert (-1, expected) == (info.max_timestamp_ms, info.shallow_offset_of_max_timestamp)


def test_shallow_offset_is_that_of_the_earliest_batch_with_the_largest_timestamp() -> None:
    """Its last offset, not the record's, and not that of a later batch with the same time."""
    early = batch(BatchSpec(timestamps=(NOW_MS, NOW_MS, NOW_MS)))
    run = validate_as_leader(early + batch() + batch(), CONFIG, NOW_MS)
    info = assign_run_offsets(run, 50, 0)
    assert (NOW_MS + 5, 55) == (info.max_timestamp_ms, info.shallow_offset_of_max_timestamp)
