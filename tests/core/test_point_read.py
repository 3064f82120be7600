"""Tests of the look-up of one record by its offset in a run of batches."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import numpy
import pytest
from typing_extensions import Buffer

from kafkalog import Record
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.index import OffsetIndexView
from kafkalog._core.point_read import PointReader
from tests.support.damage import fix_crc
from tests.support.message_cases import MIXED
from tests.support.reference_messages import Message, encode_message, encode_messages


def find_record(data: Buffer, offset: int) -> Record | None:
    """Find the record without index entries."""
    return PointReader(data, OffsetIndexView(b"", 0)).find(offset)


def batch(base_offset: int, deltas: list[int], *, control: bool = False) -> bytes:
    """Return a batch of records at the given offset deltas; values contain the offsets."""
    builder = BatchBuilder()
    for delta in deltas:
        builder.append_at(delta, b"k", b"v%d" % (base_offset + delta), 1000 + delta)
    return bytes(builder.finish(base_offset=base_offset, control=control))


RUN = batch(10, [0, 1, 2]) + batch(13, [0, 2, 7]) + batch(40, list(range(200)))
PRESENT = [10, 11, 12, 13, 15, 20, *range(40, 240)]


def test_find_record_every_offset_is_found_or_none() -> None:
    """Each record with its timestamp; offsets in gaps and outside return None."""
    for offset in range(300):
        record = find_record(RUN, offset)
        if offset in PRESENT:
            assert record is not None
            assert (offset, b"k", b"v%d" % offset) == (record.offset, record.key, record.value)
        else:
            assert record is None
    found = find_record(RUN, 20)
    assert found == Record(key=b"k", value=b"v20", timestamp_ms=1007, offset=20)


def test_find_record_keeps_the_buffer() -> None:
    """A lazy record outlives every other reference to its bytes."""
    record = find_record(bytearray(RUN), 15)
    assert record is not None
    assert b"v15" == record.value


@pytest.mark.parametrize("size", range(len(batch(0, [0, 1]))))
def test_find_record_in_a_cut_batch_returns_none(size: int) -> None:
    """A truncated batch is not read."""
    assert find_record(batch(0, [0, 1])[:size], 0) is None


def test_find_record_after_a_flipped_bit_returns_none_or_the_same() -> None:
    """Damage is never returned: each bit under the CRC and before it, except offsets."""
    good = batch(5, [0, 1, 2])
    record = find_record(good, 6)
    for position in range(8, len(good)):
        if 12 <= position < 16:
            continue  # the CRC does not cover the leader epoch
        for bit in range(8):
            damaged = bytearray(good)
            damaged[position] ^= 1 << bit
            assert find_record(damaged, 6) is None
    assert record == find_record(good, 6)


def test_find_record_not_plain_returns_none() -> None:
    """Compressed, control and damaged batches are left to the caller."""
    builder = BatchBuilder()
    builder.append(b"k", b"v")
    compressed = bytes(builder.finish(codec=1, payload=b"not read"))
    assert find_record(compressed, 0) is None
    assert find_record(batch(0, [0], control=True), 0) is None
    assert find_record(bytes(61) + RUN, 10) is None
    assert find_record(b"", 0) is None
    assert find_record(RUN, -1) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_find_record_of_the_old_formats_is_found_or_none(magic: int) -> None:
    """Each plain message between batches is found; a wrapper is not plain."""
    wrapper = Message(9, magic, 1, 5, None, b"???")
    data = encode_messages([*MIXED[magic], wrapper]) + RUN
    expected = {message.offset: message for message in MIXED[magic]}
    for offset in range(10):
        record = find_record(data, offset)
        message = expected.get(offset)
        assert (message is None) == (record is None)
        if record is not None and message is not None:
            assert Record(
                key=message.key,
                value=message.value,
                timestamp_ms=message.timestamp,
                offset=message.offset,
            ) == (record)
            assert magic - 1 == record.timestamp_type
    assert b"v12" == getattr(find_record(data, 12), "value", None)


@pytest.mark.parametrize("magic", [0, 1])
def test_find_record_of_the_old_formats_damaged_returns_none(magic: int) -> None:
    """Each bit except those of the offset, which no CRC covers, and each cut."""
    good = encode_message(MIXED[magic][0])
    for size in range(len(good)):
        assert find_record(good[:size], 0) is None
    for bit in range(64, 8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        assert find_record(damaged, 0) is None


def test_reader_starts_at_the_index_entry() -> None:
    """An entry after a batch hides the batch; an entry at a wrong position finds nothing."""
    second = len(batch(10, [0, 1, 2]))
    index = OffsetIndexView(struct.pack(">iiii", 13, second, 100, 10**9), 0)
    reader = PointReader(RUN, index)
    assert len(RUN) == len(reader)
    assert [None, 11, 13, 40] == [
        None if record is None else record.offset for record in map(reader.find, (100, 11, 13, 40))
    ]
    misled = PointReader(RUN, OffsetIndexView(struct.pack(">ii", 1, second), 0))
    assert misled.find(11) is None
    assert 13 == getattr(misled.find(13), "offset", None)
    within = PointReader(RUN, OffsetIndexView(struct.pack(">ii", 1, second + 5), 0))
    assert [None] * 3 == [within.find(offset) for offset in (11, 13, 40)]


def test_reader_with_a_corrupt_index_never_returns_a_wrong_record() -> None:
    """For any entries the result is the right record or None."""
    source = random.Random(7)
    for _round in range(200):
        index = OffsetIndexView(source.randbytes(8 * 5), 0)
        for offset in (0, 10, 13, 15, 41, 239, 240, 2**62):
            record = PointReader(RUN, index).find(offset)
            assert record is None or (offset, b"v%d" % offset) == (record.offset, record.value)


def test_find_without_check_crcs_returns_damaged_records() -> None:
    """A broker does the same; the batch is not cached as checked."""
    damaged = bytearray(RUN)
    damaged[-1] ^= 1
    reader = PointReader(bytes(damaged), OffsetIndexView(b"", 0))
    for _again in range(2):
        found = reader.find(60, check_crcs=False)
        assert found is not None
        assert b"v60" == found.value
        assert None is reader.find(60)
    many: list[Record | None] = [None]
    reader.find_many(numpy.array([60]), many, 0, 1, check_crcs=False)
    assert [60] == [each and each.offset for each in many]
    checked: list[Record | None] = [None]
    reader.find_many(numpy.array([60]), checked, 0, 1)
    assert [None] == checked


@pytest.mark.parametrize("shape", ["even", "bent", "steps", "noise"])
def test_reader_finds_its_entry_for_any_distribution(shape: str) -> None:
    """Offsets rise evenly, faster and faster, in jumps, or not at all in a damaged index."""
    source = random.Random(3)
    offsets = {
        "even": list(range(0, 3000, 10)),
        "bent": [number * number for number in range(300)],
        "steps": [number + 100_000 * (number // 50) for number in range(300)],
        "noise": [source.randrange(2**31) for _ in range(300)],
    }[shape]
    parts = [batch(offset, [0]) for offset in offsets]
    position, entries = 0, []
    for offset, part in zip(offsets, parts, strict=True):
        entries.append(struct.pack(">ii", offset, position))
        position += len(part)
    # Each entry has one batch: a search from an entry too early or too late finds none.
    reader = PointReader(b"".join(parts), OffsetIndexView(b"".join(entries[1:]), 0))
    for offset in offsets:
        found = reader.find(offset)
        if shape != "noise":
            assert found is not None
            assert offset == found.offset
        assert None is reader.find(offset + 1) or offset + 1 in offsets


@pytest.mark.parametrize("step", [1, 3, 7])
def test_find_many_equals_find(step: int) -> None:
    """In batches with and without gaps and of old formats; slots outside are unchanged."""
    data = RUN + encode_messages(
        [replace(message, offset=message.offset + 300) for message in MIXED[1]]
    )
    reader = PointReader(data, OffsetIndexView(b"", 0))
    offsets = numpy.arange(0, 320, step, dtype=numpy.int64)
    found: list[Record | None] = [None] * len(offsets)
    reader.find_many(offsets, found, 1, len(offsets) - 1)
    expected = [find_record(data, int(offset)) for offset in offsets]
    assert [None, *expected[1:-1], None] == found
    assert sum(each is not None for each in found) > 60 // step


def test_find_many_with_a_wrong_count_returns_no_wrong_record() -> None:
    """The record count claims that offsets have no gaps, but they have."""
    lying = bytearray(batch(0, [0, 2, 4]))
    lying[57:61] = struct.pack(">i", 5)
    lying = bytearray(fix_crc(bytes(lying)))
    found: list[Record | None] = [None] * 5
    PointReader(lying, OffsetIndexView(b"", 0)).find_many(numpy.arange(5), found, 0, 5)
    assert all(each is None or each.offset == slot for slot, each in enumerate(found))


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4), (0, 3)])
def test_find_many_slots_outside_raise(start: int, stop: int) -> None:
    """The slots are outside the offsets or outside the list."""
    reader = PointReader(RUN, OffsetIndexView(b"", 0))
    with pytest.raises(IndexError):
        reader.find_many(numpy.arange(3), [None, None], start, stop)
