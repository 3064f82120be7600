"""Tests of murmur2 and partitions of keys, compared with Kafka's vectors and the reference."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkalog._core import murmur2
from kafkalog._core.bytes_column import BytesColumn
from tests.support import golden, reference_murmur2
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples

KEYS = golden.vectors("murmur2")["keys"]
INT32_MAX = 2**31 - 1


def column(keys: list[bytes | None], kind: type[np.int32 | np.int64] = np.int32) -> BytesColumn:
    """Return keys in Arrow's layout, with a bitmap if some are null."""
    sizes = [0 if key is None else len(key) for key in keys]
    offsets = np.cumsum([0, *sizes]).astype(kind)
    data = exact(b"".join(key or b"" for key in keys))
    if None not in keys:
        return BytesColumn(data, offsets)
    valid = np.array([key is not None for key in keys])
    return BytesColumn(data, offsets, np.packbits(valid, bitorder="little"))


def unset_results(count: int) -> NDArray[np.int32]:
    """Return results with a value that no test expects."""
    return np.full(count, 0x5A5A5A5A, np.int32)


def test_murmur2_vectors_equal_kafka() -> None:
    """Hash and partition of every key of the list equal Kafka's."""
    assert KEYS
    for case in KEYS:
        key = base64.b64decode(case["key"])
        assert case["hash"] == murmur2.value(exact(key))
        assert case["positive"] == murmur2.partition_of(key, INT32_MAX) or (
            case["positive"] == INT32_MAX
        )
        for count, partition in case["partition"].items():
            assert partition == murmur2.partition_of(exact(key), int(count))


def test_murmur2_vectors_as_a_column_equal_kafka() -> None:
    """Hashes and partitions of the whole list in one call."""
    keys = [base64.b64decode(case["key"]) for case in KEYS]
    results = unset_results(len(keys))
    murmur2.hash_column(column([*keys]), results)
    assert [case["hash"] for case in KEYS] == results.tolist()
    for count in KEYS[0]["partition"]:
        murmur2.partition_column(column([*keys]), int(count), results)
        assert [case["partition"][count] for case in KEYS] == results.tolist()


@pytest.mark.parametrize("size", range(70))
def test_murmur2_every_size_and_alignment_equals_the_reference(size: int) -> None:
    """Each word and tail is read once, at any alignment."""
    noise = random.Random(size).randbytes(size + 8)
    for shift in range(8):
        key = noise[shift : shift + size]
        assert reference_murmur2.murmur2(key) == murmur2.value(key)
        assert reference_murmur2.murmur2(key) == murmur2.value(exact(key))


@settings(max_examples=examples(100))
@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=30),
    count=st.integers(1, INT32_MAX),
    wide=st.booleans(),
)
def test_murmur2_of_a_column_equals_the_reference(
    keys: list[bytes | None], count: int, wide: bool
) -> None:
    """Each cell has the result of its key, nulls the given value, with both kinds of offsets."""
    keys_column = column(keys, np.int64 if wide else np.int32)
    hashes, partitions = unset_results(len(keys)), unset_results(len(keys))
    murmur2.hash_column(keys_column, hashes, null_hash=-7)
    murmur2.partition_column(keys_column, count, partitions)
    assert [-7 if key is None else reference_murmur2.murmur2(key) for key in keys] == (
        hashes.tolist()
    )
    assert [-1 if key is None else reference_murmur2.partition_of(key, count) for key in keys] == (
        partitions.tolist()
    )


def test_murmur2_of_some_slots_keeps_the_other_results() -> None:
    """A range of a column fills one result per slot."""
    keys: list[bytes | None] = [b"a", b"bb", None, b"dddd", b"eeeee"]
    results = unset_results(3)
    murmur2.partition_column(column(keys), 5, results, start=1, stop=4, null_partition=9)
    expected = [reference_murmur2.partition_of(b"bb", 5), 9]
    assert [*expected, reference_murmur2.partition_of(b"dddd", 5)] == results.tolist()


