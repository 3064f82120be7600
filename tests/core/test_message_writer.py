"""Messages of the old formats from decoded rows: equal to the reference, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns
from kafkalog._core.message_writer import encode_messages, wrap_messages
from kafkalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError
from tests.support import reference_codecs as codecs
from tests.support import reference_records as records
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, case_columns, entries, header_for
from tests.support.reference_messages import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Message,
    encode_set,
)
from tests.support.reference_messages import (
    encode_messages as reference_messages,
)
from tests.support.reference_records import Entry

BASE = 1000


def messages_of(case: tuple[Entry, ...], magic: int) -> list[Message]:
    """Return the same records as messages with true offsets."""
    start = header_for(case).base_timestamp
    return [
        Message(
            BASE + entry.offset_delta,
            magic,
            0,
            start + entry.timestamp_delta,
            entry.key,
            entry.value,
        )
        for entry in case
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_encode_messages_is_what_the_reference_writes(magic: int) -> None:
    """Null, empty and long fields, holes; headers are left out."""
    expected = reference_messages(messages_of(MIXED, magic))
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    assert expected == encode_messages(MIXED_PAYLOAD, columns, magic=magic)
    part = reference_messages(messages_of(MIXED, magic)[2:5])
    assert part == encode_messages(MIXED_PAYLOAD, columns, magic=magic, start=2, stop=5)


@pytest.mark.parametrize("append_time", [None, 1_700_000_000_000, -1])
@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_is_what_the_reference_writes(
    magic: int, codec: int, append_time: int | None
) -> None:
    """Relative offsets in v1, absolute ones in v0; the time of the wrapper."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    messages = messages_of(MIXED, magic)
    inner = encode_messages(
        MIXED_PAYLOAD,
        columns,
        magic=magic,
        base_offset=BASE if magic else 0,
        append_time=append_time,
    )
    wrapper = wrap_messages(
        codecs.compress(codec, bytes(inner), magic),
        magic=magic,
        codec=codec,
        last_offset=messages[-1].offset,
        max_timestamp=max(message.timestamp for message in messages),
        append_time=append_time,
    )
    expected = encode_set(
        messages,
        codec=codec,
        timestamp_type=CREATE_TIME if append_time is None else LOG_APPEND_TIME,
        append_time=-1 if append_time is None else append_time,
    )
    assert expected == wrapper


@settings(max_examples=50, deadline=None)
@given(entries().filter(bool), st.integers(0, 1))
def test_encode_messages_of_any_records_is_what_the_reference_writes(
    found: list[Entry], magic: int
) -> None:
    """Whatever a batch may hold, as long as a message can say it."""
    case = tuple(
        Entry(number * 3, abs(one.timestamp_delta) % 2**40, one.key, one.value, one.headers)
        for number, one in enumerate(found)
    )
    payload = records.encode(case)
    expected = reference_messages(messages_of(case, magic))
    assert expected == encode_messages(payload, case_columns(payload, case), magic=magic)


def test_no_rows_are_no_messages() -> None:
    """Over a buffer without a byte."""
    assert b"" == encode_messages(b"", RecordColumns(1), magic=1)


def test_timestamp_below_minus_one_is_refused_where_it_would_be_stored() -> None:
    """Magic 0 stores none."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.timestamp[3] = -2
    with pytest.raises(InvalidRecordError, match="-2"):
        encode_messages(MIXED_PAYLOAD, columns, magic=1)
    assert encode_messages(MIXED_PAYLOAD, columns, magic=0)
    assert encode_messages(MIXED_PAYLOAD, columns, magic=1, append_time=5)
    with pytest.raises(InvalidRecordError, match="append time -2"):
        encode_messages(MIXED_PAYLOAD, columns, magic=1, append_time=-2)


def test_rows_that_cannot_be_are_refused() -> None:
    """Outside the buffer, or with offsets that do not rise."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.value_position[1] = len(MIXED_PAYLOAD)
    with pytest.raises(CorruptRecordError, match="runs past"):
        encode_messages(MIXED_PAYLOAD, columns, magic=1)
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.offset[2] = columns.offset[1]
    with pytest.raises(CorruptRecordError, match="rise"):
        encode_messages(MIXED_PAYLOAD, columns, magic=1)
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    with pytest.raises(CorruptRecordError, match="rise"):
        encode_messages(MIXED_PAYLOAD, columns, magic=1, base_offset=BASE + 1)


def test_arguments_that_cannot_be_are_refused() -> None:
    """Formats, rows and codecs that do not exist."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    with pytest.raises(ValueError, match="magic"):
        encode_messages(MIXED_PAYLOAD, columns, magic=2)
    for start, stop in ((-1, 2), (3, 2), (0, 10)):
        with pytest.raises(ValueError, match="rows"):
            encode_messages(MIXED_PAYLOAD, columns, magic=1, start=start, stop=stop)
    for codec in (0, 4, 8):
        with pytest.raises(UnsupportedCodecError):
            wrap_messages(b"x", magic=1, codec=codec, last_offset=1)
    with pytest.raises(ValueError, match="0 bytes"):
        wrap_messages(b"", magic=1, codec=1, last_offset=1)
    with pytest.raises(ValueError, match="offset -1"):
        wrap_messages(b"x", magic=1, codec=1, last_offset=-1)
