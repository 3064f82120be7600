"""Property tests of message sets, sound or damaged: the verdict equals the reference's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.message import (
    check_messages,
    decode_message_columns,
    decode_message_lists,
    decode_message_tuples,
    decode_messages,
    summarize_messages,
    wrapper_value,
)
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import KafkaLogError
from kafkalog.records.batch_view import BatchView
from tests.support import golden
from tests.support import reference_codecs as codecs
from tests.support import reference_messages as slow
from tests.support.buffers import exact
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.reference import Header, parse_message_header
from tests.support.reference_messages import Message, OldRecord
from tests.support.reference_records import Refused

LEGACY = golden.vectors("legacy")["sets"]
INVALID = [c for c in golden.vectors("invalid")["cases"] if c["name"][:3] in ("v0_", "v1_")]
INT64_MAX = 2**63 - 1

FIELDS = st.one_of(st.none(), st.binary(max_size=10), st.integers(0, 300).map(bytes))
CODECS = st.sampled_from([codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4])


@st.composite
def messages(draw: st.DrawFn, magic: int | None = None) -> list[Message]:
    """Draw messages of one magic at rising offsets, with gaps."""
    magic = draw(st.integers(0, 1)) if magic is None else magic
    offset = draw(st.one_of(st.integers(0, 5), st.integers(0, 2**62)))
    made = []
    for _ in range(draw(st.integers(1, 6))):
        timestamp = draw(st.integers(-1, 300) | st.integers(-(2**63), INT64_MAX))
        made.append(Message(offset, magic, 0, timestamp, draw(FIELDS), draw(FIELDS)))
        offset += draw(st.integers(1, 3))
    return made


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """Draw one outer entry: a plain message, or a wrapper in any codec, of either time type."""
    made = draw(messages())
    codec = draw(CODECS)
    if codec == codecs.NONE:
        made = made[:1]
    return slow.encode_set(
        made,
        codec=codec,
        timestamp_type=draw(st.integers(0, 1)),
        append_time=draw(st.integers(0, 2**41)),
    )


def native(header: Header) -> BatchHeader:
    """Return the native header with the same fields, valid or not."""
    return BatchHeader(position=0, **vars(header))


def of_reference(payload: bytes, header: Header, *, strict: bool) -> Any:
    """Return the reference's records, or (verdict, position)."""
    try:
        return [fields(r) for r in slow.decode_messages(payload, header, strict=strict)]
    except Refused as refusal:
        return refusal.verdict, refusal.position


def fields(record: OldRecord) -> tuple[Any, ...]:
    """Return the fields of a record."""
    return record.offset, record.timestamp, record.timestamp_type, record.key, record.value


def assert_decoders_equal_the_reference(payload: bytes, header: Header) -> None:
    """Every entry point, strict and not: the same records or the same verdict."""
    data = exact(payload)
    end = len(payload)
    for strict in (True, False):
        expected = of_reference(payload, header, strict=strict)
        arguments = (data, native(header), 0, end)
        summary = summarize_messages(*arguments, strict=strict)
        status = check_messages(*arguments, strict=strict)
        if isinstance(expected, tuple):
            assert expected == (status_name(summary.status), summary.position)
            assert expected[0] == status_name(status)
            for decode in (decode_messages, decode_message_tuples, decode_message_lists):
                with pytest.raises(KafkaLogError) as caught:
                    decode(*arguments, strict=strict)
                assert expected[1] == caught.value.position
            with pytest.raises(KafkaLogError):
                decode_message_columns(*arguments, RecordColumns(end + 1), strict=strict)
            continue
        assert STATUS_CODES["OK"] == status == summary.status
        assert expected == [
            (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value)
            for r in decode_messages(*arguments, strict=strict)
        ]
        pairs = [row[3:] for row in expected]
        assert pairs == decode_message_tuples(*arguments, strict=strict)
        keys, values = decode_message_lists(*arguments, strict=strict)
        assert pairs == list(zip(keys, values, strict=True))
        assert_columns(payload, header, expected, strict=strict)
        assert (len(expected), sum(row[3] is None for row in expected)) == (
            summary.record_count,
            summary.null_key_count,
        )


def assert_columns(
    payload: bytes, header: Header, expected: list[tuple[Any, ...]], *, strict: bool
) -> None:
    """The columns equal the objects, and their positions point at key and value."""
    columns = RecordColumns(len(expected))
    data = exact(payload)
    count = decode_message_columns(data, native(header), 0, len(payload), columns, strict=strict)
    assert len(expected) == count == len(columns)
    assert [row[0] for row in expected] == columns.offset[:count].tolist()
    assert [row[1] for row in expected] == columns.timestamp[:count].tolist()
    for name, slot in (("key", 3), ("value", 4)):
        starts = getattr(columns, f"{name}_position")[:count].tolist()
        sizes = getattr(columns, f"{name}_size")[:count].tolist()
        assert [row[slot] for row in expected] == [
            None if size < 0 else payload[start : start + size]
            for start, size in zip(starts, sizes, strict=True)
        ]
    assert [0] * count == columns.header_count[:count].tolist()


def header_of(entry: bytes) -> Header:
    """Return the reference's header of an entry whose framing is sound."""
    _, header = parse_message_header(entry)
    assert header is not None
    return header


