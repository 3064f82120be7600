"""Tests of `decode_compressed_run`, compared with each batch decoded alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import check_batch
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.compressed_decode import ENOUGH_BYTES, PayloadMemory, decode_compressed_run
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec, decompress
from tests.core.test_arrow_decode import runs
from tests.core.test_arrow_decode_compressed import (
    HOSTILE,
    LIMIT_BYTES,
    OURS,
    Hostile,
    damaged,
    packed,
)
from tests.support import reference_records as reference
from tests.support.buffers import exact
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, header_for
from tests.support.reference import Header
from tests.support.reference_records import Entry

OK = STATUS_CODES["OK"]
CRC = STATUS_CODES["CRC"]
FULL = STATUS_CODES["FULL"]
COMPRESSED = STATUS_CODES["COMPRESSED"]
TRUNCATED = STATUS_CODES["TRUNCATED"]

NUMBERS = ("offset", "timestamp", "key_size", "value_size", "headers_size", "header_count")
CELLS = ("key", "value", "headers")


def rows_in(data: Any, columns: RecordColumns) -> list[tuple[Any, ...]]:
    """Return the rows of columns, with bytes instead of positions."""
    numbers = [getattr(columns, name).tolist() for name in NUMBERS]
    for name in CELLS:
        positions = getattr(columns, f"{name}_position").tolist()
        sizes = getattr(columns, f"{name}_size").tolist()
        numbers.append(
            [
                bytes(memoryview(data)[position : position + max(size, 0)])
                for position, size in zip(positions, sizes, strict=True)
            ]
        )
    return list(zip(*numbers, strict=True))


def rows_alone(batch: bytes, limit_bytes: int, *, strict: bool = True) -> list[tuple[Any, ...]]:
    """Return the rows of one batch, decompressed by its codec."""
    header = parse_header(batch)
    payload = decompress(header.codec, batch[61:], limit_bytes=limit_bytes)
    columns = RecordColumns(max(header.record_count, 1))
    decode_columns(payload, header, 0, len(payload), columns, strict=strict)
    return rows_in(payload, columns)


@settings(max_examples=examples(50))
@given(
    batches=runs(),
    codecs=st.lists(st.sampled_from(OURS), min_size=4, max_size=4),
    capacity=st.integers(6, 20),
    flips=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 7)), max_size=1),
    check_crc=st.booleans(),
)
def test_rows_of_a_run_equal_those_of_each_batch(
    batches: list[tuple[Header, bytes]],
    codecs: list[Codec],
    capacity: int,
    flips: list[tuple[int, int]],
    check_crc: bool,
) -> None:
    """The columns are full any number of times; the run ends at the first damaged batch."""
    made = [packed(*batch, codec) for batch, codec in zip(batches, codecs, strict=False)]
    data = flipped(b"".join(made), flips) if made else b""
    columns, memory = RecordColumns(capacity), PayloadMemory(LIMIT_BYTES)
    position, found, count, status = 0, [], 0, FULL
    while status == FULL:
        rows, taken, position, status = decode_compressed_run(
            exact(data), position, columns, memory, check_crc=check_crc
        )
        assert rows == len(columns)
        found += rows_in(memory, columns)
        count += taken
    expected, start = [], 0
    for batch in made[:count]:
        expected += rows_alone(data[start : start + len(batch)], LIMIT_BYTES)
        start += len(batch)
    assert (start, expected) == (position, found)
    if status == OK:
        assert len(made) == count
    elif status == CRC:
        assert CRC == check_batch(data[position:])
    elif status == COMPRESSED:
        # The flipped bit may be in its length.
        end = position + parse_header(data, position).size_bytes
        with pytest.raises(CorruptRecordError):
            rows_alone(data[position:end], LIMIT_BYTES)


def assert_taken_or_left(codec: Codec, hostile: Hostile, *, strict: bool) -> None:
    """Assert that a damaged batch after a valid one has the rows of its codec, or no row."""
    bad, limit_bytes = damaged(codec, hostile), hostile[2]
    one = [Entry(0, 0, b"k", b"v")]
    good = packed(header_for(one), reference.encode(one), codec)
    columns, memory = RecordColumns(100), PayloadMemory(limit_bytes)
    rows, count, position, status = decode_compressed_run(
        exact(good + bad), 0, columns, memory, strict=strict
    )
    expected = rows_alone(good, limit_bytes)
    if status == OK:
        assert (2, len(good + bad)) == (count, position)
        expected += rows_alone(bad, limit_bytes, strict=strict)
    else:
        assert (COMPRESSED, 1, len(good)) == (status, count, position)
    assert expected == rows_in(memory, columns)
    assert rows == len(expected)


@pytest.mark.parametrize("codec", OURS)
@settings(max_examples=examples(60))
@given(hostile=HOSTILE, strict=st.booleans())
def test_hostile_batch_is_decoded_or_left_to_the_slow_path(
    codec: Codec, hostile: Hostile, strict: bool
) -> None:
    """The rows of the valid batch before it are returned in both cases."""
    assert_taken_or_left(codec, hostile, strict=strict)


def test_batches_for_the_slow_path_add_no_row() -> None:
    """Plain batches, codecs of libraries, batches above the columns, and a part of a batch."""
    columns, memory = RecordColumns(len(MIXED)), PayloadMemory()
    header = header_for(MIXED)
    for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
        data = packed(header, MIXED_PAYLOAD, codec)
        assert (0, 0, 0, COMPRESSED) == decode_compressed_run(data, 0, columns, memory)
    data = packed(header, MIXED_PAYLOAD, Codec.LZ4)
    small = RecordColumns(len(MIXED) - 1)
    assert (0, 0, 0, COMPRESSED) == decode_compressed_run(data, 0, small, memory)
    assert (0, 0, 0, TRUNCATED) == decode_compressed_run(
        data, 0, columns, memory, end=len(data) - 1
    )
    broken = data[:-1] + bytes((data[-1] ^ 1,))
    assert (0, 0, 0, CRC) == decode_compressed_run(broken, 0, small, memory)
    # The next call removes the rows of the call before.
    assert (len(MIXED), 1, len(data), OK) == decode_compressed_run(data, 0, columns, memory)
    assert (0, 0, len(data), OK) == decode_compressed_run(data, len(data), columns, memory)
    assert (0, 0) == (len(columns), len(memory))


def test_run_stops_after_enough_bytes() -> None:
    """Memory does not grow with the data; a single batch may be larger."""
    large = [Entry(0, 0, None, bytes(100_000))]
    batch = packed(header_for(large), reference.encode(large), Codec.SNAPPY)
    columns, memory = RecordColumns(100), PayloadMemory()
    rows, count, position, status = decode_compressed_run(batch * 5, 0, columns, memory)
    assert (3, 3, 3 * len(batch), FULL) == (rows, count, position, status)
    assert ENOUGH_BYTES <= len(memory) < ENOUGH_BYTES + 101_000
    huge = [Entry(0, 0, None, bytes(9 << 20))]
    data = batch + packed(header_for(huge), reference.encode(huge), Codec.LZ4) + batch
    third = len(data) - len(batch)
    assert (2, 2, third, FULL) == decode_compressed_run(data, 0, columns, memory)
    assert [100_000, 9 << 20] == columns.value_size.tolist()
    assert (1, 1, len(data), OK) == decode_compressed_run(data, third, columns, memory)


def test_payload_memory_with_exported_buffer_is_not_refilled() -> None:
    """Decoding into it raises until the buffer is released."""
    data = packed(header_for(MIXED), MIXED_PAYLOAD, Codec.LZ4)
    columns, memory = RecordColumns(100), PayloadMemory()
    decode_compressed_run(data, 0, columns, memory)
    with memoryview(memory) as view:
        assert view.readonly and MIXED_PAYLOAD == view
        with pytest.raises(BufferError, match="no exported buffer"):
            decode_compressed_run(data, 0, columns, memory)
    assert OK == decode_compressed_run(data, 0, columns, memory)[3]
    with pytest.raises(IndexError):
        decode_compressed_run(data, 1, columns, memory, end=len(data) + 1)
    with pytest.raises(ValueError, match="limit"):
        PayloadMemory(-1)
