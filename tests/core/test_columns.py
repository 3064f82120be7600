"""Tests of `RecordColumns` and `decode_run`: rows, positions, capacity and end of a run."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns, decode_columns, decode_run
from kafkalog._core.status import status_name
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.support import golden, reference
from tests.support import reference_messages as messages
from tests.support import reference_records as records
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.column_rows import RECORD_COLUMNS, reference_run
from tests.support.examples import examples
from tests.support.message_cases import MIXED as MIXED_MESSAGES
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, as_batch_header, header_for
from tests.support.reference import Header
from tests.support.reference_records import Entry

VECTORS = golden.vectors("batches")


def batch_of(*entries: Entry, **fields: Any) -> bytes:
    """Return a whole batch with a valid CRC."""
    return reference.encode_batch(header_for(entries, **fields), records.encode(entries))


def run_of(
    data: bytes, position: int = 0, *, capacity: int = 1000, **options: Any
) -> tuple[int, int, int, str, list[int]]:
    """Return the result of decode_run, with the name of the status, and its offsets."""
    columns = RecordColumns(capacity)
    rows, batches, reached, status = decode_run(exact(data), position, columns, **options)
    assert rows == len(columns)
    return rows, batches, reached, status_name(status), columns.offset.tolist()


def long_entries(value_size: int) -> list[Entry]:
    """Return records of about 100 KiB, at least six tiles, all of different sizes."""
    return [
        Entry(delta, delta % 5, b"key", bytes([delta % 256]) * (value_size + delta % 7))
        for delta in range(100 * 1024 // value_size + 1)
    ]


FIRST = batch_of(Entry(0, 0, b"a", b"b"), Entry(1, 0, b"c" * 40, b"d" * 40), base_offset=0)
SECOND = batch_of(*MIXED, base_offset=10)
EMPTY = batch_of(base_offset=20_000, last_offset_delta=5)
RUN = FIRST + SECOND + EMPTY + FIRST


def test_run_of_batches_fills_one_set_of_columns() -> None:
    """Batches without records count but add no row; positions are in the whole buffer."""
    rows, batches, reached, status, offsets = run_of(RUN)
    assert (4 + len(MIXED), 4, len(RUN), "OK") == (rows, batches, reached, status)
    assert [0, 1, *(10 + entry.offset_delta for entry in MIXED), 0, 1] == offsets


def test_positions_of_a_run_point_at_the_fields() -> None:
    """Slices of the buffer at the columns' positions equal the fields."""
    columns = RecordColumns(100)
    prefix = b"\xee" * 7
    decode_run(prefix + RUN, len(prefix), columns)
    entries = [Entry(0, 0, b"a", b"b"), Entry(1, 0, b"c" * 40, b"d" * 40), *MIXED]
    data = prefix + RUN
    for part in ("key", "value"):
        positions = getattr(columns, f"{part}_position").tolist()
        sizes = getattr(columns, f"{part}_size").tolist()
        fields = [
            None if size < 0 else data[position : position + size]
            for position, size in zip(positions, sizes, strict=True)
        ]
        assert [getattr(entry, part) for entry in entries] == fields[: len(entries)]


@pytest.mark.parametrize("case", VECTORS["runs"], ids=lambda case: case["name"])
def test_run_of_kafkas_vectors_stops_like_kafkas_walk(case: dict[str, Any]) -> None:
    """Or it stops at the first compressed batch, like the reference."""
    data = bytes.fromhex(case["hex"])
    expected = reference_run(data, check_crc=True, strict=True)
    assert expected == run_of(data)[:4]
    if expected[3] != "COMPRESSED":
        assert case["whole_bytes"] == expected[2]


@pytest.mark.parametrize("check_crc", [True, False])
def test_run_cut_anywhere_ends_truncated_or_between_batches(check_crc: bool) -> None:
    """Whole batches are decoded, the rest is TRUNCATED."""
    data = FIRST + EMPTY + FIRST
    for size in range(len(data)):
        expected = reference_run(data[:size], check_crc=check_crc, strict=True)
        assert expected == run_of(data[:size], check_crc=check_crc)[:4]
        assert expected[3] in ("OK", "TRUNCATED")


