"""Tests of the message set builder, compared with Kafka and the reference; refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import parse_header
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.record import Record
from kafkalog._core.records_builder import RecordsBuilder
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kafkalog.records.batch_view import BatchView
from tests.support import golden
from tests.support import reference_codecs as codecs
from tests.support import reference_messages as slow
from tests.support.builder_cases import (
    BUILD_METHODS,
    FIELDS,
    INT64_MAX,
    ROWS,
    TIMESTAMPS,
    Field,
    Row,
    T,
    calls_with_bad_timestamps,
    extend_within,
    messages_of,
)
from tests.support.examples import examples
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, as_batch_header, header_for
from tests.support.reference_messages import CREATE_TIME, LOG_APPEND_TIME, Message

SETS = golden.vectors("legacy")["sets"]
INT32_MAX = 2**31 - 1
# The worked examples of the format: magic, append time, base offset, rows, bytes.
PLAIN_EXAMPLES: list[tuple[int, int | None, int, Row, str]] = [
    (0, None, 5, (b"k", b"val", -1),
     "0000000000000005 00000012 316a1df0 00 00 00000001 6b 00000003 76616c"),
    (0, None, 6, (None, None, -1),
     "0000000000000006 0000000e a7ec6803 00 00 ffffffff ffffffff"),
    (1, None, 6, (b"k", b"val", T),
     "0000000000000006 0000001a c3573efc 01 00 0000018bcfe56800 00000001 6b 00000003 76616c"),
    (1, T, 6, (b"k", b"val", T - 9),
     "0000000000000006 0000001a e6a5378a 01 08 0000018bcfe56800 00000001 6b 00000003 76616c"),
]  # fmt: skip
GZIP_INNER = (
    "0000000000000000 00000018 70057b66 01 00 0000018bcfe56800 00000001 61 00000001 31"
    "0000000000000001 00000017 5be1144f 01 00 0000018bcfe56803 ffffffff 00000001 32"
)
GZIP_VALUE = (
    "1f8b080000000000000363608003890"
    "2d6ea34462083b1fbfcd30c90086322883084ca83a4c4a31f8af8c3d530ff0702"
    "10c7080025ee3c6c47000000"
)
GZIP_WRAPPER = "000000000000000b 00000052 ca0faaae 01 01 0000018bcfe56803 ffffffff 0000003c"
LZ4_WRAPPER = (
    "0000000000000005 0000003d 539da159 00 03 ffffffff 0000002f"
    "04224d1860401a 20000000 1200010082 05000000 3758bffc0e007f01 61000000 28310100 0f50"
    "3131313131 00000000"
)


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


# ---- Kafka's bytes ----


@pytest.mark.parametrize(("magic", "append_time", "base_offset", "row", "expected"), PLAIN_EXAMPLES)
def test_plain_message_of_the_specification_is_written(
    magic: int, append_time: int | None, base_offset: int, row: Row, expected: str
) -> None:
    """Both formats, null fields, both timestamp types."""
    builder = MessageSetBuilder(magic)
    builder.reset(append_time=append_time)
    size = builder.append(*row)
    found = builder.finish_plain(base_offset)
    assert bytes.fromhex(expected) == bytes(found)
    assert len(found) == size == builder.size_bytes


def test_gzip_wrapper_of_the_specification_is_written() -> None:
    """Inner offsets count from zero; the wrapper has the last offset and largest timestamp."""
    builder = MessageSetBuilder(1)
    builder.append(b"a", b"1", T)
    builder.append(None, b"2", T + 3)
    assert bytes.fromhex(GZIP_INNER) == bytes(builder.payload(10))
    value = bytes.fromhex(GZIP_VALUE)
    assert codecs.decompress(codecs.GZIP, value, 1) == bytes.fromhex(GZIP_INNER)
    found = builder.wrap(codecs.GZIP, value, base_offset=10)
    assert bytes.fromhex(GZIP_WRAPPER) + value == bytes(found)


def test_lz4_wrapper_of_the_specification_is_written() -> None:
    """Magic 0: the inner offset is absolute."""
    expected = bytes.fromhex(LZ4_WRAPPER)
    builder = MessageSetBuilder(0)
    builder.append(b"a", b"1" * 40)
    assert codecs.decompress(codecs.LZ4, expected[26:], 0) == bytes(builder.payload(5))
    assert expected == bytes(builder.wrap(codecs.LZ4, expected[26:], base_offset=5))


@pytest.mark.parametrize("case", SETS, ids=lambda case: case["name"])
def test_kafkas_set_built_again_is_the_same_bytes(case: dict[str, Any]) -> None:
    """Plain, or wrapped with Kafka's compressed bytes; gaps, nulls, falling timestamps."""
    outer = case["messages"]
    rows = [record for message in outer for record in message["records"]]
    base_offset = rows[0]["offset"]
    is_append_time = outer[0]["timestamp_type"] == "LogAppendTime"
    builder = MessageSetBuilder(case["magic"])
    builder.reset(append_time=outer[0]["timestamp"] if is_append_time else None)
    for row in rows:
        delta = row["offset"] - base_offset
        builder.append_at(delta, unhex(row["key"]), unhex(row["value"]), row["timestamp"])
    data = bytes.fromhex(case["hex"])
    codec = outer[0]["attributes"] & 7
    if codec == codecs.NONE:
        assert data == bytes(builder.finish_plain(base_offset))
        return
    value = bytes.fromhex(outer[0]["value"])
    inner = codecs.decompress(codec, value, case["magic"])
    assert inner == bytes(builder.payload(base_offset))
    assert data == bytes(builder.wrap(codec, value, base_offset=base_offset))


