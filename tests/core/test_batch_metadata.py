"""Tests of `BatchMetadata`: a sequence of rows, and `assign_offsets` by these rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch_metadata import BatchFacts, BatchMetadata
from kafkalog.errors import OffsetOverflowError
from tests.core.test_batch import runs
from tests.support import reference
from tests.support.examples import examples
from tests.support.reference_messages import Message, encode_messages

ROWS = [
    BatchFacts(30, 5, 5, 9, 5),
    BatchFacts(40, 6, 8, -1, -1),
    BatchFacts(50, 9, 9, 9, 9),
]


def test_batch_metadata_is_a_sequence_of_rows() -> None:
    """Items, slices, iteration and size; an index outside raises."""
    facts = BatchMetadata(ROWS)
    assert ROWS == list(facts)
    assert ROWS == [facts[slot] for slot in range(3)]
    assert (ROWS[-1], ROWS[1:], ROWS[::-1]) == (facts[-1], facts[1:], facts[::-1])
    for slot in (3, -4):
        with pytest.raises(IndexError, match=r"slot must be in 0\.\.2, got "):
            facts[slot]
    assert (3, 120, "BatchMetadata(3 batches, 120 bytes)") == (
        len(facts),
        facts.size_bytes,
        repr(facts),
    )
    assert (10, 0) == (facts.end_offset, BatchMetadata().end_offset)
    assert ROWS[1:] == facts.batches_above(30)
    assert [] == facts.batches_above(50)
    with pytest.raises(TypeError, match="copied"):
        facts.__reduce__()


def test_batch_metadata_span_has_the_first_of_equal_largest_timestamps() -> None:
    """The span has first and last offset, largest timestamp and the first offset with it."""
    assert (5, 9, 9, 5) == BatchMetadata(ROWS).span()
    assert (6, 9, 9, 9) == BatchMetadata(ROWS[1:]).span()
    assert (6, 8, -1, -1) == BatchMetadata(ROWS[1:2]).span()
    with pytest.raises(ValueError, match="without batches"):
        BatchMetadata().span()


def test_batch_metadata_of_messages_has_one_row_per_message() -> None:
    """`is_all_messages` is False after a batch of another kind is added."""
    starts, offsets, times = (
        np.array(each, dtype=np.int64) for each in ([0, 30, 70, 100], [5, 6, 7], [9, -1, 9])
    )
    facts = BatchMetadata.of_messages(starts, offsets, times)
    assert [(30, 5, 5, 9, 5), (40, 6, 6, -1, -1), (30, 7, 7, 9, 7)] == list(facts)
    assert facts.is_all_messages
    joined = BatchMetadata()
    assert not joined.is_all_messages
    joined.extend(facts)
    joined.extend(facts.shifted(3))
    assert joined.is_all_messages
    assert [5, 6, 7, 8, 9, 10] == [row.base_offset for row in joined]
    assert [5, -1, 7, 8, -1, 10] == [row.shallow_offset for row in joined]
    joined.extend(BatchMetadata(ROWS))
    assert not joined.is_all_messages
    with pytest.raises(ValueError, match="3 offsets"):
        BatchMetadata.of_messages(starts[1:], offsets, times)


def test_batch_metadata_of_impossible_rows_raises() -> None:
    """A size below that of any batch, and falling offsets."""
    facts = BatchMetadata()
    for row in ((16, 0, 0, 0, 0), (100, 1, 0, 0, 0), (100, -1, 0, 0, 0)):
        with pytest.raises(ValueError, match="a batch must have at least 17 bytes"):
            facts.add(*row)
    assert 0 == len(facts)


@settings(max_examples=examples(60))
@given(runs(), st.integers(0, 2**40), st.integers(-1, 2**31 - 1))
def test_batch_metadata_assign_offsets_equals_the_reference(
    run: bytes, base_offset: int, leader_epoch: int
) -> None:
    """Any base offset, also after an earlier assignment; the rows get the new offsets."""
    found = reference.scan_batches(run, check_order=False)
    run = run[: found.position]
    if not run:
        return
    expected, next_offset = reference.assign_offsets(run, base_offset, leader_epoch)
    facts, row = BatchMetadata(), 0
    for _, header in found.batches:
        last = row + header.last_offset_delta
        facts.add(header.size_bytes, row, last, header.max_timestamp, last)
        row = last + 1
    data = bytearray(run)
    facts.assign_offsets(data, 3, 0)
    assert (base_offset, next_offset - 1) == facts.assign_offsets(data, base_offset, leader_epoch)[
        :2
    ]
    assert expected == bytes(data)
    bases = [header.base_offset for _, header in reference.scan_batches(expected).batches]
    assert bases == [row.base_offset for row in facts]


def test_batch_metadata_assign_offsets_of_messages_keeps_their_crc() -> None:
    """A wrapper stores its last offset; no epoch is written, since its CRC is in that place."""
    messages = [Message(0, magic, 0, 5, None, b"v") for magic in (0, 1)]
    data = bytearray(encode_messages(messages))
    first = len(encode_messages(messages[:1]))
    facts = BatchMetadata([(first, 0, 0, -1, -1), (len(data) - first, 1, 4, 5, 4)])
    before = bytes(data)
    assert (10, 14, 5, 14) == facts.assign_offsets(data, 10, 7)
    assert [10, 14] == [int.from_bytes(data[at : at + 8], "big") for at in (0, first)]
    assert before[8:first] == bytes(data[8:first])
    assert before[first + 8 :] == bytes(data[first + 8 :])


def test_batch_metadata_assign_offsets_out_of_range_writes_nothing() -> None:
    """Another number of bytes, a negative offset, and offsets above 63 bits raise."""
    facts, data = BatchMetadata([(100, 0, 9, 5, 9)]), bytearray(100)
    with pytest.raises(ValueError, match="data must have 100 bytes, got 99"):
        facts.assign_offsets(bytearray(99), 0, 0)
    with pytest.raises(ValueError, match="negative"):
        facts.assign_offsets(data, -1, 0)
    with pytest.raises(OffsetOverflowError, match="10 offsets from"):
        facts.assign_offsets(data, 2**63 - 10, 0)
    with pytest.raises(ValueError, match="must have batches"):
        BatchMetadata().assign_offsets(data, 0, 0)
    assert (bytes(100), [(100, 0, 9, 5, 9)]) == (bytes(data), list(facts))
    assert (2**63 - 11, 2**63 - 2, 5, 2**63 - 2) == facts.assign_offsets(data, 2**63 - 11, 0)