def test_murmur2_of_many_keys_equals_single_keys() -> None:
    """The column is large enough to be hashed without the GIL."""
    rng = random.Random(3)
    keys: list[bytes | None] = [rng.randbytes(rng.randrange(24)) for _ in range(5000)]
    results = unset_results(len(keys))
    murmur2.partition_column(column(keys), 12, results)
    assert [murmur2.partition_of(key, 12) for key in keys if key is not None] == results.tolist()


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_murmur2_of_any_buffer_is_equal(buffer: str) -> None:
    """Any contiguous buffer of bytes is a key, also an empty one."""
    for key in (b"", b"k", b"a key of some length"):
        assert reference_murmur2.murmur2(key) == murmur2.value(BUFFER_KINDS[buffer](key))
        assert reference_murmur2.partition_of(key, 6) == murmur2.partition_of(
            BUFFER_KINDS[buffer](key), 6
        )


@pytest.mark.parametrize(
    "offsets",
    [[0, 3, 2, 9], [0, 3, 10, 12], [0, 3, -1, 9], [0, 3, INT32_MAX, INT32_MAX]],
    ids=["falling", "behind the data", "negative", "far behind the data"],
)
def test_murmur2_of_hostile_offsets_is_refused(offsets: list[int]) -> None:
    """Bytes outside the data are not read; earlier results are kept."""
    for kind in (np.int32, np.int64):
        results = unset_results(3)
        keys = BytesColumn(exact(b"abcdefghi"), np.array(offsets, kind))
        with pytest.raises(ValueError, match="offsets of slot 1 must rise and lie in"):
            murmur2.hash_column(keys, results)
        assert reference_murmur2.murmur2(b"abc") == results[0]
        assert [0x5A5A5A5A, 0x5A5A5A5A] == results[1:].tolist()


def test_murmur2_hostile_slot_among_many_is_in_the_error() -> None:
    """The same for a column hashed without the GIL."""
    offsets = np.arange(5001, dtype=np.int64)
    offsets[4321] = -1
    with pytest.raises(ValueError, match="offsets of slot 4320 "):
        murmur2.hash_column(BytesColumn(exact(bytes(5000)), offsets), unset_results(5000))


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (0, 4), (3, 2), (4, None)])
def test_murmur2_slots_outside_the_column_raise(start: int, stop: int | None) -> None:
    """The range is not inside the column."""
    with pytest.raises(ValueError, match="slots must be in 0 to 3, got"):
        murmur2.hash_column(column([b"a", b"b", b"c"]), unset_results(3), start=start, stop=stop)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_murmur2_results_of_another_number_are_refused(count: int) -> None:
    """The results must have one row per key."""
    with pytest.raises(ValueError, match=f"results must be as many as keys, 3, got {count}"):
        murmur2.partition_column(column([b"a", b"b", b"c"]), 7, unset_results(count))


def test_murmur2_of_no_keys_writes_nothing() -> None:
    """An empty column needs no results."""
    murmur2.hash_column(column([]), unset_results(0))
    murmur2.partition_column(column([b"a"]), 3, unset_results(0), start=1)


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_murmur2_wrong_number_of_partitions_is_refused(count: int) -> None:
    """A topic has at least one partition, and Kafka numbers them with an int."""
    with pytest.raises(ValueError, match=f"partition_count must be at least 1, got {count}"):
        murmur2.partition_of(b"key", count)
    with pytest.raises(ValueError, match=f"partition_count must be at least 1, got {count}"):
        murmur2.partition_column(column([b"key"]), count, unset_results(1))


def test_murmur2_of_no_key_is_refused() -> None:
    """A null key has no hash, and text is not bytes."""
    with pytest.raises(TypeError):
        murmur2.value(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        murmur2.partition_of("key", 3)  # type: ignore[arg-type]
