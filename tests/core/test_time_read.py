"""Tests of the look-up of the first record at or above a time in a run of batches."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import InvalidRecordError
from kafkalog._core.batch import set_max_timestamp
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._core.time_read import first_record_at
from kafkalog.records.batch_view import BatchView
from tests.support.damage import fix_crc
from tests.support.examples import examples
from tests.support.reference_messages import Message, encode_messages

NO_ENTRIES = OffsetIndexView(b"", 0)
NO_TIMES = TimeIndexView(b"", 0)


def batch(base_offset: int, times: list[int], **how: bool | int) -> bytes:
    """Return a batch of records with these timestamps."""
    builder = BatchBuilder()
    for number, time in enumerate(times):
        builder.append(b"k", b"v%d" % (base_offset + number), time)
    return bytes(builder.finish(base_offset=base_offset, **how))  # type: ignore[arg-type]


def find(data: bytes, timestamp_ms: int, start_offset: int = 0) -> tuple[int, int, int] | None:
    """Find the record without an index."""
    return PointReader(data, NO_ENTRIES, NO_TIMES).find_time(timestamp_ms, start_offset)


def find_from(
    entries: OffsetIndexView, entry: tuple[int, int], timestamp_ms: int
) -> tuple[int, int, int] | None:
    """Find a record in RUN from an entry of the time index."""
    times = TimeIndexView(struct.pack(">qi", *entry), 0)
    return PointReader(RUN, entries, times).find_time(timestamp_ms)


RUN = batch(10, [100, 300, 200]) + batch(13, [250, 400], partition_leader_epoch=7)


@pytest.mark.parametrize(
    ("timestamp_ms", "start_offset", "expected"),
    [
        (0, 0, (100, 10, -1)),
        (101, 0, (300, 11, -1)),
        (300, 0, (300, 11, -1)),
        (301, 0, (400, 14, 7)),
        (401, 0, None),
        (0, 12, (200, 12, -1)),
        (201, 12, None),
        (0, 15, None),
    ],
)
def test_find_time_returns_the_first_record_by_offset(
    timestamp_ms: int, start_offset: int, expected: tuple[int, int, int] | None
) -> None:
    """Times may fall; a batch that reaches the time without such a record returns None."""
    assert expected == find(RUN, timestamp_ms, start_offset)


def test_find_time_in_batch_with_append_time_returns_it() -> None:
    """All records of a batch with append time have its largest timestamp."""
    data = bytearray(batch(5, [100, 300]))
    set_max_timestamp(data, 0, timestamp_type=1, max_timestamp=900)
    assert (900, 5, -1) == find(bytes(data), 301)


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_find_time_in_cut_run_reads_whole_batches_only(cut: int) -> None:
    """The header of a truncated batch is not used."""
    data = batch(0, [10]) + batch(1, [20, 30])
    assert (10, 0, -1) == find(data[:-cut], 10)
    assert None is find(data[:-cut], 11)


def test_find_time_in_damaged_batch_returns_none() -> None:
    """Only the CRC of the batch with the result is checked; earlier ones are skipped by header."""
    data = bytearray(RUN)
    data[-1] ^= 1
    assert None is find(bytes(data), 301)
    assert (300, 11, -1) == find(bytes(data), 300)


def test_find_time_without_check_crcs_returns_damaged_records() -> None:
    """A broker does the same; the batch is not cached as checked."""
    data = bytearray(RUN)
    data[-2] ^= 1  # in the last value
    reader = PointReader(bytes(data), NO_ENTRIES, NO_TIMES)
    for _again in range(2):
        assert (400, 14, 7) == reader.find_time(301, check_crcs=False)
        assert None is reader.find_time(301)


def test_find_time_stops_at_corrupt_records() -> None:
    """Records before the corrupt one in a batch with a valid CRC are found."""
    data = bytearray(batch(0, [10, 20]))
    data[-4] = 0x7F  # the size of the last value
    assert (10, 0, -1) == find(fix_crc(bytes(data)), 10)
    assert None is find(fix_crc(bytes(data)), 11)


def test_find_time_with_a_count_too_small_stops_at_the_count() -> None:
    """Bytes after the counted records are ignored."""
    data = bytearray(batch(0, [10, 20]))
    struct.pack_into(">i", data, 57, 1)
    assert (10, 0, -1) == find(fix_crc(bytes(data)), 10)
    assert None is find(fix_crc(bytes(data)), 11)


def test_find_time_in_control_batch_returns_none() -> None:
    """Control batches are left to the slow path."""
    assert None is find(batch(0, [10], control=True), 10)


def test_find_time_without_batches_or_entries_returns_none() -> None:
    """An empty segment has no result for any index."""
    assert None is find(b"", 0)
    entries = OffsetIndexView(struct.pack(">ii", 1, 5000), 0)
    times = TimeIndexView(struct.pack(">qi", 5, 12), 0)
    assert None is PointReader(RUN, entries, times).find_time(100)
    assert None is PointReader(RUN, entries).find_time(0)
    assert None is find(RUN, -5)


def test_find_time_starts_at_a_valid_entry() -> None:
    """A valid entry of the time index skips the headers before it."""
    second = len(batch(10, [100, 300, 200]))
    assert (400, 14, 7) == find_from(NO_ENTRIES, (300, 11), 350)
    entries = OffsetIndexView(struct.pack(">ii", 2, second), 10)
    # The entry is the largest timestamp of its batch, so the batch is not searched.
    assert None is find_from(entries, (400, 14), 401)


@pytest.mark.parametrize(
    ("position", "entry"),
    [(0, (299, 11)), (0, (300, 9)), (0, (300, 13)), (0, (300, 99)), (7, (300, 11))],
)
def test_find_time_with_a_wrong_entry_returns_none(position: int, entry: tuple[int, int]) -> None:
    """The batch does not have its time or offset, or the position is inside a batch."""
    entries = OffsetIndexView(struct.pack(">ii", 0, position), 10) if position else NO_ENTRIES
    assert None is find_from(entries, entry, 301)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(0, 55),
    st.integers(0, 40),
)
@settings(max_examples=examples(150), deadline=None)
def test_find_time_equals_a_search_of_every_record(
    batches: list[list[int]], timestamp_ms: int, start_offset: int
) -> None:
    """A result equals the first match of all records; None only if a header misleads."""
    parts, rows, offset = [], [], 0
    for times in batches:
        parts.append(batch(offset, times))
        rows += [(r.timestamp_ms, r.offset, -1) for r in BatchView(parts[-1]).records()]
        offset += len(times)
    candidates = (row for row in rows if row[0] >= timestamp_ms and row[1] >= start_offset)
    expected = next(candidates, None)
    actual = find(b"".join(parts), timestamp_ms, start_offset)
    if actual is not None or start_offset == 0:
        assert expected == actual


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=6),
    st.lists(st.integers(0, 55), max_size=20),
    st.integers(0, 10),
)
@settings(max_examples=examples(100), deadline=None)
def test_find_times_equal_single_look_ups(
    batches: list[list[int]], timestamps: list[int], start_offset: int
) -> None:
    """The first time without a result has no result in a single look-up either."""
    parts, offset = [], 0
    for times in batches:
        parts.append(batch(offset, times))
        offset += len(times)
    reader = PointReader(b"".join(parts), NO_ENTRIES, NO_TIMES)
    queries = np.array(sorted(timestamps), np.int64)
    found = np.full(len(queries), -1, np.int64)
    slot = 0
    while slot < len(queries):
        stop = reader.find_times(queries, found, slot, len(queries), start_offset)
        single = [reader.find_time(int(time), start_offset) for time in queries[slot:stop]]
        assert [each and each[1] for each in single] == found[slot:stop].tolist()
        if stop < len(queries):
            assert reader.find_time(int(queries[stop]), start_offset) is None
        slot = stop + 1


def test_find_times_slots_outside_raise() -> None:
    """The slots are outside the times or outside the offsets."""
    reader = PointReader(RUN, NO_ENTRIES, NO_TIMES)
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(IndexError):
            reader.find_times(np.arange(4), np.arange(3), start, stop)


def test_first_record_at_accepts_v2_records_only() -> None:
    """Also in a separate payload; messages raise."""
    data = batch(0, [10, 30, 20])
    header = parse_header(data)
    assert (30, 1) == first_record_at(data[61:], header, 0, len(data) - 61, 11, 0)
    assert (20, 2) == first_record_at(data, header, 61, len(data), 11, 2)
    assert None is first_record_at(data, header, 61, len(data), 31, 0)
    with pytest.raises(IndexError):
        first_record_at(data, header, 61, len(data) + 1, 0, 0)
    message = encode_messages([Message(timestamp=5, key=b"k", value=b"v")])
    with pytest.raises(InvalidRecordError):
        first_record_at(message, parse_header(message), 0, len(message), 0, 0)