@pytest.mark.parametrize("strict", [True, False])
def test_run_with_a_flipped_bit_has_the_references_verdict(strict: bool) -> None:
    """The CRC is not checked: header and records alone decide."""
    data = FIRST + FIRST
    for bit in range(8 * len(FIRST)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        expected = reference_run(bytes(damaged), check_crc=False, strict=strict)
        assert expected == run_of(bytes(damaged), check_crc=False, strict=strict)[:4]


@given(st.binary(max_size=150), st.integers(0, len(RUN)), st.integers(0, len(RUN)))
@settings(max_examples=examples(60))
def test_spliced_run_has_the_references_verdict(junk: bytes, cut: int, resume: int) -> None:
    """Foreign bytes between two parts of a valid run."""
    data = RUN[:cut] + junk + RUN[resume:]
    assert reference_run(data, check_crc=True, strict=True) == run_of(data)[:4]


def test_whole_batch_with_a_cut_record_is_not_truncated() -> None:
    """TRUNCATED means that bytes are missing after the end: here none are."""
    payload = records.encode([Entry(0, 0, b"key", b"v" * 100)])[:-30]
    data = reference.encode_batch(Header(record_count=1), payload)
    assert (0, 0, 0, "RECORD_LENGTH", []) == run_of(data)


def test_run_stops_before_a_batch_that_does_not_fit_and_continues_after_clear() -> None:
    """A batch is added whole or not at all."""
    columns = RecordColumns(len(MIXED) + 3)
    assert (2 + len(MIXED), 3) == decode_run(RUN, 0, columns)[:2]
    position = len(FIRST) + len(SECOND) + len(EMPTY)
    rows, batches, reached, status = decode_run(RUN, position, columns)
    assert (0, 0, position, "FULL") == (rows, batches, reached, status_name(status))
    assert 2 + len(MIXED) == len(columns)
    columns.clear()
    assert 0 == len(columns)
    assert (2, 1, len(RUN), 0) == decode_run(RUN, position, columns)


def test_run_without_space_checks_the_crc_only_with_empty_columns() -> None:
    """A caller with rows calls again for the verdict; one without would grow the columns."""
    damaged = bytearray(FIRST)
    damaged[-2] ^= 1
    data = FIRST + bytes(damaged)
    assert (2, 1, len(FIRST), "FULL", [0, 1]) == run_of(data, capacity=3)
    assert (0, 0, len(FIRST), "CRC", []) == run_of(data, len(FIRST), capacity=1)
    assert (0, 0, 0, "FULL", []) == run_of(data, capacity=1)


@pytest.mark.parametrize("value_size", [20, 300, 40_000])
def test_batch_of_many_tiles_equals_one_decode(value_size: int) -> None:
    """Records cross the end of a tile or are longer than a tile."""
    entries = long_entries(value_size)
    payload = records.encode(entries)
    header = header_for(entries, base_offset=7)
    expected = RecordColumns(len(entries))
    decode_columns(payload, as_batch_header(header), 0, len(payload), expected)
    actual = RecordColumns(len(entries))
    decode_run(reference.encode_batch(header, payload), 0, actual)
    for name in RECORD_COLUMNS:
        shift = 61 if name.endswith("_position") else 0
        assert (getattr(expected, name) + shift).tolist() == getattr(actual, name).tolist()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.99])
def test_damage_in_a_batch_of_many_tiles_is_reported_by_the_crc_first(share: float) -> None:
    """No row of the batch is left, for damage in any tile."""
    entries = long_entries(300)
    starts = [len(records.encode(entries[:count])) for count in range(len(entries))]
    payload = bytearray(records.encode(entries))
    payload[starts[int(share * len(entries))]] ^= 1  # the length of a record becomes negative
    header = header_for(entries)
    data = FIRST + reference.encode_batch(header, bytes(payload))
    expected = reference_run(data, check_crc=True, strict=True)
    assert (2, 1, len(FIRST), "RECORD_LENGTH") == expected
    assert expected == run_of(data)[:4]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    assert (2, 1, len(FIRST), "CRC", [0, 1]) == run_of(bytes(damaged))
    assert expected == run_of(bytes(damaged), check_crc=False)[:4]


