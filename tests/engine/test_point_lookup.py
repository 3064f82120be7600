"""The point readers of a log in one table: by offset and by time."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._engine.point_lookup import PointLookupTable, SegmentReaders
from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot
from kafkalog.model import TimestampOffset

NO_ENTRIES = OffsetIndexView(b"", 0)
NO_TIMES = TimeIndexView(b"", 0)


def batch(base_offset: int, deltas: list[int], times: list[int] | None = None) -> bytes:
    """Return a batch of records at the given offset deltas; values are their offsets."""
    builder = BatchBuilder()
    for delta, time in zip(deltas, times or deltas, strict=True):
        builder.append_at(delta, b"k", b"v%d" % (base_offset + delta), time)
    return bytes(builder.finish(base_offset=base_offset))


def published(owner: object, end_offset: int, end_position: int, start: int) -> PublishedSnapshot:
    """Return a published snapshot of some segments."""
    segments: Any = owner
    return PublishedSnapshot(LogSnapshot(segments, end_offset, end_position, start))


def test_point_lookup_table_find_uses_the_reader_of_the_segment() -> None:
    """The result is None below the first base offset, and for a segment without a reader."""
    readers = SegmentReaders("owner", (10, 13, 40), 2)
    table = PointLookupTable(published("owner", 240, 9, 0))
    assert table.readers is None
    table.use(readers)
    assert readers is table.readers
    assert "owner" == readers.owner
    batches = [batch(10, [0, 1, 2]), batch(13, [0, 2, 7]), batch(40, list(range(200)))]
    found = [PointReader(data, NO_ENTRIES) for data in batches]
    assert [None] * 4 == [table.find(offset) for offset in (9, 10, 13, 40)]
    readers.put(0, found[0])
    readers.put(1, found[1])
    readers.put(1, found[1])
    records = [table.find(offset) for offset in (9, 10, 12, 15, 40)]
    assert [None, 10, 12, 15, None] == [each and each.offset for each in records]
    assert readers.reader(1) is found[1]
    table.invalidate()
    assert (None, None) == (table.readers, table.find(12))


def test_point_lookup_table_find_outside_the_snapshot_returns_none() -> None:
    """The snapshot has segments, a start and an end; offsets over 64 bits are outside."""
    readers = SegmentReaders("owner", (10,), 1)
    readers.put(0, PointReader(batch(10, [0, 1, 2]), NO_ENTRIES))
    for offset, snapshot, is_found in (
        (12, published("owner", 13, 9, 12), True),
        (12, published("owner", 12, 9, 12), False),
        (12, published("owner", 13, 9, 13), False),
        (12, published("another", 13, 9, 12), False),
        (2**64, published("owner", 13, 9, 12), False),
        (-(2**64), published("owner", 13, 9, 12), False),
    ):
        table = PointLookupTable(snapshot)
        table.use(readers)
        assert is_found == (table.find(offset) is not None)


def test_point_lookup_table_finds_records_once_published() -> None:
    """A record is found as soon as its batch is published."""
    log = published("owner", 10, 0, 10)
    table, readers = PointLookupTable(log), SegmentReaders("owner", (10,), 1)
    table.use(readers)
    readers.put(0, PointReader(batch(10, [0, 1, 2]), NO_ENTRIES))
    assert table.find(11) is None
    log.publish(log.snapshot.replace(end_offset=13))
    assert table.find(11) is not None


def test_segment_readers_over_the_limit_drop_the_others() -> None:
    """Each reader may keep a mapping alive, so their number is limited."""
    table = SegmentReaders(None, (0, 10, 20), 2)
    readers = [PointReader(bytes(slot), NO_ENTRIES) for slot in range(3)]
    for slot in range(3):
        table.put(slot, readers[slot])
    assert [None, None, readers[2]] == [table.reader(slot) for slot in range(3)]


@pytest.mark.parametrize("slot", [-1, 3])
def test_segment_readers_invalid_slot_raises(slot: int) -> None:
    """Negative slots are refused too, unlike in a list."""
    table = SegmentReaders(None, (0, 10, 20), 2)
    with pytest.raises(IndexError):
        table.put(slot, PointReader(b"", NO_ENTRIES))
    with pytest.raises(IndexError):
        table.reader(slot)


def timed(*latest: int) -> SegmentReaders:
    """Return readers of two segments; only the first has a reader."""
    readers = SegmentReaders("segments", [0, 100], 2)
    readers.put_times(latest)
    readers.put(0, PointReader(batch(0, [0, 1, 2], [10, 30, 20]), NO_ENTRIES, NO_TIMES))
    return readers


def table_of(
    readers: SegmentReaders, owner: object = "segments", start: int = 0
) -> PointLookupTable:
    """Return a table with readers, of a log of 200 records."""
    table = PointLookupTable(published(owner, 200, 9, start), TimestampOffset)
    table.use(readers)
    return table


def test_point_lookup_table_find_time_uses_cached_segments_only() -> None:
    """The result is None if the first such segment is not cached or has no reader."""
    points = table_of(timed(30, 50))
    found = points.find_time(11)
    assert TimestampOffset(30, 1, None) == found
    assert isinstance(found, TimestampOffset)
    for timestamp in (31, 51, -1, 2**63, -(2**64)):
        assert None is points.find_time(timestamp)
    assert TimestampOffset(20, 2, None) == table_of(timed(30, 50), start=2).find_time(11)
    assert None is table_of(timed(30, 50), "others").find_time(11)
    assert None is table_of(timed()).find_time(11)
    assert (0, 2) == (timed().cached_time_count, timed(30, 50).cached_time_count)
    assert None is table_of(timed(-1, 30)).find_time(11)


def test_point_lookup_table_invalid_arguments_raise() -> None:
    """More timestamps than segments, and a class that is not a named tuple."""
    with pytest.raises(ValueError, match="at most one per segment, 2, got 3"):
        timed(1, 2, 3)
    for answer in (int, type("Loose", (tuple,), {})):
        with pytest.raises(TypeError, match="named tuples"):
            PointLookupTable(published("segments", 3, 9, 0), answer)


def test_point_lookup_table_slice_without_segments_returns_none() -> None:
    """Readers alone find batches, not what a result has to hold."""
    points = PointLookupTable(published("segments", 3, 1000, 0))
    readers = SegmentReaders("segments", [0], 1)
    points.use(readers)
    readers.put(0, PointReader(batch(0, [0, 1, 2]), NO_ENTRIES))
    assert None is points.slice(1, 10, True)


def test_point_lookup_table_slice_ends_with_the_snapshot() -> None:
    """The end position bounds a slice, which has whole batches on request; nothing at the end."""
    first, second = batch(0, [0, 1, 2]), batch(3, [0, 1])
    log = published("segments", 3, len(first), 0)
    points = PointLookupTable(log)
    readers = SegmentReaders("segments", [0], 1, ["segment"])
    points.use(readers)
    readers.put(0, PointReader(first + second, NO_ENTRIES))
    for max_bytes, whole, size in ((0, True, len(first)), (10, False, 10), (2**70, False, None)):
        found = points.slice(1, max_bytes, whole)
        assert found is not None
        assert (0, len(first) if size is None else size) == (found.position, found.size_bytes)
        assert (1, 3, len(first)) == (
            found.start_offset,
            found.following_offset,
            found.bound_position,
        )
    at_end = points.slice(3, 5, True)
    assert at_end is not None
    assert (len(first), 0) == (at_end.position, len(at_end))
    log.publish(log.snapshot.replace(end_offset=5, end_position=len(first + second)))
    later = points.slice(4, 1, True)
    assert later is not None
    assert (len(first), len(second)) == (later.position, later.size_bytes)
    for outside in (-1, 6, 2**70):
        assert None is points.slice(outside, 1, True)
    for wrong in (-1, -(2**70)):
        with pytest.raises(ValueError, match="max_bytes must be >= 0"):
            points.slice(1, wrong, True)
