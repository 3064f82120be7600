"""Tests of decoded rows copied to another batch, and packed for digests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.decoded_rows import DecodedRows, pack_rows
from kafkalog._core.header import parse_header
from kafkalog._core.record import decode_records
from kafkalog.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from tests.support import reference_records as records
from tests.support.examples import examples
from tests.support.record_cases import (
    MIXED,
    MIXED_PAYLOAD,
    as_batch_header,
    case_columns,
    entries,
    header_for,
)
from tests.support.reference_records import Entry

BASE = 1000


def rebuilt(payload: bytes, case: tuple[Entry, ...], base_offset: int | None) -> bytes:
    """Return the batch built from the columns."""
    builder = BatchBuilder(capacity=64)
    assert len(case) == builder.extend_decoded(
        payload, case_columns(payload, case), base_offset=base_offset
    )
    return bytes(builder.finish(base_offset=BASE))


def by_one(payload: bytes, case: tuple[Entry, ...], *, gaps: bool) -> bytes:
    """Return the batch built by single appends."""
    builder = BatchBuilder()
    decoded = decode_records(payload, as_batch_header(header_for(case)), 0, len(payload))
    for number, record in enumerate(decoded):
        delta = record.offset - BASE if gaps else number
        builder.append_at(delta, record.key, record.value, record.timestamp_ms, record.headers)
    return bytes(builder.finish(base_offset=BASE))


@pytest.mark.parametrize("gaps", [True, False])
def test_extend_decoded_of_mixed_records_equals_appending_one_by_one(gaps: bool) -> None:
    """Offsets and gaps are kept or reassigned; headers are copied."""
    expected = by_one(MIXED_PAYLOAD, MIXED, gaps=gaps)
    assert expected == rebuilt(MIXED_PAYLOAD, MIXED, BASE if gaps else None)


@settings(max_examples=examples(50))
@given(entries().filter(bool))
def test_extend_decoded_of_any_records_equals_appending_one_by_one(
    found: list[Entry],
) -> None:
    """The same for records drawn at random."""
    case = tuple(
        Entry(number * 3, abs(one.timestamp_delta) % 2**40, one.key, one.value, one.headers)
        for number, one in enumerate(found)
    )
    payload = records.encode(case)
    assert by_one(payload, case, gaps=True) == rebuilt(payload, case, BASE)


def test_extend_decoded_stops_at_the_size_limit_and_continues_in_the_next_batch() -> None:
    """The count is the number of added records; the first record of a batch always fits."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    builder = BatchBuilder()
    taken = []
    start = 0
    while start < len(columns):
        builder.reset()
        base = int(columns.offset[start])
        count = builder.extend_decoded(
            MIXED_PAYLOAD, columns, start, base_offset=base, size_limit=200
        )
        assert count == 1 or len(builder.finish(base_offset=base)) <= 200
        taken.append(count)
        start += count
    assert len(MIXED) == sum(taken)
    assert len(taken) > 2


def test_extend_decoded_stops_before_an_offset_too_far_away() -> None:
    """An offset delta has 31 bits: after a larger gap of a compacted log a new batch begins."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.offset[3:] += 2**31
    builder = BatchBuilder()
    assert 3 == builder.extend_decoded(MIXED_PAYLOAD, columns, base_offset=BASE)
    builder.reset()
    with pytest.raises(RecordTooLargeError):
        builder.extend_decoded(MIXED_PAYLOAD, columns, 3, base_offset=BASE)
    assert 6 == builder.extend_decoded(
        MIXED_PAYLOAD, columns, 3, base_offset=int(columns.offset[3])
    )


@pytest.mark.parametrize("below", [0, 1])
def test_extend_decoded_refuses_offsets_that_do_not_rise(below: int) -> None:
    """The error has the record at or below the one before; records before it are added."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.offset[2] = columns.offset[1] - below
    builder = BatchBuilder()
    with pytest.raises(CorruptRecordError, match="rise"):
        builder.extend_decoded(MIXED_PAYLOAD, columns, base_offset=BASE)
    assert 2 == builder.count


