"""Messages of the old formats for tests: sets with every kind, strategies, one judge of all APIs.

`assert_like_reference` holds every decoder of message sets against the slow reference, verdict and
position included.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns
from kafkalog._core.message import (
    check_messages,
    count_messages,
    decode_message_columns,
    decode_message_lists,
    decode_message_tuples,
    decode_messages,
    summarize_messages,
)
from kafkalog._core.record import Record
from kafkalog._core.status import status_name
from kafkalog._engine.iteration import RecordIterator
from kafkalog.errors import CorruptRecordError
from tests.support import reference_messages as reference
from tests.support.buffers import exact
from tests.support.column_rows import RECORD_COLUMNS, rows_of_columns
from tests.support.record_cases import as_batch_header, refusal
from tests.support.reference import Header
from tests.support.reference_messages import Message, OldRecord
from tests.support.reference_records import Refused

__all__ = [
    "MIXED",
    "assert_like_reference",
    "inner_messages",
    "message_header",
    "refusal",
    "wrapper_header",
]

GZIP = 1
TIMESTAMP = 1_700_000_000_000

# Null, empty, short and long fields, and a gap in the offsets, of each magic.
MIXED = {
    magic: tuple(
        Message(offset, magic, 0, TIMESTAMP + offset if magic else -1, key, value)
        for offset, key, value in (
            (0, b"key-0", b"value-0"),
            (1, None, b"v" * 40),
            (2, b"k" * 30, None),
            (3, b"", b""),
            (7, None, None),
            (8, b"k", b"w" * 90),
        )
    )
    for magic in (0, 1)
}


def message_header(message: Message) -> Header:
    """Return the header of a plain message."""
    return Header(
        base_offset=message.offset,
        magic=message.magic,
        attributes=message.attributes,
        base_timestamp=message.timestamp,
        max_timestamp=message.timestamp,
        record_count=1,
    )


def wrapper_header(
    magic: int, offset: int = 1008, *, timestamp: int = TIMESTAMP, attributes: int = GZIP
) -> Header:
    """Return the header of a wrapper, whatever it holds."""
    timestamp = timestamp if magic else -1
    return Header(
        base_offset=offset,
        magic=magic,
        attributes=attributes,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=-1,
    )


@st.composite
def inner_messages(draw: st.DrawFn, magic: int) -> list[Message]:
    """Draw messages in rising offsets from 0 on."""
    fields = st.none() | st.binary(max_size=40)
    messages = []
    offset = -1
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.integers(1, 3) | st.integers(1, 2**40))
        timestamp = draw(st.integers(-(2**63), 2**63 - 1)) if magic else -1
        messages.append(Message(offset, magic, 0, timestamp, draw(fields), draw(fields)))
    return messages


def assert_like_reference(payload: bytes, header: Header, *, strict: bool = True) -> bool:
    """Hold every decoder against the reference, and return whether it took the payload."""
    data, batch_header, end = exact(payload), as_batch_header(header), len(payload)
    columns = RecordColumns(64)
    try:
        expected = reference.decode_messages(payload, header, strict=strict)
    except Refused as refused:
        verdict = (refused.verdict, refused.position)
        for decode in (decode_messages, decode_message_tuples, decode_message_lists):
            with pytest.raises(CorruptRecordError) as caught:
                decode(data, batch_header, 0, end, strict=strict)
            assert verdict == refusal(caught.value)
            assert header.base_offset == caught.value.base_offset
        with pytest.raises(CorruptRecordError) as caught:
            decode_message_columns(data, batch_header, 0, end, columns, strict=strict)
        assert verdict == refusal(caught.value)
        assert 0 == len(columns)
        with pytest.raises(CorruptRecordError) as caught:
            list(RecordIterator(data, batch_header, 0, end, strict=strict))
        assert verdict == refusal(caught.value)
        assert verdict[0] == status_name(check_messages(data, batch_header, 0, end, strict=strict))
        summary = summarize_messages(data, batch_header, 0, end, strict=strict)
        assert verdict == (status_name(summary.status), summary.position)
        with contextlib.suppress(CorruptRecordError):
            count_messages(data, batch_header, 0, end, strict=strict)
        return False
    records = decode_messages(data, batch_header, 0, end, strict=strict)
    _assert_objects(expected, records)
    assert records == list(RecordIterator(data, batch_header, 0, end, strict=strict))
    pairs = [(record.key, record.value) for record in expected]
    assert pairs == decode_message_tuples(data, batch_header, 0, end, strict=strict)
    assert pairs == list(RecordIterator(data, batch_header, 0, end, pairs=True, strict=strict))
    keys, values = decode_message_lists(data, batch_header, 0, end, strict=strict)
    assert pairs == list(zip(keys, values, strict=True))
    assert len(expected) == decode_message_columns(
        data, batch_header, 0, end, columns, strict=strict
    )
    assert _column_rows(expected) == rows_of_columns(columns, RECORD_COLUMNS)
    assert 0 == check_messages(data, batch_header, 0, end, strict=strict)
    assert len(expected) == count_messages(data, batch_header, 0, end, strict=strict)
    _assert_summary(payload, header, expected, strict=strict)
    return True


def _assert_objects(expected: Sequence[OldRecord], records: Sequence[Record]) -> None:
    assert [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, ()) for r in expected] == [
        (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers) for r in records
    ]


def _column_rows(expected: Sequence[OldRecord]) -> list[tuple[int, ...]]:
    """Return every number of every row that the columns must have."""
    return [
        (
            record.offset,
            record.timestamp,
            record.message.key_position,
            -1 if record.key is None else len(record.key),
            record.message.value_position,
            -1 if record.value is None else len(record.value),
            record.message.end,
            0,
            0,
        )
        for record in expected
    ]


def _assert_summary(
    payload: bytes, header: Header, expected: Sequence[OldRecord], *, strict: bool
) -> None:
    """Hold the facts about a good set against those of the reference's records."""
    summary = summarize_messages(payload, as_batch_header(header), 0, len(payload), strict=strict)
    timestamps = [record.timestamp for record in expected if record.timestamp != -1]
    stored = [record.message.offset for record in expected]
    is_wrapper = reference.is_wrapper(header)
    assert (
        0,
        expected[-1].message.end,
        min(timestamps, default=-1),
        max(timestamps, default=-1),
        sum(record.key is None for record in expected),
        len(expected),
        expected[0].offset,
        expected[-1].offset,
        not is_wrapper or stored == list(range(len(stored))),
        sum(record.message.magic != header.magic for record in expected),
    ) == tuple(summary)
