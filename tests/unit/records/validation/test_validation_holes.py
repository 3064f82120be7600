"""Tests of faults of a broker's leader, which stores unreadable batches of v2 with a valid CRC."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core import crc32c
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    OffsetsOutOfOrderError,
)
from kafkalog.model import AppendOrigin
from kafkalog.records.codecs import Codec, compress
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import (
    NOW_MS,
    BatchSpec,
    batch,
    edited,
    validate_as_follower,
    validate_as_leader,
)
from tests.support.old_appends import config
from tests.support.reference_leader import stored
from tests.support.reference_messages import Message, encode_set
from tests.support.reference_records import Entry, encode

ORIGINS = [AppendOrigin.EMBEDDED, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR]
TARGETS = ["producer", "uncompressed", "gzip", "zstd"]


def with_records(records: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch of these encoded records with a record count of `count`."""
    payload = records if codec is Codec.NONE else compress(codec, records)
    header = bytearray(batch()[:61])
    struct.pack_into(">i", header, 8, 49 + len(payload))
    struct.pack_into(">h", header, 21, int(codec))
    struct.pack_into(">i", header, 23, count - 1)
    struct.pack_into(">i", header, 57, count)
    whole = header + payload
    struct.pack_into(">I", whole, 17, crc32c.value(whole[21:]))
    return bytes(whole)


def entries(deltas: list[int]) -> bytes:
    """Records with these offset deltas."""
    return encode(Entry(offset_delta=delta, key=b"key", value=b"value") for delta in deltas)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("deltas", [[0, 0, 5], [0, 2, 1], [1, 2, 3], [0, 1, 1], [-1, 0, 1]])
def test_offset_deltas_not_consecutive_are_refused_on_every_path(
    deltas: list[int], codec: Codec, target: str, origin: AppendOrigin
) -> None:
    """A broker stores them, fails with an unknown error, or renumbers silently: by the codec."""
    good = with_records(entries([0, 1, 2]), 3, codec)
    hostile = with_records(entries(deltas), 3, codec)
    settings = LogConfig(compression_type=target)
    assert validate_as_leader(good, settings, NOW_MS, origin).batches
    with pytest.raises(InvalidRecordError) as caught:
        validate_as_leader(hostile, settings, NOW_MS, origin)
    assert 0 == caught.value.position


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("change", [-1, 1, 20])
def test_record_length_invalid_is_refused_inside_compressed_batches_too(
    change: int, codec: Codec, magic: int
) -> None:
    """The poison pill: a broker stores it in place, and every reader of the partition fails."""
    records = bytearray(entries([0, 1, 2]))
    records[0] += 2 * change  # a zigzag of one byte
    with pytest.raises(InvalidRecordError) as caught:
        validate_as_leader(
            with_records(bytes(records), 3, codec), config(magic, codecs.GZIP), NOW_MS
        )
    assert 0 == caught.value.position


