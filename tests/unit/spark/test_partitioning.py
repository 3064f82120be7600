"""Partition of a row: by its key as in Kafka's producers, round robin, or a column."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.murmur2 import partition_of
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.partitioning import Partitioner, Rule


def partitions(
    keys: list[bytes | None] | None,
    explicit: list[int | None] | None = None,
    *,
    count: int = 5,
    rule: Rule = "murmur2",
    task: int = 0,
    kind: pa.DataType | None = None,
) -> list[int]:
    """Return the partition of each row."""
    partitioner = Partitioner("t", count, rule, task=task, stick_bytes=100)
    rows = len(keys if keys is not None else explicit or [])
    found = partitioner.partitions(
        None if keys is None else pa.array(keys, kind or pa.binary()),
        None if explicit is None else pa.array(explicit, pa.int32()),
        rows,
        10 * rows,
    )
    return [found] * rows if isinstance(found, int) else found.tolist()


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_key_selects_the_partition_of_a_producer(keys: list[bytes | None], count: int) -> None:
    """Rows without a key share a partition."""
    found = partitions(keys, count=count)
    for key, partition in zip(keys, found, strict=True):
        if key is not None:
            assert partition_of(key, count) == partition
    assert len({part for key, part in zip(keys, found, strict=True) if key is None}) <= 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string()], ids=str)
def test_key_of_another_type_is_hashed_by_its_bytes(kind: pa.DataType) -> None:
    """Text is its UTF-8; Arrow offsets may have 64 bits."""
    keys = [b"one", None, b"two", b"three"]
    assert partitions(keys) == partitions(keys, kind=kind)


def test_key_of_a_slice_is_hashed_by_its_own_cells() -> None:
    """The column begins within its buffers."""
    whole = pa.array([b"x", b"yy", None, b"one", b"two"], pa.binary())
    partitioner = Partitioner("t", 7, "murmur2", stick_bytes=100)
    found = partitioner.partitions(whole.slice(2), None, 3, 10)
    assert not isinstance(found, int)
    assert [0, partition_of(b"one", 7), partition_of(b"two", 7)] == found.tolist()


def test_rows_without_a_key_change_the_partition_after_each_batch() -> None:
    """A batch goes to one partition; the task number selects the first."""
    partitioner = Partitioner("t", 3, "murmur2", task=4, stick_bytes=100)
    found = [partitioner.partitions(None, None, 10, 60) for _ in range(8)]
    assert [1, 1, 2, 2, 0, 0, 1, 1] == found


def test_roundrobin_ignores_keys() -> None:
    """The counts of the partitions differ by at most one."""
    partitioner = Partitioner("t", 4, "roundrobin", task=1, stick_bytes=100)
    keys = pa.array([b"same"] * 7, pa.binary())
    found = [partitioner.partitions(keys, None, 7, 70) for _ in range(3)]
    counts = Counter(int(each) for part in found for each in np.atleast_1d(part))
    assert {5, 6} == set(counts.values())
    assert [1, 2, 3, 0, 1, 2, 3] == np.asarray(found[0]).tolist()


def test_partition_column_overrides_the_key() -> None:
    """A null cell leaves the choice to the key."""
    assert [4, partition_of(b"one", 5), 0] == partitions([b"a", b"one", b"b"], [4, None, 0])


@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1])
def test_partition_out_of_range_is_refused(wrong: int) -> None:
    """The topic has the partitions 0 to count - 1."""
    with pytest.raises(KafkaLogSparkError) as caught:
        partitions([b"a", b"b"], [1, wrong])
    assert ErrorCode.PARTITION_OUT_OF_RANGE == caught.value.code
    assert wrong == caught.value.detail["partition"]


@pytest.mark.parametrize("explicit", [None, [1, None]])
def test_explicit_rule_without_a_partition_is_refused(explicit: list[int | None] | None) -> None:
    """Every row needs a partition."""
    with pytest.raises(KafkaLogSparkError) as caught:
        partitions([b"a", b"b"], explicit, rule="explicit")
    assert ErrorCode.COLUMN_MISSING == caught.value.code
