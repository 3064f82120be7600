"""Tests of the batch builder: bytes equal to Kafka and the reference, and size limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import Record, decode_records
from kafkalog._core.records_builder import RecordsBuilder
from kafkalog.errors import InvalidRecordError, RecordTooLargeError
from tests.support import golden
from tests.support import reference_records as records
from tests.support.builder_cases import (
    BUILD_METHODS,
    ROWS,
    TIMESTAMPS,
    Field,
    Row,
    T,
    column,
    extend_within,
    reference_batch,
)
from tests.support.examples import examples
from tests.support.record_cases import entries
from tests.support.reference_records import Entry

BATCHES = golden.vectors("batches")["batches"]
UNCOMPRESSED = [case for case in BATCHES if case["derived"]["compression"] == "none"]
COMPRESSED = [case for case in BATCHES if case["derived"]["compression"] != "none"]
INT32_MAX = 2**31 - 1


def finish_like(builder: BatchBuilder, header: BatchHeader, **options: Any) -> bytes:
    """Finish a batch with the fields of another's header."""
    with_time = header.timestamp_type == 1 or builder.count == 0
    view = builder.finish(
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp if with_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon=header.delete_horizon_ms is not None,
        last_offset_delta=header.last_offset_delta,
        **options,
    )
    return bytes(view)


# ---- Kafka's bytes ----


@pytest.mark.parametrize("case", UNCOMPRESSED, ids=lambda case: case["name"])
def test_kafkas_batch_built_again_is_the_same_bytes(case: dict[str, Any]) -> None:
    """Control markers, horizons, gaps and empty batches: all uncompressed kinds of Kafka."""
    data = bytes.fromhex(case["hex"])
    header = parse_header(data)
    # With create time, so that the decoder returns stored timestamps, not the append time.
    plain = BatchHeader(position=0, **{**case["header"], "attributes": header.attributes & ~0x08})
    builder = BatchBuilder()
    builder.reset(base_timestamp=header.delete_horizon_ms)
    for record in decode_records(data, plain, 61, len(data)):
        delta = record.offset - header.base_offset
        builder.append_at(delta, record.key, record.value, record.timestamp_ms, record.headers)
    assert data == finish_like(builder, header)


@pytest.mark.parametrize("case", COMPRESSED, ids=lambda case: case["name"])
def test_kafkas_compressed_batch_gets_the_same_header(case: dict[str, Any]) -> None:
    """With Kafka's compressed payload the whole batch equals Kafka's."""
    data = bytes.fromhex(case["hex"])
    header = parse_header(data)
    builder = BatchBuilder()
    builder.reset(base_timestamp=header.base_timestamp)
    for record in case["records"]:
        time = record["timestamp"]
        builder.append_at(record["offset"] - header.base_offset, None, None, time)
    assert data == finish_like(builder, header, codec=header.codec, payload=data[61:])


# ---- the reference's bytes ----


@pytest.mark.parametrize("way", BUILD_METHODS, ids=lambda way: way.__name__)
@given(st.data())
@settings(max_examples=examples(25))
def test_batch_built_by_any_method_equals_the_reference(
    way: Callable[[RecordsBuilder, list[Row]], None], data: st.DataObject
) -> None:
    """Null, empty and long fields and every timestamp; the memory must grow."""
    rows = data.draw(ROWS)
    builder = BatchBuilder(capacity=61)
    for _ in range(2):
        way(builder, rows)
        expected = reference_batch(rows, base_offset=7)
        assert (len(rows), len(expected)) == (builder.count, builder.size_bytes)
        assert max(time for _, _, time in rows) == builder.max_timestamp
        assert expected[61:] == bytes(builder.payload())
        assert expected == bytes(builder.finish(base_offset=7))
        builder.reset()


@given(st.data())
@settings(max_examples=examples(60))
def test_records_with_headers_and_gaps_are_encoded_like_the_reference(
    data: st.DataObject,
) -> None:
    """Header keys that are not UTF-8 keep their bytes."""
    drawn = data.draw(entries())
    builder = BatchBuilder()
    base = data.draw(st.integers(0, T))
    builder.reset(base_timestamp=base)
    kept = []
    for entry in drawn:
        time = data.draw(TIMESTAMPS)
        pairs = [(name.decode("utf-8", "surrogateescape"), value) for name, value in entry.headers]
        builder.append_at(entry.offset_delta, entry.key, entry.value, time, pairs)
        kept.append(
            Entry(
                entry.offset_delta,
                records.wrap64(time - base),
                entry.key,
                entry.value,
                entry.headers,
            )
        )
    assert records.encode(kept) == bytes(builder.payload())


def test_record_without_timestamp_gets_the_default() -> None:
    """Only -1 means no timestamp; 0 is a timestamp."""
    builder = BatchBuilder()
    builder.extend_records([Record(timestamp_ms=-1), Record(timestamp_ms=0)], 0, 50)
    builder.append_record(Record(), 60)
    batch = bytes(builder.finish())
    times = [r.timestamp_ms for r in decode_records(batch, parse_header(batch), 61, len(batch))]
    assert [50, 0, 60] == times


def test_extend_with_one_timestamp_sets_it_on_all_rows() -> None:
    """The timestamp is an int instead of an array, or absent."""
    for options, expected in (((T,), T), ((), -1)):
        for extend in ("lists", "columns"):
            builder = BatchBuilder()
            if extend == "lists":
                builder.extend_lists(None, [b"v", None], *options)
            else:
                builder.extend_columns(None, column([b"v", None], "int32"), *options)
            rows: list[Row] = [(None, b"v", expected), (None, None, expected)]
            assert reference_batch(rows) == bytes(builder.finish())


