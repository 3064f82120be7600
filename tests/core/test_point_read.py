"""Reading one record by its offset out of a run of batches."""

from __future__ import annotations

import pytest

from kafkalog import Record
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.point_read import find_record


def batch(base_offset: int, deltas: list[int], *, control: bool = False) -> bytes:
    """Return a batch of records at the given offset deltas; values say their offsets."""
    builder = BatchBuilder()
    for delta in deltas:
        builder.append_at(delta, b"k", b"v%d" % (base_offset + delta), 1000 + delta)
    return bytes(builder.finish(base_offset=base_offset, control=control))


RUN = batch(10, [0, 1, 2]) + batch(13, [0, 2, 7]) + batch(40, list(range(200)))
PRESENT = [10, 11, 12, 13, 15, 20, *range(40, 240)]


def test_find_record_every_offset_is_found_or_none() -> None:
    """Each record by its offset, with its timestamp; gaps, and what is outside, give None."""
    for offset in range(300):
        record = find_record(RUN, offset)
        if offset in PRESENT:
            assert record is not None
            assert (offset, b"k", b"v%d" % offset) == (record.offset, record.key, record.value)
        else:
            assert record is None
    found = find_record(RUN, 20)
    assert found == Record(key=b"k", value=b"v20", timestamp_ms=1007, offset=20)


def test_find_record_holds_the_buffer() -> None:
    """A record that is not touched yet outlives every other reference to its bytes."""
    record = find_record(bytearray(RUN), 15)
    assert record is not None
    assert b"v15" == record.value


@pytest.mark.parametrize("size", range(len(batch(0, [0, 1]))))
def test_find_record_cut_batch_gives_none(size: int) -> None:
    """No prefix of a batch is read."""
    assert find_record(batch(0, [0, 1])[:size], 0) is None


def test_find_record_flipped_bit_gives_none_or_the_same() -> None:
    """Damage is never returned: each bit that the CRC covers, and each before it but offsets."""
    good = batch(5, [0, 1, 2])
    wanted = find_record(good, 6)
    for position in range(8, len(good)):
        if 12 <= position < 16:
            continue  # the leader epoch is stamped after the CRC
        for bit in range(8):
            damaged = bytearray(good)
            damaged[position] ^= 1 << bit
            assert find_record(damaged, 6) is None
    assert wanted == find_record(good, 6)


def test_find_record_not_plain_gives_none() -> None:
    """Compressed and control batches are the caller's business, and so are damaged ones before."""
    builder = BatchBuilder()
    builder.append(b"k", b"v")
    compressed = bytes(builder.finish(codec=1, payload=b"not read"))
    assert find_record(compressed, 0) is None
    assert find_record(batch(0, [0], control=True), 0) is None
    assert find_record(bytes(61) + RUN, 10) is None
    assert find_record(b"", 0) is None
    assert find_record(RUN, -1) is None
