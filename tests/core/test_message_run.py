"""Tests of runs of plain messages, compared with each message decoded alone."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.message import decode_run_lists, decode_run_records, decode_run_tuples
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog.records.batch_view import BatchView
from tests.core.test_message_properties import messages
from tests.core.test_mixed_runs import runs
from tests.support import reference_messages as slow
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.message_cases import MIXED
from tests.support.reference_messages import encode_messages

OK, MAGIC = STATUS_CODES["OK"], STATUS_CODES["MAGIC"]
MAGICS = pytest.mark.parametrize("magic", [0, 1])

# offset, timestamp, its type, key, value, headers
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[object, ...]]


def row_of(record: Record) -> Row:
    """Return the fields of a record that are compared."""
    return (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )


def one_by_one(data: bytes, *, check_crc: bool, strict: bool) -> tuple[list[Record], int, int]:
    """Decode entry after entry alone, and stop at the first that is not a valid message."""
    records: list[Record] = []
    position = 0
    while position < len(data):
        columns = BatchColumns(1)
        found = scan_batches(data, position, columns=columns, check_crc=False, check_order=False)
        if not found.count:
            return records, position, found.status
        if columns.magic[0] == 2:
            return records, position, MAGIC
        entry = data[position : position + int(columns.size_bytes[0])]
        _, _, _, status = decode_run(entry, 0, RecordColumns(1), check_crc=check_crc, strict=strict)
        if status != OK:
            return records, position, status
        records += BatchView(entry).records(strict=strict)
        position += len(entry)
    return records, position, OK


def assert_like_one_by_one(data: bytes) -> None:
    """Compare all three entry points with the slow path, with and without CRC and strictness."""
    for check_crc in (True, False):
        for strict in (True, False):
            expected, position, status = one_by_one(data, check_crc=check_crc, strict=strict)
            buffer = exact(data)
            records, *end = decode_run_records(buffer, check_crc=check_crc, strict=strict)
            assert [row_of(record) for record in expected] == [row_of(each) for each in records]
            assert [position, status] == end
            pairs = [(record.key, record.value) for record in expected]
            tuples, *end = decode_run_tuples(buffer, check_crc=check_crc, strict=strict)
            assert (pairs, [position, status]) == (tuples, end)
            keys, values, *end = decode_run_lists(buffer, check_crc=check_crc, strict=strict)
            assert (pairs, [position, status]) == (list(zip(keys, values, strict=True)), end)


@settings(max_examples=examples(150))
@given(
    runs() | messages().map(encode_messages),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=2),
    st.integers(0, 40),
)
def test_decode_run_of_any_bytes_equals_single_messages(
    data: bytes, flips: list[tuple[int, int]], cut: int
) -> None:
    """Mixed with wrappers and v2, cut, and with changed bytes."""
    damaged = bytearray(data[: len(data) - cut] if cut < 20 else data)
    for place, mask in flips:
        if damaged:
            damaged[place % len(damaged)] ^= mask
    assert_like_one_by_one(bytes(damaged))


@MAGICS
def test_decode_run_round_trips(magic: int) -> None:
    """Null, empty and long fields and gaps of offsets, encoded by the reference."""
    made = MIXED[magic]
    records, position, status = decode_run_records(encode_messages(made))
    assert [(m.offset, m.timestamp, m.key, m.value) for m in made] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in records
    ]
    assert (len(encode_messages(made)), OK) == (position, status)
    assert [0 if magic else -1] * len(made) == [r.timestamp_type for r in records]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_decode_run_stops_at_a_wrapper(codec: int) -> None:
    """The caller continues with the plain messages after it."""
    plain, wrapper = encode_messages(MIXED[1]), slow.encode_set(MIXED[1], codec=codec)
    data = plain + wrapper + plain
    records, position, status = decode_run_records(data)
    assert (6, len(plain), STATUS_CODES["COMPRESSED"]) == (len(records), position, status)
    records, position, status = decode_run_records(data, len(plain + wrapper))
    assert (6, len(data), OK) == (len(records), position, status)


def test_decode_run_between_positions_stays_inside() -> None:
    """The end is between two messages, or inside one, which is then truncated."""
    data = encode_messages(MIXED[0])
    first = len(encode_messages(MIXED[0][:1]))
    assert ([(b"key-0", b"value-0")], first, OK) == decode_run_tuples(data, end=first)
    cut = decode_run_tuples(data, end=first + 3)
    assert ([(b"key-0", b"value-0")], first, STATUS_CODES["TRUNCATED"]) == cut
    assert ([], [], first, OK) == decode_run_lists(data, first, end=first)
    with pytest.raises(IndexError):
        decode_run_records(data, 0, end=len(data) + 1)
    with pytest.raises(IndexError):
        decode_run_records(data, -1)


@pytest.mark.parametrize("kind", BUFFER_KINDS)
def test_decode_run_of_every_kind_of_buffer(kind: str) -> None:
    """Any object that exports its bytes."""
    data = BUFFER_KINDS[kind](encode_messages(MIXED[1]))
    assert [m.key for m in MIXED[1]] == [r.key for r in decode_run_records(data)[0]]


def test_decode_run_records_hold_the_buffer_until_detached() -> None:
    """Lazy records keep the buffer; tuples and lists do not."""
    data = bytearray(encode_messages(MIXED[1]))
    decode_run_tuples(data)
    decode_run_lists(data)
    data.append(0)
    records = decode_run_records(data)[0]
    with pytest.raises(BufferError):
        data.append(0)
    for record in records:
        record.detach()
    del record
    gc.collect()
    data.append(0)
    assert [m.value for m in MIXED[1]] == [r.value for r in records]
