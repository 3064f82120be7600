"""Tests of the fast path of `extend_columns`, compared with single records."""

from __future__ import annotations

import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.builder import BatchBuilder
from kafkalog.errors import InvalidRecordError, RecordTooLargeError
from tests.support.builder_cases import Field, column
from tests.support.examples import examples

T = 1_700_000_000_000
INT32_MAX = 2**31 - 1

# Around every size at which the code changes: moves of 16, blocks of 64, lengths of one, two and
# three bytes, and sizes that the fast path leaves to the slow path.
SIZES = (
    *range(70),
    *(size + delta for size in (127, 128, 192, 256, 8192, 16 * 1024) for delta in range(-35, 3)),
)


def field(size: int, seed: int) -> bytes:
    """Return bytes without equal parts, so that a copy to a wrong place is detected."""
    return bytes((seed + 7 * number + number // 251) % 256 for number in range(size))


def by_one(keys: list[Field], values: list[Field], times: list[int]) -> bytes:
    """Return the batch that `append` builds."""
    builder = BatchBuilder()
    for key, value, timestamp_ms in zip(keys, values, times, strict=True):
        builder.append(key, value, timestamp_ms)
    return bytes(builder.finish(base_offset=3))


def by_columns(
    keys: list[Field], values: list[Field], times: list[int], *, kind: str = "int32"
) -> bytes:
    """Return the batch that `extend_columns` builds."""
    builder = BatchBuilder(capacity=64)
    added = builder.extend_columns(
        column(keys, kind), column(values, kind), numpy.array(times, dtype=numpy.int64)
    )
    assert len(keys) == added
    return bytes(builder.finish(base_offset=3))


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_fields_of_every_size_equal_single_records(kind: str) -> None:
    """Keys and values of each size; the last cell ends at the end of its data."""
    sizes = [(size, 5) for size in SIZES] + [(5, size) for size in SIZES]
    keys: list[Field] = [field(key, slot) for slot, (key, _) in enumerate(sizes)]
    values: list[Field] = [field(value, slot + 1) for slot, (_, value) in enumerate(sizes)]
    times = [T + 3 * slot * slot for slot in range(len(sizes))]
    assert by_one(keys, values, times) == by_columns(keys, values, times, kind=kind)


CELL = st.one_of(st.none(), st.sampled_from(SIZES).map(lambda size: field(size, size)))
TIME = st.one_of(st.integers(-1, 200), st.integers(T, T + 100), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(CELL, CELL, TIME), min_size=1, max_size=30))
@settings(max_examples=examples(60))
def test_any_mixture_of_fields_equals_single_records(rows: list[tuple[Field, Field, int]]) -> None:
    """Nulls, falling deltas, and sizes of both paths."""
    keys, values, times = (list(part) for part in zip(*rows, strict=True))
    assert by_one(keys, values, times) == by_columns(keys, values, times)


@pytest.mark.parametrize("value_size", [1, 30, 60, 1000, 9000])
def test_batch_is_filled_exactly_to_the_limit(value_size: int) -> None:
    """A limit one byte lower adds one record less, on either path."""
    values: list[Field] = [field(value_size, slot) for slot in range(40)]
    builder = BatchBuilder()
    sizes = [builder.append(None, value, T) for value in values]
    cells = column(values, "int32")
    for count, surplus in itertools.product((1, 2, 20, 39), (-1, 0, 1)):
        builder.reset()
        added = builder.extend_columns(None, cells, T, size_limit=sizes[count - 1] + surplus)
        assert max(1, count - (surplus < 0)) == added
        assert sizes[added - 1] == builder.size_bytes


def test_refused_timestamp_keeps_the_records_before_it() -> None:
    """The records before it stay in the batch, as with lists."""
    builder = BatchBuilder()
    cells = column([b"v"] * 4, "int32")
    with pytest.raises(InvalidRecordError, match="timestamp must be -1 or more, got -2"):
        builder.extend_columns(None, cells, numpy.array([5, 6, -2, 7], dtype=numpy.int64))
    assert 2 == builder.count


def test_offset_beyond_the_largest_delta_raises() -> None:
    """A delta is an int32: the fast path stops there and the slow path raises."""
    builder = BatchBuilder()
    builder.append_at(INT32_MAX - 2, None, b"v", T)
    with pytest.raises(RecordTooLargeError):
        builder.extend_columns(None, column([b"v"] * 4, "int32"), T)
    assert (3, INT32_MAX) == (builder.count, builder.last_offset_delta)


@pytest.mark.parametrize(
    "times",
    [
        numpy.zeros(4, dtype=numpy.int32),
        numpy.zeros(4, dtype=numpy.uint64),
        numpy.zeros(4, dtype=numpy.float64),
        numpy.zeros(4, dtype=">i8"),
        numpy.zeros(8, dtype=numpy.int64)[::2],
        numpy.zeros((2, 2), dtype=numpy.int64),
        numpy.zeros(33, dtype=numpy.uint8)[1:].view(numpy.int64),
    ],
    ids=["int32", "uint64", "float64", "big-endian", "strided", "two-dimensional", "odd address"],
)
def test_timestamps_that_are_not_an_int64_row_raise(times: object) -> None:
    """The kernel would read wrong timestamps."""
    cells = column([b"v"] * 4, "int32")
    with pytest.raises(ValueError, match=r"timestamps|contiguous"):
        BatchBuilder().extend_columns(None, cells, times)  # type: ignore[arg-type]