@settings(max_examples=examples(150))
@given(entry=entries())
def test_any_sound_entry_equals_the_reference(entry: bytes) -> None:
    """Plain messages and wrappers, both magics, all codecs, both time types."""
    header = header_of(entry)
    assert native(header) == parse_header(exact(entry))
    view = BatchView(entry)
    view.check()
    assert [fields(record) for record in slow.decode_entry(entry, header)] == [
        (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value) for r in view.records()
    ]
    assert_decoders_equal_the_reference(slow.decode_payload(entry, header), header)


@settings(max_examples=examples(150))
@given(
    made=messages(),
    codec=st.integers(0, 4),
    log_append_time=st.booleans(),
    shift=st.integers(-3, 3) | st.integers(0, 2**40),
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 7)), max_size=2),
    cut=st.integers(0, 40),
    tail=st.binary(max_size=20),
)
def test_any_damaged_payload_has_the_references_verdict(
    made: list[Message],
    codec: int,
    log_append_time: bool,
    shift: int,
    flips: list[tuple[int, int]],
    cut: int,
    tail: bytes,
) -> None:
    """Flipped bits, cuts, tails, and a wrapper with a wrong last offset."""
    magic = made[0].magic
    last = made[-1].offset
    relative = [replace(m, offset=m.offset - made[0].offset) if magic else m for m in made]
    payload = flipped(slow.encode_messages(relative), flips)
    payload = payload[: max(0, len(payload) - cut)] + tail
    header = Header(
        base_offset=max(0, last + shift),
        magic=magic,
        attributes=codec | (8 if log_append_time and magic else 0),
        base_timestamp=77 if magic else -1,
        max_timestamp=77 if magic else -1,
        record_count=-1 if codec else 1,
    )
    assert_decoders_equal_the_reference(payload, header)


@settings(max_examples=examples(100))
@given(first=messages(0), second=messages(1), magic=st.integers(0, 1), swap=st.booleans())
def test_set_of_both_magics_equals_the_reference(
    first: list[Message], second: list[Message], magic: int, swap: bool
) -> None:
    """Brokers of 0.10.0 wrote such sets: each message is decoded by its magic."""
    parts = [*second, *first] if swap else [*first, *second]
    numbered = [replace(message, offset=row) for row, message in enumerate(parts)]
    payload = slow.encode_messages(numbered)
    header = Header(
        base_offset=len(parts) - 1 + 50 * magic,
        magic=magic,
        attributes=1 | 8 * magic,
        base_timestamp=77 if magic else -1,
        max_timestamp=77 if magic else -1,
        record_count=-1,
    )
    assert_decoders_equal_the_reference(payload, header)


def test_every_prefix_of_a_set_has_the_references_verdict() -> None:
    """A set of three is cut after each byte, with relative and absolute offsets."""
    for magic in (0, 1):
        made = [Message(row, magic, 0, 5, b"k", b"v" * row) for row in range(3)]
        payload = slow.encode_messages(made)
        header = Header(base_offset=2, magic=magic, attributes=1, record_count=-1)
        for size in range(len(payload) + 1):
            assert_decoders_equal_the_reference(payload[:size], header)


@settings(max_examples=examples(120))
@given(
    entry=entries(),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), min_size=1, max_size=2),
)
def test_wrapper_value_of_a_damaged_entry_equals_the_reference(
    entry: bytes, flips: list[tuple[int, int]]
) -> None:
    """The result is the position of the compressed bytes, or the verdict."""
    damaged = bytearray(entry)
    for position, bit in flips:
        damaged[16 + position % (len(damaged) - 16)] ^= 1 << bit
    if damaged[16] > 1 or len(damaged) < 26 + 8 * damaged[16]:
        return
    data = bytes(damaged)
    header = header_of(data)
    if not slow.is_wrapper(header):
        return
    for strict in (True, False):
        try:
            expected = slow.wrapper_value(data, strict=strict)
        except Refused:
            with pytest.raises(KafkaLogError):
                wrapper_value(exact(data), native(header), strict=strict)
            continue
        assert expected == wrapper_value(exact(data), native(header), strict=strict)


@pytest.mark.parametrize("case", LEGACY, ids=lambda case: case["name"])
def test_kafkas_sets_are_read_as_kafka_reads_them(case: dict[str, Any]) -> None:
    """Every outer message of every vector, by the reader of the tests above."""
    data = bytes.fromhex(case["hex"])
    for fact in case["messages"]:
        view = BatchView(data[fact["position"] : fact["position"] + 12 + fact["size"]])
        view.check()
        assert (fact["magic"], fact["crc"], fact["offset"]) == (
            view.header.magic,
            view.header.crc,
            view.last_offset,
        )
        assert [
            (r["offset"], r["timestamp"], unhex(r["key"]), unhex(r["value"]))
            for r in fact["records"]
        ] == [(r.offset, r.timestamp_ms, r.key, r.value) for r in view.records()]


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case["name"])
def test_kafkas_hostile_messages_get_the_references_verdict(case: dict[str, Any]) -> None:
    """Refused, or an equal number of records; other tests compare the reference with Kafka."""
    data = bytes.fromhex(case["hex"])[: case["walk"]["whole_bytes"]]
    if case["walk"]["error"] or len(data) < 26 + 8 * (case["name"][1] == "1"):
        return
    for strict in (True, False):
        try:
            expected: Any = len(slow.decode_entry(data, header_of(data), strict=strict))
        except (Refused, codecs.Damaged):
            expected = None
        try:
            actual = len(BatchView(data).records(strict=strict))
        except KafkaLogError:
            actual = None
        assert expected == actual
