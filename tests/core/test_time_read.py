"""Finding the first record at or above a time in a run of batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import set_max_timestamp
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.index import OffsetIndexView
from kafkalog._core.time_read import find_time
from kafkalog.records.batch_view import BatchView
from tests.support.damage import fix_crc

NO_ENTRIES = OffsetIndexView(b"", 0)
NO_ENTRY = (-1, 0)


def batch(base_offset: int, times: list[int], **how: bool | int) -> bytes:
    """Return a batch of records with these timestamps."""
    builder = BatchBuilder()
    for number, time in enumerate(times):
        builder.append(b"k", b"v%d" % (base_offset + number), time)
    return bytes(builder.finish(base_offset=base_offset, **how))  # type: ignore[arg-type]


def find(data: bytes, timestamp_ms: int, start_offset: int = 0) -> tuple[int, int, int] | None:
    """Look without any index."""
    return find_time(data, NO_ENTRIES, *NO_ENTRY, timestamp_ms, start_offset)


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
def test_find_time_gives_first_record_by_offset(
    timestamp_ms: int, start_offset: int, expected: tuple[int, int, int] | None
) -> None:
    """Times need not rise; a batch that reaches the time without such a record is not plain."""
    assert expected == find(RUN, timestamp_ms, start_offset)


def test_find_time_in_batch_with_append_time_takes_that() -> None:
    """All records of a batch with append time have its largest time."""
    data = bytearray(batch(5, [100, 300]))
    set_max_timestamp(data, 0, timestamp_type=1, max_timestamp=900)
    assert (900, 5, -1) == find(bytes(data), 301)


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_find_time_in_cut_run_looks_at_whole_batches_only(cut: int) -> None:
    """What a batch says that is not all there is not believed."""
    data = batch(0, [10]) + batch(1, [20, 30])
    assert (10, 0, -1) == find(data[:-cut], 10)
    assert None is find(data[:-cut], 11)


def test_find_time_with_damaged_batch_leaves_it_to_others() -> None:
    """The sum of the batch with the answer is checked; one before it is passed by its header."""
    data = bytearray(RUN)
    data[-1] ^= 1
    assert None is find(bytes(data), 301)
    assert (300, 11, -1) == find(bytes(data), 300)


def test_find_time_with_records_that_are_none_leaves_them_to_others() -> None:
    """A batch whose sum is right, but whose bytes are no records, is passed over as a whole."""
    data = bytearray(batch(0, [10, 20]))
    data[-4] = 0x7F  # the size of the last value
    assert None is find(fix_crc(bytes(data)), 10)


def test_find_time_with_count_that_is_too_small_leaves_it_to_others() -> None:
    """Bytes behind the last record make a batch that no reader takes."""
    data = bytearray(batch(0, [10, 20]))
    struct.pack_into(">i", data, 57, 1)
    assert None is find(fix_crc(bytes(data)), 10)


def test_find_time_in_control_batch_leaves_it_to_others() -> None:
    """What a marker's records mean is not this kernel's matter."""
    assert None is find(batch(0, [10], control=True), 10)


def test_find_time_of_nothing_is_none() -> None:
    """An empty segment has no answer, whatever its index says."""
    assert None is find(b"", 0)
    entries = OffsetIndexView(struct.pack(">ii", 1, 5000), 0)
    assert None is find_time(RUN, entries, 100, 12, 0, 0)


def test_find_time_begins_at_true_entry() -> None:
    """An entry of the time index that holds spares the headers before it."""
    second = len(batch(10, [100, 300, 200]))
    entries = OffsetIndexView(struct.pack(">ii", 4, second), 10)
    assert (400, 14, 7) == find_time(RUN, entries, 400, 14, 350, 0)
    assert (400, 14, 7) == find_time(RUN, NO_ENTRIES, 300, 11, 350, 0)


@pytest.mark.parametrize(
    ("position", "entry"),
    [(0, (299, 11)), (0, (300, 9)), (0, (300, 13)), (0, (300, 99)), (7, (300, 11))],
)
def test_find_time_with_untrue_entry_leaves_it_to_others(
    position: int, entry: tuple[int, int]
) -> None:
    """A time or an offset that the batch has not, or a position inside a batch: nobody knows."""
    entries = OffsetIndexView(struct.pack(">ii", 0, position), 10) if position else NO_ENTRIES
    assert None is find_time(RUN, entries, *entry, 301, 0)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(0, 55),
    st.integers(0, 40),
)
@settings(max_examples=150, deadline=None)
def test_find_time_equals_looking_at_every_record(
    batches: list[list[int]], timestamp_ms: int, start_offset: int
) -> None:
    """An answer is the one that reading everything gives; there is one unless a header misleads."""
    parts, rows, offset = [], [], 0
    for times in batches:
        parts.append(batch(offset, times))
        rows += [(r.timestamp_ms, r.offset, -1) for r in BatchView(parts[-1]).records()]
        offset += len(times)
    wanted = (row for row in rows if row[0] >= timestamp_ms and row[1] >= start_offset)
    expected = next(wanted, None)
    actual = find(b"".join(parts), timestamp_ms, start_offset)
    if actual is not None or start_offset == 0:
        assert expected == actual
