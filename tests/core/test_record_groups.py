"""Tests of groups of records: partitions, order, sizes, and what lists may hold."""

from __future__ import annotations

from random import Random

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.murmur2 import partition_of
from kafkalog._core.record_groups import check_fields, group_records, whole_group


@pytest.mark.parametrize("partition_count", [1, 2, 7, 1000])
def test_group_records_equals_a_grouping_by_hand(partition_count: int) -> None:
    """Keys of any length, none as well; groups in the order of their first records."""
    random = Random(partition_count)
    for _ in range(50):
        count = random.randrange(80)
        keys = [
            None if random.random() < 0.1 else random.randbytes(random.randrange(12))
            for _ in range(count)
        ]
        values = [
            None if random.random() < 0.1 else random.randbytes(random.randrange(30))
            for _ in range(count)
        ]
        expected: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            partition = -1 if key is None else partition_of(key, partition_count)
            expected.setdefault(partition, []).append(row)
        groups = group_records(keys, values, partition_count)
        assert list(expected.items()) == [(each.partition, each.rows) for each in groups]
        for each in groups:
            assert [keys[row] for row in each.rows] == each.keys
            assert [values[row] for row in each.rows] == each.values


def test_group_size_is_above_that_of_the_encoded_records() -> None:
    """Of all records, and of each part of them; the parts add up."""
    random = Random(3)
    for _ in range(50):
        keys = [random.randbytes(random.choice((0, 5, 200))) for _ in range(20)]
        values = [random.randbytes(random.choice((0, 9, 20_000))) for _ in range(20)]
        group = whole_group(list(keys), list(values))
        assert (-1, range(20), 20) == (group.partition, group.rows, len(group))
        middle = random.randrange(21)
        assert group.size_bytes == group.bytes_between(0, middle) + group.bytes_between(middle, 20)
        builder = BatchBuilder()
        builder.extend_lists(list(keys), list(values), 2**62)
        assert len(builder.payload()) <= group.size_bytes


@pytest.mark.parametrize("wrong", ["text", 3, bytearray(b"x"), memoryview(b"x")])
def test_groups_of_anything_but_bytes_raise(wrong: object) -> None:
    """The message names list, row and type."""
    message = rf"\[1\] must be bytes or None, got {type(wrong).__name__}"
    for_keys, for_values = [b"", wrong], [b"", b""]
    with pytest.raises(TypeError, match="keys" + message):
        group_records(for_keys, for_values, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="values" + message):
        whole_group(None, for_keys)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names" + message):
        check_fields(for_keys, "names")  # type: ignore[arg-type]


def test_groups_with_invalid_arguments_raise() -> None:
    """Lists of different lengths, no partitions, slots outside of a group."""
    with pytest.raises(ValueError, match="keys must be as many as values, 2, got 1"):
        group_records([b"k"], [b"v", b"w"], 3)
    with pytest.raises(ValueError, match="keys must be as many as values, 1, got 0"):
        whole_group([], [b"v"])
    with pytest.raises(ValueError, match="partition_count must be >= 1, got 0"):
        group_records([b"k"], [b"v"], 0)
    group = whole_group(None, [b"v"])
    for start, stop in ((-1, 1), (1, 0), (0, 2)):
        with pytest.raises(IndexError, match="slots must be in 0 to 1"):
            group.bytes_between(start, stop)
