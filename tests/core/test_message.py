"""Tests of message decoders, magic 0 and 1: Kafka's vectors, any bytes, the entry points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns
from kafkalog._core.header import parse_header
from kafkalog._core.message import (
    check_messages,
    count_messages,
    decode_message_columns,
    decode_message_lists,
    decode_message_tuples,
    decode_messages,
    first_message_offset,
    summarize_messages,
    wrapper_value,
)
from kafkalog._core.record import check_records, decode_records
from kafkalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError
from tests.support import golden
from tests.support import reference_messages as reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.message_cases import (
    MIXED,
    TIMESTAMP,
    assert_like_reference,
    inner_messages,
    message_header,
    refusal,
    wrapper_header,
)
from tests.support.record_cases import as_batch_header
from tests.support.reference import Header
from tests.support.reference_messages import Message
from tests.support.reference_records import Refused

SETS = golden.vectors("legacy")["sets"]
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
PAYLOADS = {magic: reference.encode_messages(MIXED[magic]) for magic in (0, 1)}
DECODERS = (
    decode_messages,
    decode_message_tuples,
    decode_message_lists,
    check_messages,
    count_messages,
    summarize_messages,
)


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("case", SETS, ids=lambda case: case["name"])
def test_messages_of_kafkas_sets_are_kafkas_records(case: dict[str, Any]) -> None:
    """Offset, timestamp, its type, key and value in every set, of every codec."""
    data = bytes.fromhex(case["hex"])
    for outer in case["messages"]:
        entry = data[outer["position"] : outer["position"] + 12 + outer["size"]]
        header = parse_header(entry)
        plain = Header(**{name: getattr(header, name) for name in vars(Header())})
        payload = reference.decode_payload(entry, plain)
        if header.is_wrapper:
            start, end = wrapper_value(exact(entry), header)
            assert unhex(outer["value"]) == entry[start:end]
        expected = [
            (
                record["offset"],
                record["timestamp"],
                TYPES[outer["timestamp_type"]],
                unhex(record["key"]),
                unhex(record["value"]),
            )
            for record in outer["records"]
        ]
        records = decode_messages(payload, header, 0, len(payload))
        assert expected == [
            (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value) for r in records
        ]
        assert outer["base_offset"] == first_message_offset(payload, header, 0, len(payload))
        assert assert_like_reference(payload, plain)


# ---- any bytes ----


@pytest.mark.parametrize("magic", [0, 1])
@given(st.data())
@settings(max_examples=examples(80))
def test_messages_of_any_shape_are_decoded_like_the_reference(
    magic: int, data: st.DataObject
) -> None:
    """Null and empty fields, extreme timestamps, gaps, wrappers at any offset, of any type."""
    messages = data.draw(inner_messages(magic))
    above = data.draw(st.integers(0, 2**40))
    header = wrapper_header(
        magic,
        messages[-1].offset + above,
        timestamp=data.draw(st.integers(-(2**63), 2**63 - 1)),
        attributes=data.draw(st.sampled_from([1, 2, 3, 9, 10])),
    )
    assert assert_like_reference(reference.encode_messages(messages), header)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("strict", [True, False])
def test_set_cut_anywhere_has_the_references_verdict(magic: int, strict: bool) -> None:
    """Every proper prefix; an option drops a cut last message, as Kafka does."""
    outcomes = set()
    for size in range(len(PAYLOADS[magic]) + 1):
        payload = PAYLOADS[magic][:size]
        outcomes.add(assert_like_reference(payload, wrapper_header(magic), strict=strict))
    assert {True, False} == outcomes


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("strict", [True, False])
def test_plain_message_cut_anywhere_is_truncated(magic: int, strict: bool) -> None:
    """No whole message is before it."""
    message = MIXED[magic][0]
    payload = reference.encode_message(message)
    header = message_header(message)
    assert assert_like_reference(payload, header, strict=strict)
    for size in range(len(payload)):
        assert not assert_like_reference(payload[:size], header, strict=strict)
        with pytest.raises(CorruptRecordError) as caught:
            decode_messages(exact(payload[:size]), as_batch_header(header), 0, size, strict=strict)
        assert ("TRUNCATED", 0) == refusal(caught.value)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("strict", [True, False])
def test_set_with_a_flipped_bit_has_the_references_verdict(magic: int, strict: bool) -> None:
    """Strict reading finds every flipped bit except those of offsets."""
    outcomes = set()
    for bit in range(8 * len(PAYLOADS[magic])):
        damaged = bytearray(PAYLOADS[magic])
        damaged[bit // 8] ^= 1 << bit % 8
        header = wrapper_header(magic)
        outcomes.add(assert_like_reference(bytes(damaged), header, strict=strict))
    assert {True, False} == outcomes


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("strict", [True, False])
def test_plain_message_with_a_flipped_bit_has_the_references_verdict(
    magic: int, strict: bool
) -> None:
    """Its CRC is the outer one, and this decoder does not check it."""
    message = MIXED[magic][5]
    payload = reference.encode_message(message)
    for bit in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_like_reference(bytes(damaged), message_header(message), strict=strict)


@given(
    st.sampled_from([0, 1]),
    st.binary(max_size=60),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(0, 12),
    st.booleans(),
)
@settings(max_examples=examples(250))
def test_spliced_sets_of_both_magics_have_the_references_verdict(
    magic: int, junk: bytes, cut: int, resume: int, offset: int, strict: bool
) -> None:
    """The beginning of one magic, foreign bytes, and the end of the other."""
    payload = PAYLOADS[magic][:cut] + junk + PAYLOADS[1 - magic][resume:]
    assert_like_reference(payload, wrapper_header(magic, offset), strict=strict)


# ---- offsets and timestamps of a wrapper's messages ----


def test_wrapper_of_magic_0_has_absolute_offsets_and_no_time() -> None:
    """The offset of the wrapper is ignored."""
    messages = decode_messages(
        PAYLOADS[0], as_batch_header(wrapper_header(0, 5000)), 0, len(PAYLOADS[0])
    )
    assert [0, 1, 2, 3, 7, 8] == [message.offset for message in messages]
    assert {(-1, -1)} == {(message.timestamp_ms, message.timestamp_type) for message in messages}


def test_wrapper_of_magic_1_counts_back_from_its_last_message() -> None:
    """The wrapper has the offset of its last message; gaps of compaction are kept."""
    messages = decode_messages(
        PAYLOADS[1], as_batch_header(wrapper_header(1, 5000)), 0, len(PAYLOADS[1])
    )
    assert [4992, 4993, 4994, 4995, 4999, 5000] == [message.offset for message in messages]
    assert [TIMESTAMP, 0] == [messages[0].timestamp_ms, messages[0].timestamp_type]


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (8, 0), (9, 1)])
def test_wrapper_with_offset_zero_counts_from_zero(offset: int, first: int) -> None:
    """A producer may send every wrapper with offset 0."""
    header = as_batch_header(wrapper_header(1, offset))
    assert first == first_message_offset(PAYLOADS[1], header, 0, len(PAYLOADS[1]))
    assert first == decode_messages(PAYLOADS[1], header, 0, len(PAYLOADS[1]))[0].offset


@pytest.mark.parametrize("strict", [True, False])
def test_wrapper_below_its_last_message_is_refused(strict: bool) -> None:
    """Its first message would be below offset 0."""
    for offset in range(1, 8):
        assert not assert_like_reference(PAYLOADS[1], wrapper_header(1, offset), strict=strict)


def test_log_append_time_of_a_wrapper_is_set_on_all_its_messages() -> None:
    """The timestamps of the messages are ignored."""
    header = as_batch_header(wrapper_header(1, timestamp=77, attributes=9))
    messages = decode_messages(PAYLOADS[1], header, 0, len(PAYLOADS[1]))
    assert {(77, 1)} == {(message.timestamp_ms, message.timestamp_type) for message in messages}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("attributes", [1, 9])
def test_messages_of_the_other_magic_are_decoded_by_their_own_format(
    magic: int, attributes: int
) -> None:
    """Cleaners of 0.10.0 wrote such wrappers; the summary counts these messages."""
    messages = [*MIXED[1 - magic][:3], *MIXED[magic][3:]]
    messages[1] = replace(messages[1], attributes=8)
    payload = reference.encode_messages(messages)
    header = wrapper_header(magic, attributes=attributes)
    assert assert_like_reference(payload, header)
    summary = summarize_messages(payload, as_batch_header(header), 0, len(payload))
    assert 3 == summary.other_magic_count


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("codec", range(1, 8))
def test_wrapper_inside_a_wrapper_is_refused(codec: int, strict: bool) -> None:
    """No broker ever wrote one; nesting would multiply the decompressed size."""
    inner = replace(MIXED[1][1], attributes=codec)
    payload = reference.encode_messages([MIXED[1][0], inner])
    assert not assert_like_reference(payload, wrapper_header(1), strict=strict)


@pytest.mark.parametrize("offsets", [(1, 0), (0, 0), (-1, 0), (-(2**63), 2**63 - 1)], ids=str)
def test_inner_offsets_that_do_not_rise_are_read_only_without_strict(
    offsets: tuple[int, int],
) -> None:
    """Kafka's readers accept them."""
    for magic in (0, 1):
        payload = reference.encode_messages(
            replace(MIXED[magic][0], offset=offset) for offset in offsets
        )
        header = wrapper_header(magic, 2**63 - 2 if offsets[1] < 5 else 0)
        assert not assert_like_reference(payload, header, strict=True)
        assert assert_like_reference(payload, header, strict=False)