def test_batch_of_many_tiles_with_one_record_less_than_counted_is_refused() -> None:
    """And with one record more: the last tile is checked."""
    entries = long_entries(300)
    for surplus, verdict in ((1, "RECORD_LENGTH"), (-1, "TRAILING_BYTES")):
        header = header_for(entries, record_count=len(entries) + surplus)
        data = reference.encode_batch(header, records.encode(entries))
        assert (0, 0, 0, verdict, []) == run_of(data)
        assert (0, 0, 0, verdict) == reference_run(data, check_crc=True, strict=True)


@pytest.mark.parametrize("codec", range(1, 8))
def test_run_stops_at_a_compressed_batch(codec: int) -> None:
    """The caller decompresses it and calls again after it."""
    data = FIRST + reference.encode_batch(Header(attributes=codec, record_count=3), b"???")
    expected = "COMPRESSED" if codec <= 4 else "UNKNOWN_CODEC"
    assert (2, 1, len(FIRST), expected) == run_of(data)[:4]


# Messages of both old formats around a batch.
OLD_RUN = b"".join(
    (
        messages.encode_messages(MIXED_MESSAGES[0]),
        FIRST,
        messages.encode_messages(MIXED_MESSAGES[1]),
    )
)


@pytest.mark.parametrize(
    "case",
    [case for case in golden.vectors("legacy")["sets"] if "_none_" in case["name"]],
    ids=lambda case: case["name"],
)
def test_run_of_kafkas_plain_messages_has_one_row_per_message(case: dict[str, Any]) -> None:
    """The row has offset, timestamp, key and value of the message."""
    data = bytes.fromhex(case["hex"])
    columns = RecordColumns(20)
    count = len(case["messages"])
    assert (count, count, len(data), 0) == decode_run(exact(data), 0, columns)
    expected = [record for outer in case["messages"] for record in outer["records"]]
    assert [record["offset"] for record in expected] == columns.offset.tolist()
    assert [record["timestamp"] for record in expected] == columns.timestamp.tolist()
    for part, positions, sizes in (
        ("key", columns.key_position, columns.key_size),
        ("value", columns.value_position, columns.value_size),
    ):
        assert [record[part] for record in expected] == [
            None if size < 0 else data[position : position + size].hex()
            for position, size in zip(positions.tolist(), sizes.tolist(), strict=True)
        ]
    assert [0] * count == columns.header_count.tolist() == columns.headers_size.tolist()


@pytest.mark.parametrize("check_crc", [True, False])
def test_run_of_mixed_formats_cut_anywhere_has_the_references_verdict(check_crc: bool) -> None:
    """Magic 0, 2 and 1 in one run, as in a log of a broker that was upgraded."""
    assert (14, 13, len(OLD_RUN), "OK") == run_of(OLD_RUN)[:4]
    for size in range(len(OLD_RUN)):
        expected = reference_run(OLD_RUN[:size], check_crc=check_crc, strict=True)
        assert expected == run_of(OLD_RUN[:size], check_crc=check_crc)[:4]


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_run_of_mixed_formats_with_a_flipped_bit_has_the_references_verdict(
    check_crc: bool, strict: bool
) -> None:
    """Every bit is flipped in turn, with and without the CRC."""
    for bit in range(8 * len(OLD_RUN)):
        damaged = bytearray(OLD_RUN)
        damaged[bit // 8] ^= 1 << bit % 8
        expected = reference_run(bytes(damaged), check_crc=check_crc, strict=strict)
        assert expected == run_of(bytes(damaged), check_crc=check_crc, strict=strict)[:4]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(1, 8))
def test_run_stops_at_a_wrapper(magic: int, codec: int) -> None:
    """The caller decompresses it; a wrong CRC is reported first."""
    plain = messages.encode_message(MIXED_MESSAGES[magic][0])
    wrapper = messages.Message(9, magic, codec, 5, None, b"???")
    data = plain + messages.encode_message(wrapper)
    expected = "COMPRESSED" if codec <= 3 else "UNKNOWN_CODEC"
    assert (1, 1, len(plain), expected) == run_of(data)[:4]
    assert (1, 1, len(plain), "CRC") == run_of(data[:-1] + b"!")[:4]