def test_extend_decoded_refuses_a_timestamp_below_minus_one() -> None:
    """All methods of a builder refuse it."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.timestamp[1] = -2
    with pytest.raises(InvalidRecordError, match="-2"):
        BatchBuilder().extend_decoded(MIXED_PAYLOAD, columns, base_offset=BASE)


@pytest.mark.parametrize("name", ["key", "value", "headers"])
@pytest.mark.parametrize("position", [-1, len(MIXED_PAYLOAD) - 2, 2**62])
def test_rows_outside_the_buffer_are_refused(name: str, position: int) -> None:
    """Any code can write to the columns: nothing outside the buffer is read."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    getattr(columns, f"{name}_position")[6] = position
    with pytest.raises(CorruptRecordError):
        BatchBuilder().extend_decoded(MIXED_PAYLOAD, columns, base_offset=BASE)
    with pytest.raises(CorruptRecordError):
        pack_rows(MIXED_PAYLOAD, columns)


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_rows_with_an_impossible_headers_size_are_refused(size: int) -> None:
    """The size of headers is never null."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    columns.headers_size[5] = size
    with pytest.raises(CorruptRecordError):
        pack_rows(MIXED_PAYLOAD, columns)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10)])
def test_rows_outside_the_columns_raise(start: int, stop: int) -> None:
    """The columns have nine rows."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    with pytest.raises(ValueError, match="rows"):
        BatchBuilder().extend_decoded(MIXED_PAYLOAD, columns, start, stop)
    with pytest.raises(ValueError, match="rows"):
        pack_rows(MIXED_PAYLOAD, columns, start=start, stop=stop)


def test_extend_decoded_refuses_a_negative_base_offset() -> None:
    """No batch has a negative base offset."""
    with pytest.raises(ValueError, match="base_offset -1"):
        BatchBuilder().extend_decoded(
            MIXED_PAYLOAD, case_columns(MIXED_PAYLOAD, MIXED), base_offset=-1
        )


def test_empty_columns_add_no_records() -> None:
    """An empty batch has empty columns and an empty buffer."""
    columns = RecordColumns(1)
    assert 0 == BatchBuilder().extend_decoded(b"", columns)
    assert 0 == len(DecodedRows(b"", columns))
    assert b"" == pack_rows(b"", columns)


def test_pack_rows_has_all_fields_of_each_record_and_the_tag() -> None:
    """The order is offset, timestamp, sizes, tag, key, value, headers."""
    columns = case_columns(MIXED_PAYLOAD, MIXED)
    packed = pack_rows(MIXED_PAYLOAD, columns, start=1, stop=6, tag=b"tag")
    expected = b""
    timestamp = header_for(MIXED).base_timestamp
    for entry in MIXED[1:6]:
        headers = records.encode([Entry(headers=entry.headers)])[7:]
        expected += struct.pack(
            ">qqiiii",
            BASE + entry.offset_delta,
            timestamp + entry.timestamp_delta,
            -1 if entry.key is None else len(entry.key),
            -1 if entry.value is None else len(entry.value),
            len(entry.headers),
            len(headers),
        )
        expected += b"tag" + (entry.key or b"") + (entry.value or b"") + headers
    assert expected == packed


def test_pack_rows_does_not_depend_on_the_batches() -> None:
    """The same records in two batches or in one are packed to the same bytes."""
    whole = pack_rows(MIXED_PAYLOAD, case_columns(MIXED_PAYLOAD, MIXED))
    parts = bytearray()
    for start, stop in ((0, 4), (4, 9)):
        builder = BatchBuilder()
        base = BASE + MIXED[start].offset_delta
        builder.extend_decoded(
            MIXED_PAYLOAD, case_columns(MIXED_PAYLOAD, MIXED), start, stop, base_offset=base
        )
        batch = bytes(builder.finish(base_offset=base))
        columns = RecordColumns(9)
        decode_columns(batch, parse_header(batch), 61, len(batch), columns)
        parts += pack_rows(batch, columns)
    assert whole == parts