# ---- the reference's bytes ----


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("way", BUILD_METHODS, ids=lambda way: way.__name__)
@given(st.data())
@settings(max_examples=examples(12))
def test_set_built_by_any_method_equals_the_reference(
    way: Callable[[RecordsBuilder, list[Row]], None], magic: int, data: st.DataObject
) -> None:
    """Null, empty and long fields, all timestamps and types; the memory must grow."""
    rows = data.draw(ROWS)
    append_time = data.draw(st.none() | TIMESTAMPS)
    base_offset = data.draw(st.integers(0, 5) | st.integers(0, INT64_MAX - 20))
    timestamp_type = CREATE_TIME if append_time is None else LOG_APPEND_TIME
    options = {"timestamp_type": timestamp_type, "append_time": append_time or 0}
    builder = MessageSetBuilder(magic, capacity=61)
    for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4):
        builder.reset(append_time=append_time)
        way(builder, rows)
        messages = messages_of(rows, magic, base_offset)
        expected = slow.encode_set(messages, codec=codec, **options)
        if codec == codecs.NONE:
            assert (len(rows), len(expected)) == (builder.count, builder.size_bytes)
            assert expected == bytes(builder.finish_plain(base_offset))
            continue
        compressed = codecs.compress(codec, bytes(builder.payload(base_offset)), magic)
        assert expected == bytes(builder.wrap(codec, compressed, base_offset=base_offset))


