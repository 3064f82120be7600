"""Tests of batch views of magic 0 and 1: the same methods for messages and wrappers."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kafkalog._core.columns import RecordColumns
from kafkalog.errors import CorruptRecordError, KafkaLogError, UnsupportedCodecError
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec
from tests.support import golden_old
from tests.support import reference_messages as reference
from tests.support.golden import vectors
from tests.support.manifest_old import OldRecordFact
from tests.support.message_cases import MIXED, TIMESTAMP
from tests.support.reference_codecs import compress
from tests.support.reference_messages import Message

HOSTILE = [case for case in vectors("invalid")["cases"] if case["name"].startswith(("v0_", "v1_"))]


def unhex(text: str | None) -> bytes | None:
    """Bytes that a vector writes in hexadecimal, or null."""
    return None if text is None else bytes.fromhex(text)


def wrapper_of(magic: int, codec: int, inner: bytes, offset: int = 8) -> bytes:
    """Return a wrapper of compressed bytes, whatever they are."""
    value = compress(codec, inner, magic)
    return reference.encode_message(Message(offset, magic, codec, TIMESTAMP, None, value))


@pytest.mark.parametrize("case", vectors("legacy")["sets"], ids=lambda case: case["name"])
def test_batch_view_of_kafkas_messages_equals_kafkas_result(case: dict[str, Any]) -> None:
    """Every outer entry of every set, in all forms of reading."""
    data = bytes.fromhex(case["hex"])
    for outer in case["messages"]:
        view = BatchView(data[outer["position"] : outer["position"] + 12 + outer["size"]])
        view.check()
        assert outer["compression"] == view.codec.kafka_name
        expected = [
            (record["offset"], record["timestamp"], unhex(record["key"]), unhex(record["value"]))
            for record in outer["records"]
        ]
        assert expected == [(r.offset, r.timestamp_ms, r.key, r.value) for r in view.records()]
        pairs = [row[2:] for row in expected]
        assert pairs == view.tuples()
        assert pairs == list(zip(*view.lists(), strict=True))
        view.check_records()
        assert len(expected) == len(view)
        assert (outer["base_offset"], outer["offset"]) == (view.base_offset, view.last_offset)
        columns = RecordColumns(20)
        rows, buffer = view.columns(columns)
        assert len(expected) == rows
        octets = bytes(memoryview(buffer))
        assert [row[3] for row in expected] == [
            None if size < 0 else octets[position : position + size]
            for position, size in zip(columns.value_position, columns.value_size, strict=True)
        ]


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case["name"])
def test_batch_view_of_hostile_messages_raises_as_kafka(case: dict[str, Any]) -> None:
    """And reads what Kafka reads, with strict=False."""
    data = bytes.fromhex(case["hex"])
    try:
        view = BatchView(data)
        count = len(view.records(strict=False)) if len(data) >= view.header.size_bytes else 0
    except KafkaLogError:
        assert case["iterate"]["error"] is not None
    else:
        assert (None, count) == (case["iterate"]["error"], case["iterate"]["records"])


@pytest.mark.parametrize(("broker", "partition"), golden_old.all_old_partitions())
def test_batch_view_of_old_brokers_batches_gives_their_records(broker: str, partition: str) -> None:
    """Every outer entry of 123 partitions, compacted ones with them, read strictly."""
    manifest = golden_old.OldManifest(broker, partition)
    segments: dict[str, bytes] = {}
    for fact in manifest.entries():
        if fact.segment not in segments:
            segments[fact.segment] = (manifest.directory / fact.segment).read_bytes()
        view = BatchView(segments[fact.segment][fact.position : fact.end_position])
        view.check()
        assert (fact.magic, fact.codec, fact.offset, fact.crc) == (
            view.header.magic,
            view.header.codec,
            view.last_offset,
            view.header.crc,
        )
        records = view.records()
        assert [_facts_of(record) for record in fact.records] == [
            (r.offset, r.timestamp_ms, r.timestamp_type, r.key, _short(r.value), r.headers)
            for r in records
        ]
        if fact.magic < 2:
            assert len(records) == len(view)
            assert records[0].offset == view.base_offset


def _facts_of(record: OldRecordFact) -> tuple[Any, ...]:
    value = record.value_sha256 or record.value
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        value,
        record.headers,
    )


def _short(value: bytes | None) -> bytes | str | None:
    """Return a value as a manifest has it: its SHA-256 if it is long."""
    if value is None or len(value) <= 256:
        return value
    return hashlib.sha256(value).hexdigest()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_batch_view_of_a_wrapper_counts_its_messages(magic: int, codec: Codec) -> None:
    """The header knows neither their number nor the first offset; decompressed once."""
    view = BatchView(wrapper_of(magic, codec, reference.encode_messages(MIXED[magic]), 108))
    assert "offsets to 108" in repr(view)
    assert 6 == len(view)
    assert (100 if magic else 0, 108) == (view.base_offset, view.last_offset)
    assert view.payload()[0] is view.payload()[0]


def test_batch_view_of_a_damaged_wrapper_raises_with_its_position() -> None:
    """In every method."""
    damaged = wrapper_of(1, Codec.GZIP, reference.encode_messages(MIXED[1])[:-1])
    view = BatchView(damaged, path="orders-0/0.log", position=77)
    for ask in (view.records, view.tuples, view.lists, view.check_records):
        with pytest.raises(CorruptRecordError, match="orders-0") as caught:
            ask()
        assert 8 == caught.value.base_offset
    assert 5 == len(view.records(strict=False)) == len(view)
    empty = BatchView(wrapper_of(1, Codec.GZIP, b""), path="orders-0/0.log", position=77)
    with pytest.raises(CorruptRecordError, match="holds no message"):
        len(empty)
    with pytest.raises(CorruptRecordError, match=r"orders-0/0\.log:77"):
        _ = empty.base_offset


def test_batch_view_of_a_wrapper_respects_the_limit() -> None:
    """As every other batch."""
    view = BatchView(wrapper_of(1, Codec.GZIP, bytes(5000)))
    with pytest.raises(CorruptRecordError, match="more than 1000 bytes"):
        view.records(limit_bytes=1000)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 7])
def test_batch_view_of_old_format_with_a_codec_of_magic_2_raises(magic: int, codec: int) -> None:
    """Zstd for example."""
    entry = reference.encode_message(Message(5, magic, codec, TIMESTAMP, None, b"?"))
    view = BatchView(entry)
    view.check()
    with pytest.raises(UnsupportedCodecError):
        view.records()
    with pytest.raises(UnsupportedCodecError):
        view.payload()


def test_batch_view_with_bytes_after_the_value_is_read_on_request_only() -> None:
    """As with bytes after the value of any message."""
    inner = reference.encode_messages(MIXED[1])
    good = reference.encode_message(Message(8, 1, 1, 5, None, compress(1, inner) + b"spare"))
    short = len(compress(1, inner))
    value_size = good.index(b"\x1f\x8b") - 4
    entry = good[:value_size] + short.to_bytes(4, "big") + good[value_size + 4 :]
    view = BatchView(entry)
    assert 6 == len(view.records(strict=False))
    with pytest.raises(CorruptRecordError, match="bytes are left"):
        view.records()
    with pytest.raises(CorruptRecordError, match="bytes are left"):
        view.check_records()
