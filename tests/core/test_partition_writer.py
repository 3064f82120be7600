"""Tests of rows spread over the batches of partitions, compared with single appends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import BytesColumn
from kafkalog._core.partition_writer import extend_partitions
from kafkalog.errors import InvalidRecordError
from tests.support.examples import examples

Cell = bytes | None
Row = tuple[int, Cell, Cell, int]

CELLS = st.none() | st.binary(max_size=300)
TIMES = st.integers(min_value=-1, max_value=2**41)
ROWS = st.lists(st.tuples(st.integers(0, 3), CELLS, CELLS, TIMES), max_size=40)


def column(cells: Sequence[Cell]) -> BytesColumn:
    """Return cells as a column."""
    ends = np.cumsum([0, *(len(cell or b"") for cell in cells)], dtype=np.int32)
    bits = np.packbits(np.array([cell is not None for cell in cells], np.bool_), bitorder="little")
    return BytesColumn(b"".join(cell or b"" for cell in cells), ends, bits)


def finished(builder: BatchBuilder) -> bytes:
    """Finish a batch and start another."""
    with builder.finish() as batch:
        found = bytes(batch)
    builder.reset()
    return found


def spread(rows: Sequence[Row], limit: int, *, has_keys: bool = True) -> list[list[bytes]]:
    """Return the batches of each partition, with all rows written in one pass."""
    builders = [BatchBuilder() for _ in range(4)]
    batches: list[list[bytes]] = [[] for _ in builders]
    partitions = np.array([row[0] for row in rows], np.int32)
    keys = column([row[1] for row in rows]) if has_keys else None
    values = column([row[2] for row in rows])
    times = np.array([row[3] for row in rows], np.int64)
    start = 0
    while True:
        start = extend_partitions(builders, partitions, keys, values, times, start, limit)
        if start == len(rows):
            break
        full = rows[start][0]
        batches[full].append(finished(builders[full]))
    for number, builder in enumerate(builders):
        if builder.count:
            batches[number].append(finished(builder))
    return batches


def one_by_one(rows: Sequence[Row], limit: int, *, has_keys: bool = True) -> list[list[bytes]]:
    """Return the batches of each partition, with each row appended alone within the limit."""
    found: list[list[bytes]] = []
    for number in range(4):
        builder, batches = BatchBuilder(), []
        for partition, key, value, time in rows:
            if partition != number:
                continue
            cells = column([key]) if has_keys else None, column([value])
            if not builder.extend_columns(*cells, time, 0, None, limit):
                batches.append(finished(builder))
                assert 1 == builder.extend_columns(*cells, time, 0, None, limit)
        if builder.count:
            batches.append(finished(builder))
        found.append(batches)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(rows=ROWS, limit=st.sampled_from([100, 400, 2000, 1 << 20]), has_keys=st.booleans())
def test_rows_spread_over_partitions_equal_single_appends(
    rows: list[Row], limit: int, has_keys: bool
) -> None:
    """The batches have equal bytes: nulls, empty cells, times, limits, records above limits."""
    assert one_by_one(rows, limit, has_keys=has_keys) == spread(rows, limit, has_keys=has_keys)


def test_batches_of_several_partitions_grow_independently() -> None:
    """The rows exceed the initial capacity, and views of earlier batches exist."""
    builders = [BatchBuilder(capacity=100) for _ in range(2)]
    partitions = np.array([row % 2 for row in range(200)], np.int32)
    values = column([b"%d" % row * 50 for row in range(200)])
    assert 200 == extend_partitions(builders, partitions, None, values)
    before = [builder.finish() for builder in builders]
    kept = [bytes(view) for view in before]
    assert 200 == extend_partitions(builders, partitions, None, values)
    assert [200, 200] == [builder.count for builder in builders]
    assert kept == [bytes(view) for view in before]


def test_row_for_a_partition_without_a_batch_is_refused() -> None:
    """Rows before it are added."""
    values = column([b"a", b"b"])
    for wrong in (1, -1):
        builder = BatchBuilder()
        with pytest.raises(ValueError, match="the partition of slot 1 must be in 0 to"):
            extend_partitions([builder], np.array([0, wrong], np.int32), None, values)
        assert 1 == builder.count


def test_damaged_column_is_refused_at_the_first_bad_row() -> None:
    """Offsets fall or are outside the data."""
    good = column([b"a", b"b", b"c"])
    for ends in ([0, 1, 0, 2], [0, 1, 99, 99]):
        bad = BytesColumn(b"abc", np.array([*ends[:3], min(ends[3], 3)], np.int32))
        for keys, values in ((good, bad), (bad, good)):
            builder = BatchBuilder()
            with pytest.raises(ValueError, match="slot 1"):
                extend_partitions([builder], np.zeros(3, np.int32), keys, values)
            assert 1 == builder.count


def test_arguments_that_contradict_each_other_are_refused() -> None:
    """No row is written."""
    builder, values, zeros = BatchBuilder(), column([b"a", b"b"]), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="keys and values must have 3 rows"):
        extend_partitions([builder], np.zeros(3, np.int32), None, values)
    with pytest.raises(ValueError, match="keys and values must have 3 rows"):
        extend_partitions([builder], np.zeros(3, np.int32), values, None)
    with pytest.raises(ValueError, match="start must be in 0 to 2, got 3"):
        extend_partitions([builder], zeros, None, values, start=3)
    with pytest.raises(ValueError, match="timestamps must be one per record, 2, got 1"):
        extend_partitions([builder], zeros, None, values, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="builders must differ"):
        extend_partitions([builder, builder], zeros, None, values)
    with pytest.raises(TypeError, match="str"):
        extend_partitions(["no builder"], zeros, None, values)  # type: ignore[list-item]
    with pytest.raises(InvalidRecordError, match="must be -1 or more, got"):
        extend_partitions([builder], zeros, None, values, -2)
    assert 0 == builder.count
    assert 0 == extend_partitions([], np.zeros(0, np.int32), None, None)