def test_sparse_wrapper_is_not_dense() -> None:
    """A leader keeps a wrapper of magic 1 only if its messages count 0, 1, 2."""
    header = as_batch_header(wrapper_header(1))
    dense = reference.encode_messages(MIXED[1][:4])
    assert summarize_messages(dense, header, 0, len(dense)).is_dense
    assert not summarize_messages(PAYLOADS[1], header, 0, len(PAYLOADS[1])).is_dense


# ---- value of a wrapper ----


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_value_cut_or_flipped_has_the_references_verdict(magic: int) -> None:
    """Key and value of a wrapper are read like those of a plain message."""
    message = Message(9, magic, 1, TIMESTAMP, b"k", b"compressed")
    entry = reference.encode_message(message)
    header = as_batch_header(message_header(message))
    for strict in (True, False):
        assert (entry.index(b"comp"), len(entry)) == wrapper_value(
            exact(entry), header, strict=strict
        )
        for bit in range(8 * len(entry)):
            damaged = bytearray(entry)
            damaged[bit // 8] ^= 1 << bit % 8
            _assert_value_like_reference(bytes(damaged), message, strict=strict)
        for size in range(len(entry)):
            _assert_value_like_reference(entry[:size], message, strict=strict)


def _assert_value_like_reference(entry: bytes, message: Message, *, strict: bool) -> None:
    header = as_batch_header(message_header(message))
    try:
        expected = reference.wrapper_value(entry, strict=strict)
    except Refused as refused:
        if refused.verdict == "UNKNOWN_CODEC":
            return  # of the bytes; the header has another codec
        with pytest.raises(CorruptRecordError) as caught:
            wrapper_value(exact(entry), header, strict=strict)
        assert (refused.verdict, refused.position) == refusal(caught.value)
    else:
        assert expected == wrapper_value(exact(entry), header, strict=strict)


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_wrapper_with_a_codec_of_later_formats_is_refused(codec: int) -> None:
    """Also zstd, which magic 2 introduced."""
    message = Message(9, 1, codec, TIMESTAMP, None, b"compressed")
    entry = reference.encode_message(message)
    with pytest.raises(UnsupportedCodecError):
        wrapper_value(entry, as_batch_header(message_header(message)))


def test_wrapper_value_of_a_plain_message_raises() -> None:
    """A plain message has no compressed value."""
    message = MIXED[1][0]
    with pytest.raises(ValueError, match="plain message"):
        wrapper_value(reference.encode_message(message), as_batch_header(message_header(message)))


# ---- entry points ----


@pytest.mark.parametrize("kind", BUFFER_KINDS)
@pytest.mark.parametrize("prefix", [0, 61])
def test_messages_are_read_from_every_kind_of_buffer(kind: str, prefix: int) -> None:
    """At any position; positions count from the first byte of the buffer."""
    data = BUFFER_KINDS[kind](b"\xff" * prefix + PAYLOADS[1] + b"\xff" * 5)
    header, end = as_batch_header(wrapper_header(1)), prefix + len(PAYLOADS[1])
    pairs = [(message.key, message.value) for message in MIXED[1]]
    assert pairs == [(r.key, r.value) for r in decode_messages(data, header, prefix, end)]
    assert pairs == decode_message_tuples(data, header, prefix, end)
    assert tuple(map(list, zip(*pairs, strict=True))) == decode_message_lists(
        data, header, prefix, end
    )
    columns = RecordColumns(6)
    assert 6 == decode_message_columns(data, header, prefix, end, columns)
    assert prefix + 30 == columns.key_position[0]
    assert end == summarize_messages(data, header, prefix, end).position


@pytest.mark.parametrize("bounds", [(-1, 5), (3, 2), (0, 11), (11, 11)], ids=str)
def test_bounds_outside_the_buffer_raise_index_error(bounds: tuple[int, int]) -> None:
    """They are not clamped: a wrong position is a mistake of the caller."""
    header = as_batch_header(wrapper_header(1))
    for decode in DECODERS:
        with pytest.raises(IndexError, match="outside the 10 bytes"):
            decode(bytes(10), header, *bounds)


def test_header_of_the_other_kind_is_refused() -> None:
    """The kernels of each format refuse headers of the other."""
    for decode in DECODERS:
        with pytest.raises(ValueError, match="magic must be 0 or 1, got 2"):
            decode(PAYLOADS[1], as_batch_header(Header(record_count=1)), 0, len(PAYLOADS[1]))
    old = as_batch_header(message_header(MIXED[1][0]))
    with pytest.raises(InvalidRecordError, match="magic 0 or 1"):
        decode_records(PAYLOADS[1], old, 0, len(PAYLOADS[1]))
    assert 0 != check_records(PAYLOADS[1], old, 0, len(PAYLOADS[1]))


def test_columns_too_small_keep_their_rows() -> None:
    """No row is written unless all rows fit."""
    header, size = as_batch_header(wrapper_header(1)), len(PAYLOADS[1])
    columns = RecordColumns(11)
    decode_message_columns(PAYLOADS[1], header, 0, size, columns)
    with pytest.raises(InvalidRecordError, match="buffer is full"):
        decode_message_columns(PAYLOADS[1], header, 0, size, columns)
    assert 6 == len(columns)


def test_large_sets_without_the_gil_are_read_correctly() -> None:
    """Above a size limit the columns and the check release the GIL."""
    messages = [Message(slot, 1, 0, slot, b"k", b"v" * 2000) for slot in range(300)]
    payload = reference.encode_messages(messages)
    header = as_batch_header(wrapper_header(1, 299))
    columns = RecordColumns(300)
    assert 300 == decode_message_columns(payload, header, 0, len(payload), columns)
    assert list(range(300)) == columns.offset.tolist()
    assert 0 == check_messages(payload, header, 0, len(payload))
    assert 0 != check_messages(payload, header, 0, len(payload) - 1)
