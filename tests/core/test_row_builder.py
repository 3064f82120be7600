"""Tests of Arrow columns built from decoded rows, compared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.row_builder import COLUMN_NAMES, RowBuilder
from kafkalog._core.row_filter import BatchRuns, RowFilter
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from tests.support import reference_records as reference
from tests.support.arrow_consumer import cells_of
from tests.support.buffers import exact
from tests.support.examples import examples
from tests.support.record_cases import (
    INT64_MAX,
    MIXED,
    MIXED_PAYLOAD,
    as_batch_header,
    entries,
    header_for,
    headers,
)
from tests.support.record_cases import columns_of as decoded
from tests.support.reference import Header, encode_batch
from tests.support.reference_records import Entry
from tests.support.row_cases import built, expected_rows, rows_of, runs_of

BINARY_TYPES = ("binary", "large_binary", "binary_view")
UNLIMITED: dict[str, Any] = {"rows_max": 2**40, "bytes_max": 2**30}


@settings(max_examples=examples(80))
@given(data=st.data())
def test_built_columns_equal_the_reference(data: st.DataObject) -> None:
    """Records, columns and their order, binary types and batch sizes are drawn at random."""
    case = data.draw(entries())
    header = data.draw(headers(case))
    header = Header(
        **{
            **vars(header),
            "producer_id": data.draw(st.sampled_from([-1, 0, INT64_MAX])),
            "producer_epoch": data.draw(st.sampled_from([-1, 0, 32767])),
            "base_sequence": data.draw(st.sampled_from([-1, 0, 2**31 - 2])),
            "partition_leader_epoch": data.draw(st.sampled_from([-1, 5])),
        }
    )
    names = data.draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
    payload = reference.encode(case)
    native = as_batch_header(header)
    lasting = data.draw(st.booleans())
    builder = RowBuilder(
        names,
        binary_type=data.draw(st.sampled_from(BINARY_TYPES)),
        text_keys=False,
        rows_max=data.draw(st.sampled_from([1, 2, 3, 2**40])),
        bytes_max=data.draw(st.sampled_from([1, 100, 9000, 2**30])),
    )
    builder.set_partition("t-\xe9", 7)
    buffer = exact(payload)
    columns = decoded(buffer, native, 0, len(payload))
    found = built(buffer, columns, runs_of(native, len(columns)), builder, lasting=lasting)
    assert expected_rows(payload, header, names) == rows_of(found)


@pytest.mark.parametrize("binary_type", BINARY_TYPES)
@pytest.mark.parametrize("lasting", [False, True])
def test_rows_of_two_batches_are_joined_in_one(binary_type: str, lasting: bool) -> None:
    """Rows of two buffers, and of one buffer twice, are in one Arrow batch."""
    header = header_for(MIXED)
    names = ("offset", "key", "value", "headers")
    builder = RowBuilder(names, binary_type=binary_type, text_keys=True, **UNLIMITED)
    first, second = exact(MIXED_PAYLOAD), exact(MIXED_PAYLOAD)
    for buffer in (first, first, second):
        columns = decoded(buffer, as_batch_header(header), 0, len(MIXED_PAYLOAD))
        builder.add(buffer, columns, 0, BatchRuns(), lasting=lasting)
    del first, second
    expected = 3 * expected_rows(MIXED_PAYLOAD, header, names, text=True)
    assert expected == rows_of([cells_of(builder.finish())])


def test_builder_continues_after_a_finished_batch() -> None:
    """A finished batch does not change when the next one is built."""
    header = as_batch_header(header_for(MIXED))
    builder = RowBuilder(["value"], rows_max=4, bytes_max=2**30)
    columns = decoded(MIXED_PAYLOAD, header, 0, len(MIXED_PAYLOAD))
    assert 4 == builder.add(MIXED_PAYLOAD, columns, 0, BatchRuns())
    kept = builder.finish()
    before = cells_of(kept)
    assert 8 == builder.add(MIXED_PAYLOAD, columns, 4, BatchRuns())
    builder.finish()
    assert before == cells_of(kept)
    assert [entry.value for entry in MIXED[:4]] == before["value"]


@pytest.mark.parametrize("rows_max, bytes_max", [(0, 1), (1, 0), (-1, 5)])
def test_builder_without_capacity_raises(rows_max: int, bytes_max: int) -> None:
    """It could never hold a row."""
    with pytest.raises(ValueError, match="must be at least 1, got"):
        RowBuilder(["offset"], rows_max=rows_max, bytes_max=bytes_max)


def test_large_batches_need_wide_offsets() -> None:
    """More than 1 GiB would overflow offsets of 32 bits."""
    with pytest.raises(ValueError, match="1 GiB"):
        RowBuilder(["value"], rows_max=1, bytes_max=2**31)
    RowBuilder(["value"], binary_type="large_binary", rows_max=1, bytes_max=2**40)


def test_unknown_column_raises() -> None:
    """The names are those of COLUMN_NAMES."""
    with pytest.raises(ValueError):
        RowBuilder(["offsets"], rows_max=1, bytes_max=1)


@pytest.mark.parametrize("name, size_name", [("key", "key_size"), ("value", "value_size")])
@pytest.mark.parametrize("position, size", [(-1, 4), (0, 2**31 - 1), (INT64_MAX, 8), (10**6, 1)])
def test_row_outside_its_buffer_is_refused(
    name: str, size_name: str, position: int, size: int
) -> None:
    """Any code can write to the columns: rows before the bad one are added."""
    header = as_batch_header(header_for(MIXED))
    for binary_type in BINARY_TYPES:
        buffer = exact(MIXED_PAYLOAD)
        columns = decoded(buffer, header, 0, len(MIXED_PAYLOAD))
        getattr(columns, f"{name}_position")[3] = position
        getattr(columns, size_name)[3] = size
        builder = RowBuilder([name], binary_type=binary_type, **UNLIMITED)
        assert 3 == builder.add(buffer, columns, 0, BatchRuns(), lasting=True)
        with pytest.raises(CorruptRecordError):
            builder.add(buffer, columns, 3, BatchRuns(), lasting=True)
        assert 3 == len(builder)


@settings(max_examples=examples(60))
@given(
    row=st.integers(0, len(MIXED) - 1),
    position=st.one_of(st.integers(0, len(MIXED_PAYLOAD) + 5), st.integers(-5, INT64_MAX)),
    size=st.one_of(st.integers(-1, 400), st.integers(-(2**31), 2**31 - 1)),
    count=st.one_of(st.integers(-1, 9), st.integers(-(2**31), 2**31 - 1)),
)
# Under sanitizers: no pointer is made of the position of no headers.
@example(row=0, position=-(2**56), size=0, count=0)
@example(row=2, position=INT64_MAX, size=2**31 - 1, count=0)
def test_headers_at_any_position_are_refused_or_read(
    row: int, position: int, size: int, count: int
) -> None:
    """Columns may name any bytes as headers: they are refused, or decoded as these bytes."""
    header = as_batch_header(header_for(MIXED))
    buffer = exact(MIXED_PAYLOAD)
    columns = decoded(buffer, header, 0, len(MIXED_PAYLOAD))
    columns.headers_position[row] = position
    columns.headers_size[row] = size
    columns.header_count[row] = count
    builder = RowBuilder(["headers"], text_keys=False, **UNLIMITED)
    taken = builder.add(buffer, columns, 0, BatchRuns()) if row else 0
    assert taken in (row, len(MIXED))
    if taken == row:
        try:
            builder.add(buffer, columns, row, BatchRuns())
        except CorruptRecordError:
            return
    assert len(cells_of(builder.finish())["headers"]) >= row


@settings(max_examples=examples(150))
@given(st.binary(max_size=6))
def test_header_keys_are_valid_utf8_or_refused(key: bytes) -> None:
    """As utf8 as Python decodes it; the error has the record, earlier rows are kept."""
    case = [Entry(0, 0, b"k", b"v"), Entry(1, 0, b"k", b"v", ((key, b"x"),))]
    payload = reference.encode(case)
    columns = decoded(payload, as_batch_header(header_for(case)), 0, len(payload))
    builder = RowBuilder(["headers"], **UNLIMITED)
    try:
        text = key.decode()
    except UnicodeDecodeError:
        assert 1 == builder.add(payload, columns, 0, BatchRuns())
        with pytest.raises(InvalidRecordError, match="offset 1001"):
            builder.add(payload, columns, 1, BatchRuns())
        assert [[]] == cells_of(builder.finish())["headers"]
    else:
        assert 2 == builder.add(payload, columns, 0, BatchRuns())
        assert [[], [(text, b"x")]] == cells_of(builder.finish())["headers"]


def test_runs_not_matching_the_rows_are_refused() -> None:
    """Each row must have a batch, whose fields it shows."""
    header = as_batch_header(header_for(MIXED))
    columns = decoded(MIXED_PAYLOAD, header, 0, len(MIXED_PAYLOAD))
    builder = RowBuilder(["producer_id"], **UNLIMITED)
    with pytest.raises(ValueError, match="runs must have 9 rows, got 0"):
        builder.add(MIXED_PAYLOAD, columns, 0, BatchRuns())
    with pytest.raises(ValueError, match="runs must have 9 rows, got 3"):
        RowFilter().apply(MIXED_PAYLOAD, columns, runs_of(header, 3), 0, 2**40)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_filter_equals_a_list_comprehension(data: st.DataObject) -> None:
    """Offsets, times and keys; runs lose the removed rows."""
    case = data.draw(entries())
    header = header_for(case, base_timestamp=100, max_timestamp=100)
    payload = reference.encode(case)
    native = as_batch_header(header)
    buffer = exact(payload)
    columns = decoded(buffer, native, 0, len(payload))
    records = reference.decode(payload, header)
    keys = st.sampled_from([*(entry.key for entry in case), None, b"", b"other"])
    wanted_keys = data.draw(st.one_of(st.none(), st.lists(keys)))
    offsets = data.draw(st.one_of(st.none(), st.sets(st.integers(1000, 1310))))
    times = data.draw(st.one_of(st.none(), st.tuples(st.integers(-9, 99), st.integers(99, 400))))
    listed = data.draw(st.one_of(st.none(), st.sets(st.integers(90, 400))))
    start, end = data.draw(st.integers(990, 1100)), data.draw(st.integers(1000, 2**32))
    expected = [
        record.offset
        for record in records
        if start <= record.offset < end
        and (offsets is None or record.offset in offsets)
        and (wanted_keys is None or record.entry.key in wanted_keys)
        and (times is None or (times[0] <= record.timestamp <= times[1] and record.timestamp != -1))
        and (listed is None or record.timestamp in listed)
    ]
    runs = BatchRuns()
    for _ in records:
        runs.add_message(native, 1)
    chosen = RowFilter(
        timestamps=times, listed_timestamps=listed, keys=wanted_keys, offsets=offsets
    )
    conditions = (offsets, wanted_keys, times, listed)
    assert any(each is not None for each in conditions) == chosen.has_conditions
    assert len(expected) == chosen.apply(buffer, columns, runs, start, end)
    assert expected == columns.offset.tolist()
    builder = RowBuilder(["timestamp_type", "offset"], **UNLIMITED)
    if expected:
        builder.add(buffer, columns, 0, runs)
        assert {"timestamp_type": [1] * len(expected), "offset": expected} == cells_of(
            builder.finish()
        )


def test_key_outside_its_buffer_is_not_compared() -> None:
    """The error has the row, and nothing is read."""
    header = as_batch_header(header_for(MIXED))
    buffer = exact(MIXED_PAYLOAD)
    columns = decoded(buffer, header, 0, len(MIXED_PAYLOAD))
    columns.key_position[2] = len(MIXED_PAYLOAD) - 1
    with pytest.raises(CorruptRecordError, match="position 2"):
        RowFilter(keys=[b"k" * 70]).apply(buffer, columns, BatchRuns(), 0, 2**40)


def test_buffers_of_a_batch_are_exported_without_a_copy() -> None:
    """The buffers keep the batch alive; a column without nulls has no bitmap."""
    header = as_batch_header(header_for(MIXED))
    columns = decoded(MIXED_PAYLOAD, header, 0, len(MIXED_PAYLOAD))
    builder = RowBuilder(["offset", "value"], **UNLIMITED)
    builder.add(MIXED_PAYLOAD, columns, 0, BatchRuns())
    batch = builder.finish()
    assert (len(MIXED), len(MIXED)) == (len(batch), batch.num_rows)
    assert batch.buffer(0, 0) is None
    offsets = batch.buffer(0, 1)
    assert offsets is not None
    with pytest.raises(IndexError):
        batch.buffer(2, 0)
    with pytest.raises(IndexError):
        batch.buffer(0, 2)
    del batch
    expected = [1000 + entry.offset_delta for entry in MIXED]
    assert expected == np.frombuffer(offsets, np.int64).tolist()


@settings(max_examples=examples(100))
@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4),
    size=st.one_of(st.none(), st.integers(0, 10**6)),
    binary_type=st.sampled_from(BINARY_TYPES),
)
def test_mutated_batches_are_built_or_refused(
    flips: list[tuple[int, int]], size: int | None, binary_type: str
) -> None:
    """Columns are built from the rows of mutated bytes decoded without a CRC check."""
    whole = reference_batches()
    data = bytearray(whole if size is None else whole[: size % len(whole)])
    for position, mask in flips:
        if data:
            data[position % len(data)] ^= mask
    buffer = exact(bytes(data))
    columns = RecordColumns(100)
    decode_run(buffer, 0, columns, check_crc=False)
    builder = RowBuilder(
        ("offset", "timestamp", "key", "value", "headers"),
        binary_type=binary_type,
        text_keys=False,
        **UNLIMITED,
    )
    count = len(columns)
    RowFilter(keys=[b"key", None, b""]).apply(buffer, columns, BatchRuns(), 0, INT64_MAX)
    assert len(columns) <= count
    for cells in built(buffer, columns, BatchRuns(), builder, lasting=True):
        assert len(columns) == len(cells["value"])


def reference_batches() -> bytes:
    """Return three batches of every kind of record, back to back."""
    batches = (
        encode_batch(header_for(MIXED, base_offset=10_000 * slot), MIXED_PAYLOAD)
        for slot in range(3)
    )
    return b"".join(batches)