@settings(max_examples=examples(60))
@given(
    rows=st.lists(st.tuples(st.integers(1, 40), FIELDS, FIELDS, TIMESTAMPS), min_size=1),
    magic=st.integers(0, 1),
    codec=st.sampled_from([codecs.GZIP, codecs.SNAPPY, codecs.LZ4]),
    base_offset=st.integers(0, 2**40),
)
def test_set_with_gaps_equals_the_reference_and_round_trips(
    rows: list[tuple[int, Field, Field, int]], magic: int, codec: int, base_offset: int
) -> None:
    """Compaction leaves gaps, and conversion keeps them."""
    builder = MessageSetBuilder(magic)
    messages = []
    delta = 0
    for gap, key, value, timestamp in rows:
        builder.append_at(delta, key, value, timestamp)
        time = timestamp if magic else -1
        messages.append(Message(base_offset + delta, magic, 0, time, key, value))
        delta += gap
    assert slow.encode_messages(messages) == bytes(builder.finish_plain(base_offset))
    compressed = codecs.compress(codec, bytes(builder.payload(base_offset)), magic)
    wrapper = bytes(builder.wrap(codec, compressed, base_offset=base_offset))
    assert slow.encode_set(messages, codec=codec) == wrapper
    view = BatchView(wrapper)
    view.check()
    assert [(m.offset, m.timestamp, m.key, m.value) for m in messages] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in view.records()
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_decoded_rows_keep_their_offsets(magic: int) -> None:
    """Any range of rows of a v2 batch with gaps, without headers."""
    columns = decoded(MIXED_PAYLOAD)
    columns.header_count[:] = 0
    count = len(columns)
    first = int(columns.offset[0])
    builder = MessageSetBuilder(magic)
    assert count == builder.extend_decoded(MIXED_PAYLOAD, columns, base_offset=first)
    messages = [
        Message(
            int(columns.offset[slot]),
            magic,
            0,
            int(columns.timestamp[slot]) if magic else -1,
            entry.key,
            entry.value,
        )
        for slot, entry in enumerate(MIXED)
    ]
    assert slow.encode_messages(messages) == bytes(builder.finish_plain(first))
    builder.reset()
    assert 2 == builder.extend_decoded(MIXED_PAYLOAD, columns, 1, 3, base_offset=first)
    assert slow.encode_messages(messages[1:3]) == bytes(builder.finish_plain(first))


def decoded(payload: bytes) -> RecordColumns:
    """Return the records of `MIXED` as columns."""
    columns = RecordColumns(len(MIXED))
    decode_columns(payload, as_batch_header(header_for(MIXED)), 0, len(payload), columns)
    return columns


# ---- attributes ----


def test_builder_of_magic_1_attributes_describe_its_records() -> None:
    """Attributes are read-only; a reset clears them."""
    builder = MessageSetBuilder(1)
    assert (1, 0, 0, -1, -1, 0, -1) == facts(builder)
    builder.append(None, b"v", 7)
    builder.append(b"k", b"v", 9)
    builder.append(b"k", b"v")
    assert (1, 3, 107, 7, 9, 1, 2) == facts(builder)
    assert "MessageSetBuilder(3 records, 107 bytes)" == repr(builder)
    with pytest.raises(AttributeError):
        builder.count = 5  # type: ignore[misc]
    builder.reset(append_time=4)
    builder.append(b"k", b"v", 9)
    assert (1, 1, 36, 4, 4, 0, 0) == facts(builder)
    builder.reset()
    assert (1, 0, 0, -1, -1, 0, -1) == facts(builder)


def test_builder_of_magic_0_has_no_timestamp() -> None:
    """Timestamps and append time are not stored, so they are not checked."""
    builder = MessageSetBuilder(0)
    builder.reset(append_time=T)
    builder.append(b"k", b"v", 9)
    builder.append(b"k", b"v", -7)
    assert (0, 2, 56, -1, -1, 0, 1) == facts(builder)
    assert [0, 0] == [message[17] for message in split(bytes(builder.finish_plain()))]


def facts(builder: MessageSetBuilder) -> tuple[int, ...]:
    """Return all attributes of a builder."""
    return (
        builder.magic,
        builder.count,
        builder.size_bytes,
        builder.min_timestamp,
        builder.max_timestamp,
        builder.null_key_count,
        builder.last_offset_delta,
    )