def test_run_of_messages_stops_at_full_columns() -> None:
    """Each message takes one row."""
    data = messages.encode_messages(MIXED_MESSAGES[1])
    rows, batches, position, status, offsets = run_of(data, capacity=4)
    assert (4, 4, "FULL", [0, 1, 2, 3]) == (rows, batches, status, offsets)
    assert [7, 8] == run_of(data, position)[4]


def test_run_with_a_wrong_crc_is_read_only_without_check_crc() -> None:
    """check_crc=False is for bytes that are already checked."""
    damaged = bytearray(FIRST)
    damaged[-2] ^= 1
    assert (0, 0, 0, "CRC", []) == run_of(bytes(damaged))
    assert (2, 1, len(FIRST), "OK", [0, 1]) == run_of(bytes(damaged), check_crc=False)


def test_run_ends_at_the_given_end() -> None:
    """A batch beyond the end is truncated; a batch up to the end is whole."""
    assert (2, 1, len(FIRST), "OK", [0, 1]) == run_of(RUN, end=len(FIRST))
    assert (2, 1, len(FIRST), "TRUNCATED", [0, 1]) == run_of(RUN, end=len(FIRST) + 80)
    assert (0, 0, 5, "OK", []) == run_of(RUN, 5, end=5)
    with pytest.raises(IndexError, match="outside"):
        run_of(RUN, end=len(RUN) + 1)


@pytest.mark.parametrize("kind", BUFFER_KINDS)
def test_run_reads_every_kind_of_buffer(kind: str) -> None:
    """Mapped files and arrays as well as bytes."""
    columns = RecordColumns(100)
    rows, batches, reached, status = decode_run(BUFFER_KINDS[kind](RUN), 0, columns)
    assert (4 + len(MIXED), 4, len(RUN), 0) == (rows, batches, reached, status)


def test_columns_keep_the_rows_of_earlier_calls_after_a_failure() -> None:
    """A refused payload adds no row."""
    columns = RecordColumns(3 * len(MIXED))
    header = as_batch_header(header_for(MIXED))
    size = len(MIXED_PAYLOAD)
    assert len(MIXED) == decode_columns(MIXED_PAYLOAD, header, 0, size, columns)
    before = {name: getattr(columns, name).tolist() for name in RECORD_COLUMNS}
    with pytest.raises(CorruptRecordError):
        decode_columns(MIXED_PAYLOAD, header, 0, size - 1, columns)
    assert before == {name: getattr(columns, name).tolist() for name in RECORD_COLUMNS}
    assert len(MIXED) == decode_columns(MIXED_PAYLOAD, header, 0, size, columns)
    assert 2 * before["offset"] == columns.offset.tolist()


def test_columns_too_small_for_a_batch_raise() -> None:
    """The columns are one row too short."""
    columns = RecordColumns(len(MIXED) - 1)
    header = as_batch_header(header_for(MIXED))
    with pytest.raises(InvalidRecordError, match="buffer is full"):
        decode_columns(MIXED_PAYLOAD, header, 0, len(MIXED_PAYLOAD), columns)
    assert 0 == len(columns)


def test_columns_have_native_types_and_cannot_be_resized() -> None:
    """Kernels write through pointers: the arrays must not move."""
    columns = RecordColumns(4)
    decode_run(FIRST, 0, columns)
    wide = {"offset", "timestamp", "key_position", "value_position", "headers_position"}
    for name in RECORD_COLUMNS:
        array = getattr(columns, name)
        assert (numpy.int64 if name in wide else numpy.int32) == array.dtype
        assert (2,) == array.shape
        with pytest.raises(ValueError, match="resize"):
            array.base.resize(100)
    assert "RecordColumns(2 of 4 rows)" == repr(columns)
    assert 4 == columns.capacity


@pytest.mark.parametrize("capacity", [0, -1])
def test_columns_without_capacity_raise(capacity: int) -> None:
    """They could never hold a row."""
    with pytest.raises(ValueError, match="above 0"):
        RecordColumns(capacity)
