"""Tests of `assign_offsets` and `set_max_timestamp`, which change batches in place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.assign_offsets import set_max_timestamps
from kafkalog._core.batch import assign_offsets, check_batch, parse_header, set_max_timestamp
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError, OffsetOverflowError
from tests.core.test_batch import run_of_batches, runs
from tests.support import golden, reference
from tests.support.examples import examples
from tests.support.reference import Header
from tests.support.reference_messages import Message, encode_messages

BATCHES = golden.vectors("batches")["batches"]


@settings(max_examples=examples(100))
@given(run=runs(), base_offset=st.integers(0, 2**40), leader_epoch=st.integers(-1, 2**31 - 1))
def test_assign_offsets_equals_the_reference(
    run: bytes, base_offset: int, leader_epoch: int
) -> None:
    """Offsets have no gap, the epoch is set, CRCs stay valid."""
    run = run[: reference.scan_batches(run).position]
    data = bytearray(run)
    assigned, next_offset = reference.assign_offsets(run, base_offset, leader_epoch)
    actual = assign_offsets(data, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    assert next_offset == actual
    assert assigned == data
    if run:
        assert STATUS_CODES["OK"] == check_batch(data)


def test_assign_offsets_inside_bounds_keeps_the_bytes_around() -> None:
    """Only data[position:end] is a run; the bytes around it are arbitrary and stay."""
    size = len(run_of_batches(1))
    data = bytearray(b"abc" + run_of_batches(3) + b"xyz")
    before = bytes(data)
    end = 3 + 2 * size
    assert 1004 == assign_offsets(data, base_offset=1000, position=3, end=end)
    assert (1000, 1002) == (
        parse_header(data, 3).base_offset,
        parse_header(data, 3 + size).base_offset,
    )
    assert (before[:3], before[end:]) == (bytes(data[:3]), bytes(data[end:]))


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (run_of_batches(1)[:-1], CorruptRecordError),
        (bytes(20), CorruptRecordError),
        (replace(Header(), magic=1, crc=1 << 24).encode(), InvalidRecordError),
    ],
    ids=["cut", "zeros", "wrapper"],
)
def test_assign_offsets_of_a_bad_run_writes_nothing(tail: bytes, error: type[Exception]) -> None:
    """The run is checked before the first write; the error has the position."""
    data = bytearray(run_of_batches(2) + tail)
    before = bytes(data)
    with pytest.raises(error, match=f"at position {len(run_of_batches(2))}"):
        assign_offsets(data, base_offset=5)
    assert before == data


def test_assign_offsets_beyond_63_bits_raises() -> None:
    """The offset after the run must fit in 63 bits."""
    data = bytearray(run_of_batches(2))
    before = bytes(data)
    with pytest.raises(OffsetOverflowError, match="do not fit 63 bits"):
        assign_offsets(data, base_offset=2**63 - 4)
    assert before == data
    assert 2**63 - 1 == assign_offsets(data, base_offset=2**63 - 5)
    with pytest.raises(ValueError, match="must not be negative"):
        assign_offsets(data, base_offset=-1)


def test_assign_offsets_of_an_empty_run_returns_the_base() -> None:
    """An empty run uses no offsets."""
    assert 9 == assign_offsets(bytearray(), base_offset=9)
    assert 9 == assign_offsets(bytearray(b"xyz"), base_offset=9, position=3)


def test_assign_offsets_of_read_only_bytes_raises() -> None:
    """Immutable bytes are never written."""
    with pytest.raises((ValueError, BufferError)):
        assign_offsets(run_of_batches(1), base_offset=1)


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["name"])
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_set_max_timestamp_equals_the_reference(case: dict[str, Any], timestamp_type: int) -> None:
    """Every kind of batch; only timestamp, type and CRC change."""
    batch = bytes.fromhex(case["hex"])
    data = bytearray(b"?" + batch)
    set_max_timestamp(data, 1, timestamp_type=timestamp_type, max_timestamp=1_800_000_000_000)
    assert reference.set_max_timestamp(batch, timestamp_type, 1_800_000_000_000) == data[1:]
    assert STATUS_CODES["OK"] == check_batch(data, 1)
    assert timestamp_type == parse_header(data, 1).timestamp_type


def test_set_max_timestamp_with_the_same_value_changes_nothing() -> None:
    """As in Kafka, unused attribute bits are cleared only if another field changes."""
    odd = reference.encode_batch(Header(attributes=0x55C1, max_timestamp=7), b"payload")
    data = bytearray(odd)
    set_max_timestamp(data, 0, timestamp_type=0, max_timestamp=7)
    assert odd == data
    set_max_timestamp(data, 0, timestamp_type=0, max_timestamp=8)
    assert 0x0041 == parse_header(data).attributes


def test_set_max_timestamp_of_a_bad_batch_raises() -> None:
    """The CRC of a truncated batch cannot be computed."""
    data = bytearray(random.Random(3).randbytes(30))
    data[8:12] = (100).to_bytes(4, "big")
    data[16] = 2
    with pytest.raises(CorruptRecordError, match="the bytes end"):
        set_max_timestamp(data, 0, timestamp_type=1, max_timestamp=1)
    with pytest.raises(ValueError, match="must be 0 or 1"):
        set_max_timestamp(data, 0, timestamp_type=2, max_timestamp=1)


def test_set_max_timestamps_equals_one_call_per_batch() -> None:
    """Only the chosen batches change; the numbers of positions and times must be equal."""
    made = [Message(number, 1, 0, 50 + number, b"k", b"v" * number) for number in range(9)]
    data = encode_messages(made)
    starts = np.cumsum([0, *(len(encode_messages([each])) for each in made)])[[1, 4, 5]]
    times = np.array([7, -1, 2**40])
    expected, actual = bytearray(data), bytearray(data)
    for start, time in zip(starts.tolist(), times.tolist(), strict=True):
        set_max_timestamp(expected, start, timestamp_type=1, max_timestamp=time)
    set_max_timestamps(actual, starts, times, timestamp_type=1)
    assert expected == actual
    assert expected != data
    with pytest.raises(ValueError, match="must be as many as positions, 3, got 2"):
        set_max_timestamps(actual, starts, times[:2], timestamp_type=1)
    with pytest.raises(ValueError, match="timestamp_type"):
        set_max_timestamps(actual, starts, times, timestamp_type=2)
    with pytest.raises(IndexError):
        set_max_timestamps(actual, starts[:1] - 10**6, times[:1], timestamp_type=1)
