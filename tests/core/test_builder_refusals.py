"""Tests of arguments that the batch builder refuses: error, reason, batch unchanged."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.header import parse_header
from kafkalog._core.record import Record
from kafkalog.errors import InvalidRecordError, UnsupportedCodecError
from tests.support import reference
from tests.support.builder_cases import (
    calls_with_bad_timestamps,
    column,
    reference_batch,
)
from tests.support.reference import Header

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("bad", ["text", 5, [1], 1.5], ids=repr)
@pytest.mark.parametrize("place", ["key", "value", "header value"])
def test_field_that_is_not_bytes_raises_with_its_name(bad: Any, place: str) -> None:
    """The message has field and type; the batch is unchanged."""
    builder = BatchBuilder()
    message = f"{place} must be bytes or None, got {type(bad).__name__}"
    with pytest.raises(TypeError, match=message):
        if place == "header value":
            builder.append(b"k", b"v", 5, [("h", bad)])
        else:
            builder.append(**{"key": b"k", "value": b"v", place: bad})
    if place != "header value":
        lists: dict[str, Any] = {"keys": [b"k", b"k"], "values": [b"v", b"v"]}
        lists[f"{place}s"] = [b"good", bad]
        with pytest.raises(TypeError, match=message):
            builder.extend_lists(**lists)
        assert 1 == builder.count


@pytest.mark.parametrize("bad", [[("h",)], [5], "text", [(b"h", b"")], [(None, b"")]], ids=repr)
def test_headers_that_are_not_pairs_are_refused(bad: Any) -> None:
    """A header key is text; it may be empty but not null."""
    builder = BatchBuilder()
    with pytest.raises(TypeError, match="header"):
        builder.append(b"k", b"v", 5, bad)
    assert 0 == builder.count


def test_header_key_that_cannot_be_encoded_is_refused() -> None:
    """The key has surrogates that `surrogateescape` does not make."""
    builder = BatchBuilder()
    with pytest.raises(InvalidRecordError, match="cannot be encoded"):
        builder.append(b"k", b"v", 5, [("\ud800", b"")])
    with pytest.raises(InvalidRecordError, match="cannot be encoded"):
        builder.append_record(Record(headers=[("\udbff", b"")]))
    assert 0 == builder.count


def test_timestamps_below_minus_one_are_refused_by_every_method() -> None:
    """Kafka also refuses to write them; -1 is the lowest."""
    builder = BatchBuilder()
    calls = calls_with_bad_timestamps(builder)
    for call in calls:
        with pytest.raises(InvalidRecordError, match=r"timestamp must be -1 or more, got -\d+"):
            call()
    assert 0 == builder.count


def test_mismatched_lists_and_columns_are_refused() -> None:
    """Lengths differ, or types are wrong."""
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="keys must be as many as values, 2, got 1"):
        builder.extend_lists([b"k"], [b"v", b"w"])
    with pytest.raises(ValueError, match="timestamps must be one per record, 2, got 1"):
        builder.extend_lists(None, [b"v", b"w"], numpy.array([5]))
    with pytest.raises(ValueError, match="timestamps must be one per record, 1, got 0"):
        builder.extend_columns(None, column([b"v"], "int32"), numpy.array([], dtype="int64"))
    with pytest.raises(ValueError, match="keys or values"):
        builder.extend_columns(None, None)
    with pytest.raises(TypeError, match="records must be of type Record, got bytes"):
        builder.extend_records([b"k"])  # type: ignore[list-item]
    with pytest.raises((TypeError, ValueError)):
        builder.extend_lists(None, [b"v"], numpy.array([5.0]))


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [3, 2], [2**62, 2**63 - 1]], ids=str)
def test_column_offsets_outside_their_data_are_refused(offsets: list[int]) -> None:
    """Rows before the bad offset are added."""
    cells = BytesColumn(b"abcd", numpy.array([0, *offsets], dtype=numpy.int64))
    builder = BatchBuilder()
    with pytest.raises(ValueError, match=r"the offsets of slot \d must rise and lie in"):
        builder.extend_columns(cells, cells)
    assert 1 >= builder.count


def test_bytes_column_with_invalid_parts_raises() -> None:
    """Each argument would make a kernel read wrong bytes."""
    good = numpy.array([0, 1, 2], dtype=numpy.int32)
    assert 2 == len(BytesColumn(b"ab", good))
    assert 0 == len(BytesColumn(b"", good[:1]))
    for offsets in (good.astype("int16"), good.astype(">i4"), good.astype("f8"), b"\x00" * 8):
        with pytest.raises(TypeError, match="int32 or int64"):
            BytesColumn(b"ab", offsets)
    with pytest.raises(ValueError, match="one number more"):
        BytesColumn(b"ab", good[:0])
    with pytest.raises(ValueError, match="a bit for each of 9 cells, got 1 bytes"):
        BytesColumn(b"", numpy.zeros(10, dtype=numpy.int64), b"\xff")
    with pytest.raises(ValueError, match="aligned"):
        BytesColumn(b"", numpy.frombuffer(bytes(13), numpy.uint8)[1:].view(numpy.int32))
    with pytest.raises((ValueError, BufferError)):
        BytesColumn(b"ab", numpy.zeros(6, dtype=numpy.int32)[::2])


ONE_RECORD_REFUSALS = [
    ({"producer_id": 5}, "producer epoch"),
    ({"producer_id": 5, "producer_epoch": 0}, "base sequence"),
    ({"transactional": True}, "producer id"),
    ({"producer_id": -2}, "-1 or more"),
    ({"producer_epoch": -2}, "-1 or more"),
    ({"base_sequence": -2}, "must be -1 or more, got -2"),
    ({"partition_leader_epoch": -2}, "must be -1 or more, got -2"),
    ({"base_offset": -1}, "base offset"),
    ({"base_offset": INT64_MAX}, "base offset"),
    ({"timestamp_type": 1}, "append time"),
    ({"timestamp_type": 2, "max_timestamp": 5}, "timestamp type"),
    ({"timestamp_type": 1, "max_timestamp": -2}, "max_timestamp must be in -1 to 2\\^63-1, got -2"),
    ({"max_timestamp": 5}, "must be None for timestamp type 0"),
    ({"delete_horizon": True}, "delete_horizon"),
    ({"last_offset_delta": 0}, "last_offset_delta"),
    ({"last_offset_delta": -1}, "last_offset_delta"),
    ({"last_offset_delta": 2**31}, "last_offset_delta"),
    ({"codec": 1}, "payload"),
    ({"payload": b"x"}, "payload"),
    ({"codec": 1, "payload": b""}, "must be None or not empty"),
]


@pytest.mark.parametrize(("options", "message"), ONE_RECORD_REFUSALS, ids=lambda value: str(value))
def test_header_that_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    """The batch can still be finished with a valid header."""
    builder = BatchBuilder()
    builder.append(b"a", b"b", 5)
    builder.append(b"a", b"b", 5)
    with pytest.raises(InvalidRecordError, match=message):
        builder.finish(**options)
    assert reference_batch([(b"a", b"b", 5)] * 2) == bytes(builder.finish())


@pytest.mark.parametrize("codec", [-1, 5, 7, 8])
def test_unknown_codec_is_refused(codec: int) -> None:
    """The codec has three bits, and five values are known."""
    builder = BatchBuilder()
    builder.append(b"a", b"b", 5)
    with pytest.raises(UnsupportedCodecError):
        builder.finish(codec=codec, payload=b"x")


def test_empty_batch_needs_a_last_offset_delta() -> None:
    """Compaction leaves such batches; the argument prevents empty batches by mistake."""
    builder = BatchBuilder()
    with pytest.raises(InvalidRecordError, match="last_offset_delta must be set"):
        builder.finish()
    with pytest.raises(InvalidRecordError, match="codec must be 0"):
        builder.finish(codec=1, payload=b"x", last_offset_delta=3)
    expected = Header(last_offset_delta=3, base_timestamp=-1, max_timestamp=8)
    batch = builder.finish(last_offset_delta=3, max_timestamp=8)
    assert reference.encode_batch(expected) == bytes(batch)


def test_control_batch_needs_no_sequence() -> None:
    """Transaction markers have no sequence."""
    builder = BatchBuilder()
    builder.append(b"\0\0\0\1", b"\0\0\0\0\0\7", 5)
    view = builder.finish(producer_id=1, producer_epoch=2, control=True, transactional=True)
    header = parse_header(view)
    assert (True, True, -1) == (header.is_control, header.is_transactional, header.base_sequence)