def split(data: bytes) -> list[bytes]:
    """Return the messages of a set."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:size])
        data = data[size:]
    return found


def test_record_without_timestamp_gets_the_default() -> None:
    """Only -1 means no timestamp; 0 is a timestamp."""
    builder = MessageSetBuilder(1)
    builder.extend_records([Record(timestamp_ms=-1), Record(timestamp_ms=0)], 0, 50)
    builder.append_record(Record(), 60)
    times = [slot[18:26] for slot in split(bytes(builder.finish_plain()))]
    assert [50, 0, 60] == [int.from_bytes(time, "big") for time in times]


# ---- limits ----


@pytest.mark.parametrize("way", ["records", "lists", "columns"])
def test_extend_stops_at_the_size_limit(way: str) -> None:
    """No set is above the limit or empty, and no record is lost between sets."""
    values: list[Field] = [bytes([slot]) * (slot * 7 % 90) for slot in range(200)]
    limit = 500
    builder = MessageSetBuilder(1)
    seen = b""
    start = 0
    while start < len(values):
        builder.reset()
        added = extend_within(builder, way, values, start, limit)
        assert added == builder.count > 0
        assert builder.size_bytes <= limit
        seen += bytes(builder.finish_plain(start))
        start += added
        if start < len(values):
            assert builder.append(None, values[start]) > limit
    assert slow.encode_messages(messages_of([(None, v, -1) for v in values], 1)) == seen


def test_message_beyond_32_bits_raises_before_memory_is_allocated() -> None:
    """Cells may overlap: two rows over one run of 1.2 GB of zero pages are 2.4 GB of messages."""
    mapping = numpy.zeros(1_200_000_000, dtype=numpy.uint8)
    wide = BytesColumn(mapping, numpy.array([0, len(mapping)], dtype=numpy.int64))
    builder = MessageSetBuilder(1)
    with pytest.raises(RecordTooLargeError):
        builder.extend_columns(wide, wide)
    builder.append(b"k", b"v", 5)
    with pytest.raises(RecordTooLargeError):
        builder.wrap(1, numpy.zeros(2**31, dtype=numpy.uint8).data)
    assert (1, 16384) == (builder.count, builder.capacity)


def test_offset_delta_beyond_32_bits_raises_and_keeps_the_set() -> None:
    """The limit equals that of a v2 batch: no segment has a larger range."""
    builder = MessageSetBuilder(0)
    builder.append_at(INT32_MAX, b"k", b"v")
    before = bytes(builder.finish_plain())
    with pytest.raises(RecordTooLargeError):
        builder.append(b"k", b"v")
    assert before == bytes(builder.finish_plain())


# ---- refusals ----


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_are_refused_by_every_method(magic: int) -> None:
    """The old formats have no headers; the caller must remove them. Empty lists are accepted."""
    builder = MessageSetBuilder(magic)
    pairs: list[tuple[str, bytes | None]] = [("a", b"b"), ("c", None)]
    record = Record(value=b"v", headers=pairs)
    columns = decoded(MIXED_PAYLOAD)
    calls: tuple[Callable[[], int], ...] = (
        lambda: builder.append(b"k", b"v", 5, pairs),
        lambda: builder.append_at(3, b"k", b"v", 5, pairs),
        lambda: builder.append_record(record),
        lambda: builder.extend_records([record]),
        lambda: builder.extend_decoded(MIXED_PAYLOAD, columns),
    )
    for call in calls:
        builder.reset()
        with pytest.raises(InvalidRecordError, match=rf"\d headers: messages of magic {magic}"):
            call()
    builder.reset()
    builder.append(b"k", b"v", 5, [])
    builder.append_record(Record(value=b"v", headers=[]))
    assert 2 == builder.count


def test_timestamps_below_minus_one_are_refused_if_stored() -> None:
    """The append time replaces them and has the same lower bound."""
    builder = MessageSetBuilder(1)
    calls = calls_with_bad_timestamps(builder)
    for call in calls:
        with pytest.raises(InvalidRecordError, match=r"timestamp must be -1 or more, got -\d+"):
            call()
    assert 0 == builder.count
    with pytest.raises(InvalidRecordError, match="append time must be -1 or more, got -2"):
        builder.reset(append_time=-2)
    for call in calls:
        builder.reset(append_time=3)
        call()
        assert (1, 3) == (builder.count, builder.max_timestamp)


def test_set_without_messages_cannot_be_finished() -> None:
    """Plain or wrapped; a wrapper without messages would be corrupt."""
    builder = MessageSetBuilder(1)
    calls: tuple[Callable[[], object], ...] = (
        builder.payload,
        builder.finish_plain,
        lambda: builder.wrap(1, b"x"),
    )
    for call in calls:
        with pytest.raises(InvalidRecordError, match="without messages"):
            call()


def test_wrapper_with_invalid_arguments_is_refused() -> None:
    """Unknown codecs, no messages, bad offsets; the set can still be finished."""
    builder = MessageSetBuilder(1)
    builder.append(b"k", b"v", 5)
    builder.append(b"k", b"v", 5)
    for codec in (-1, 0, 4, 5, 8, 9):
        with pytest.raises(UnsupportedCodecError, match=f"codec {codec}"):
            builder.wrap(codec, b"x")
    with pytest.raises(InvalidRecordError, match="must not be empty"):
        builder.wrap(1, b"")
    with pytest.raises(TypeError):
        builder.wrap(1, None)  # type: ignore[arg-type]
    for base_offset in (-1, INT64_MAX, INT64_MAX - 1):
        with pytest.raises(InvalidRecordError, match="base offset"):
            builder.finish_plain(base_offset)
        with pytest.raises(InvalidRecordError, match="base offset"):
            builder.payload(base_offset)
        with pytest.raises(InvalidRecordError, match="base offset"):
            builder.wrap(1, b"x", base_offset=base_offset)
    expected = slow.encode_messages(messages_of([(b"k", b"v", 5)] * 2, 1, INT64_MAX - 2))
    assert expected == bytes(builder.finish_plain(INT64_MAX - 2))
    # With one more record the offsets do not fit; no offset wraps around.
    builder.append(b"k", b"v", 5)
    with pytest.raises(InvalidRecordError, match="base offset"):
        builder.finish_plain(INT64_MAX - 2)
    expected = slow.encode_messages(messages_of([(b"k", b"v", 5)] * 3, 1, 7))
    assert expected == bytes(builder.finish_plain(7))


@pytest.mark.parametrize("magic", [-1, 2, 256])
def test_magic_without_messages_is_refused(magic: int) -> None:
    """Version 2 has another builder."""
    with pytest.raises(ValueError, match="magic must be 0 or 1"):
        MessageSetBuilder(magic)


def test_invalid_rows_are_refused() -> None:
    """Fields are outside the buffer or offsets do not rise; earlier rows are kept."""
    builder = MessageSetBuilder(1)
    columns = decoded(MIXED_PAYLOAD)
    columns.header_count[:] = 0
    columns.value_position[1] = len(MIXED_PAYLOAD)
    with pytest.raises(CorruptRecordError, match="runs past"):
        builder.extend_decoded(MIXED_PAYLOAD, columns)
    assert 1 == builder.count
    columns = decoded(MIXED_PAYLOAD)
    columns.header_count[:] = 0
    columns.offset[2] = columns.offset[1]
    builder.reset()
    with pytest.raises(CorruptRecordError, match="rise"):
        builder.extend_decoded(MIXED_PAYLOAD, columns, base_offset=0)
    assert 2 == builder.count


@pytest.mark.parametrize("magic", [0, 1])
def test_finished_set_has_one_batch_per_message(magic: int) -> None:
    """The scan reads each message as one batch."""
    builder = MessageSetBuilder(magic)
    builder.extend_lists([b"a", None], [None, b"b"], T)
    data = bytes(builder.finish_plain(40))
    first = parse_header(data)
    second = parse_header(data, first.end_position)
    assert [(magic, 40), (magic, 41)] == [(h.magic, h.base_offset) for h in (first, second)]
    assert len(data) == second.end_position