@pytest.mark.parametrize("count", [2, 4, 2**31 - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_record_count_too_large_allocates_no_memory(codec: Codec, count: int) -> None:
    """A broker allocates by the header before any check."""
    hostile = with_records(entries([0, 1, 2]), count, codec)
    tracemalloc.start()
    try:
        for magic in (1, 2):
            with pytest.raises((InvalidRecordError, CorruptRecordError)):
                validate_as_leader(hostile, config(magic, codecs.GZIP), NOW_MS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    """Of a few bytes that claim to be many; a broker decompresses any size."""
    records = encode([Entry(offset_delta=0, key=b"k", value=bytes(50_000_000))])
    hostile = with_records(records, 1, codec)
    limited = LogConfig(decompressed_max_bytes=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError, match="1000000"):
            validate_as_leader(hostile, limited, NOW_MS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_claimed_append_time_leaves_no_wrong_max_timestamp() -> None:
    """A broker flips the type and keeps the claimed time as largest; here it is the records'."""
    data = batch(timestamp_type=1, max_timestamp=NOW_MS - 50)
    run = validate_as_leader(data, LogConfig(), NOW_MS)
    (entry,) = stored(bytes(run.data))
    assert NOW_MS + 5 == entry.max_timestamp
    assert max(record.timestamp for record in entry.records) == entry.max_timestamp


@pytest.mark.parametrize("rest", [1, 11, 12, 60])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_bytes_after_the_last_batch_are_refused(magic: int, rest: int) -> None:
    """A broker drops up to eleven, or a truncated batch, silently."""
    if magic == 2:
        good = batch()
    else:
        good = encode_set([Message(0, magic, 0, NOW_MS if magic else -1, b"k", b"v" * 99)])
    for target in (0, 1, 2):
        with pytest.raises(CorruptRecordError) as caught:
            validate_as_leader(good + good[:rest], config(target), NOW_MS)
        assert len(good) == caught.value.position


def test_extreme_timestamps_do_not_wrap_around_the_bounds() -> None:
    """A broker subtracts in 64 bits."""
    for timestamp in (2**63 - 1, -(2**63) + 10):
        data = batch(BatchSpec(timestamps=(0, 0, 0)))
        data = edited(edited(data, 27, ">q", timestamp), 35, ">q", max(timestamp, -1))
        bounds: dict[str, Any] = {
            "message_timestamp_before_max_ms": 1000,
            "message_timestamp_after_max_ms": 1000,
        }
        with pytest.raises(InvalidRecordError, match="3 records are not allowed"):
            validate_as_leader(data, LogConfig(**bounds), NOW_MS)


@st.composite
def mixed_runs(draw: st.DrawFn) -> bytes:
    """Runs of batches of all formats at rising offsets, as stored by a leader of any age."""
    data, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        magic = draw(st.sampled_from([0, 1, 2]))
        offset += draw(st.integers(0, 3))
        if magic == 2:
            data += batch(
                BatchSpec(draw(st.sampled_from([Codec.NONE, Codec.ZSTD]))), base_offset=offset
            )
            offset += 3
            continue
        codec = draw(st.sampled_from([codecs.NONE, codecs.GZIP, codecs.LZ4]))
        count = draw(st.integers(1, 4))
        time = NOW_MS if magic else -1
        steps = [draw(st.integers(1, 3)) for _ in range(count)]
        members = [
            Message(offset + sum(steps[:number]), magic, 0, time, b"k", b"v")
            for number in range(count)
        ]
        data += encode_set(members, codec=codec)
        offset = members[-1].offset + 1
    return data


@settings(max_examples=100)
@given(data=mixed_runs(), choice=st.data())
def test_follower_stores_mixed_runs_unchanged_and_finds_disorder(
    data: bytes, choice: st.DataObject
) -> None:
    """The result is that of the reference; the same run twice falls back."""
    records = [record for entry in stored(data) for record in entry.records]
    any_format = config(choice.draw(st.sampled_from([0, 1, 2])))
    run = validate_as_follower(data, any_format)
    info = assign_run_offsets(run, 0, 5)
    assert data == bytes(run.data)
    assert (records[0].offset, records[-1].offset, len(records)) == (
        info.first_offset,
        info.last_offset,
        info.record_count,
    )
    with pytest.raises(OffsetsOutOfOrderError):
        validate_as_follower(data + data, any_format)
    with pytest.raises(OffsetsOutOfOrderError):
        assign_run_offsets(validate_as_follower(data, any_format), records[0].offset + 1, 5)
    place = choice.draw(st.integers(0, len(data) - 1))
    flipped = bytearray(data)
    flipped[place] ^= 1 << choice.draw(st.integers(0, 7))
    try:
        taken = validate_as_follower(flipped, any_format)
    except KafkaLogError as error:
        assert error.position is not None
    else:
        # Offset and leader epoch are not covered by a checksum; all else is.
        kept: list[Any] = [(entry.magic, entry.codec) for entry in stored(bytes(taken.data))]
        assert [(entry.magic, entry.codec) for entry in stored(data)] == kept