# ---- limits ----


@pytest.mark.parametrize("way", ["records", "lists", "columns"])
def test_extend_stops_at_the_size_limit_and_continues_in_the_next_batch(way: str) -> None:
    """No batch is above the limit or empty, and no record is lost between batches."""
    values: list[Field] = [bytes([slot]) * (slot * 7 % 90) for slot in range(200)]
    limit = 500
    builder = BatchBuilder()
    seen: list[Field] = []
    while len(seen) < len(values):
        start = len(seen)
        added = extend_within(builder, way, values, start, limit)
        assert added == builder.count > 0
        assert builder.size_bytes <= limit
        if start + added < len(values):
            one_more = builder.append(None, values[start + added])
            assert one_more > limit
            builder.reset()
            builder.extend_lists(None, values[start : start + added])
        batch = bytes(builder.finish())
        decoded = decode_records(batch, parse_header(batch), 61, len(batch))
        seen += [record.value for record in decoded]
        builder.reset()
    assert values == seen


def test_first_record_of_a_batch_is_added_at_any_size() -> None:
    """Otherwise no batch could hold it; the second record is not added."""
    values: list[Field] = [b"x" * 5000, b"y"]
    ways: tuple[Callable[[BatchBuilder], int], ...] = (
        lambda b: b.extend_lists(None, values, -1, 0, 100),
        lambda b: b.extend_columns(None, column(values, "int64"), -1, 0, None, 100),
        lambda b: b.extend_records([Record(value=value) for value in values], 0, -1, 100),
    )
    for extend in ways:
        builder = BatchBuilder()
        assert 1 == extend(builder)
        assert 0 == extend(builder)


def test_start_after_the_end_adds_nothing_and_negative_start_raises() -> None:
    """Negative slots do not count from the end."""
    builder = BatchBuilder()
    assert 0 == builder.extend_lists([b"k"], [b"v"], -1, 1)
    assert 0 == builder.extend_records([Record()], 5)
    calls: tuple[Callable[[], int], ...] = (
        lambda: builder.extend_lists([b"k"], [b"v"], -1, -1),
        lambda: builder.extend_records([Record()], -1),
        lambda: builder.extend_columns(None, column([b"v"], "int32"), -1, -1),
        lambda: builder.extend_columns(None, column([b"v"], "int32"), -1, 0, 2),
        lambda: builder.extend_columns(None, column([b"v"], "int32"), -1, 1, 0),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"negative|slots must be in"):
            call()
    assert 0 == builder.count


def test_offset_delta_beyond_32_bits_raises_and_keeps_the_batch() -> None:
    """The largest offset delta is accepted."""
    builder = BatchBuilder()
    builder.append_at(INT32_MAX, b"k", b"v", 5)
    before = bytes(builder.payload())
    with pytest.raises(RecordTooLargeError):
        builder.append(b"k", b"v", 5)
    assert before == bytes(builder.payload())
    assert INT32_MAX == parse_header(builder.finish()).last_offset_delta


@pytest.mark.parametrize("deltas", [(0, 0), (5, 4), (-1,), (2**31,), (-(2**63),)], ids=str)
def test_offset_deltas_that_do_not_rise_raise(deltas: tuple[int, ...]) -> None:
    """The builder writes only batches with rising offsets."""
    builder = BatchBuilder()
    for delta in deltas[:-1]:
        builder.append_at(delta, None, None)
    with pytest.raises(InvalidRecordError, match="offset delta"):
        builder.append_at(deltas[-1], None, None)
    assert len(deltas) - 1 == builder.count


def test_batch_beyond_32_bits_raises_before_memory_is_allocated() -> None:
    """Cells may overlap: two rows over one run of 1.2 GB of zero pages are 2.4 GB of records."""
    mapping = numpy.zeros(1_200_000_000, dtype=numpy.uint8)
    offsets = numpy.array([0, len(mapping)], dtype=numpy.int64)
    wide = BytesColumn(mapping, offsets)
    builder = BatchBuilder()
    with pytest.raises(RecordTooLargeError):
        builder.extend_columns(wide, wide)
    assert (0, 61, 16384) == (builder.count, builder.size_bytes, builder.capacity)


def test_builder_counts_null_keys_and_smallest_timestamp() -> None:
    """Both are equal for all methods of adding records; -1 is not a timestamp."""
    builder = BatchBuilder()
    assert (-1, -1, 0) == (builder.min_timestamp, builder.max_timestamp, builder.null_key_count)
    builder.append(None, b"v", -1)
    assert (-1, -1, 1) == (builder.min_timestamp, builder.max_timestamp, builder.null_key_count)
    builder.append(b"k", b"v", 70)
    builder.append(b"", b"v", 50)
    builder.append_record(Record(timestamp_ms=60))
    assert (50, 70, 2) == (builder.min_timestamp, builder.max_timestamp, builder.null_key_count)
    times = numpy.array([40, -1, 0], dtype=numpy.int64)
    builder.extend_lists([None, None, b"k"], [b"v"] * 3, times)
    assert (0, 70, 4) == (builder.min_timestamp, builder.max_timestamp, builder.null_key_count)
    builder.reset()
    assert (-1, 0) == (builder.min_timestamp, builder.null_key_count)
    keys = BytesColumn(
        b"kk", numpy.array([0, 1, 1, 2], dtype=numpy.int32), numpy.array([5], dtype=numpy.uint8)
    )
    builder.extend_columns(keys, None, numpy.array([9, 5, 7], dtype=numpy.int64))
    assert (5, 9, 1) == (builder.min_timestamp, builder.max_timestamp, builder.null_key_count)
