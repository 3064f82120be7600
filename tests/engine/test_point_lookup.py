"""The point readers of a log in one table: by offset and by time."""

from __future__ import annotations

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._engine.point_lookup import PointLookupTable
from kafkalog._engine.segment_slice import SegmentSlice
from kafkalog.model import TimestampOffset

NO_ENTRIES = OffsetIndexView(b"", 0)
NO_TIMES = TimeIndexView(b"", 0)


def batch(base_offset: int, deltas: list[int], times: list[int] | None = None) -> bytes:
    """Return a batch of records at the given offset deltas; values say their offsets."""
    builder = BatchBuilder()
    for delta, time in zip(deltas, times or deltas, strict=True):
        builder.append_at(delta, b"k", b"v%d" % (base_offset + delta), time)
    return bytes(builder.finish(base_offset=base_offset))


def test_table_asks_the_reader_of_the_segment() -> None:
    """By base offsets; None below them, and where no reader is."""
    table, snapshot = PointLookupTable("owner", (10, 13, 40), 2), ("owner", 240, 9, 0)
    assert "owner" == table.owner
    batches = [batch(10, [0, 1, 2]), batch(13, [0, 2, 7]), batch(40, list(range(200)))]
    readers = [PointReader(data, NO_ENTRIES) for data in batches]
    assert [None] * 4 == [table.find(offset, snapshot) for offset in (9, 10, 13, 40)]
    table.put(0, readers[0])
    table.put(1, readers[1])
    table.put(1, readers[1])
    found = [table.find(offset, snapshot) for offset in (9, 10, 12, 15, 40)]
    assert [None, 10, 12, 15, None] == [each and each.offset for each in found]
    assert table.reader(1) is readers[1]


def test_table_asked_with_a_snapshot_stays_in_its_range() -> None:
    """Its segments, its start, its end; what no offset can be is none."""
    table = PointLookupTable("owner", (10,), 1)
    table.put(0, PointReader(batch(10, [0, 1, 2]), NO_ENTRIES))
    for offset, snapshot, is_found in (
        (12, ("owner", 13, 9, 12), True),
        (12, ("owner", 12, 9, 12), False),
        (12, ("owner", 13, 9, 13), False),
        (12, ("another", 13, 9, 12), False),
        (2**64, ("owner", 13, 9, 12), False),
        (-(2**64), ("owner", 13, 9, 12), False),
    ):
        assert is_found == (table.find(offset, snapshot) is not None)
    for wrong in (("owner", 1), ["owner", 13, 9, 12]):
        with pytest.raises(TypeError, match="snapshot"):
            table.find(12, wrong)  # type: ignore[arg-type]


def test_table_keeps_no_more_readers_than_it_may() -> None:
    """Each may keep a mapping alive: one too many, and the others go."""
    table = PointLookupTable(None, (0, 10, 20), 2)
    readers = [PointReader(bytes(slot), NO_ENTRIES) for slot in range(3)]
    for slot in range(3):
        table.put(slot, readers[slot])
    assert [None, None, readers[2]] == [table.reader(slot) for slot in range(3)]


@pytest.mark.parametrize("slot", [-1, 3])
def test_table_refuses_slots_it_has_not(slot: int) -> None:
    """Also negative ones, which a list would take."""
    table = PointLookupTable(None, (0, 10, 20), 2)
    with pytest.raises(IndexError):
        table.put(slot, PointReader(b"", NO_ENTRIES))
    with pytest.raises(IndexError):
        table.reader(slot)


def table(*latest: int) -> PointLookupTable:
    """Return a table of two segments of which the first may have been looked into."""
    points = PointLookupTable("segments", [0, 100], 2, TimestampOffset)
    points.put_times(latest)
    points.put(0, PointReader(batch(0, [0, 1, 2], [10, 30, 20]), NO_ENTRIES, NO_TIMES))
    return points


def test_table_answers_by_time_for_segments_it_knows() -> None:
    """The first segment with a time so large; none that is not known, or has no reader."""
    points, snapshot = table(30, 50), ("segments", 200, 9, 0)
    found = points.find_time(11, snapshot)
    assert TimestampOffset(30, 1, None) == found
    assert isinstance(found, TimestampOffset)
    for asked in (31, 51, -1, 2**63, -(2**64)):
        assert None is points.find_time(asked, snapshot)
    assert TimestampOffset(20, 2, None) == points.find_time(11, ("segments", 200, 9, 2))
    assert None is points.find_time(11, ("others", 200, 9, 0))
    assert None is table().find_time(11, snapshot)
    assert (0, 2) == (table().cached_time_count, points.cached_time_count)
    assert None is table(-1, 30).find_time(11, snapshot)


def test_table_refuses_what_it_cannot_work_with() -> None:
    """A snapshot that is none, more times than segments, a class with more than items."""
    with pytest.raises(TypeError, match="snapshot"):
        table(30).find_time(11, (1, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 timestamps"):
        table(1, 2, 3)
    for answer in (int, type("Loose", (tuple,), {})):
        with pytest.raises(TypeError, match="named tuples"):
            PointLookupTable("segments", [0], 1, answer)


def test_table_makes_slices_of_its_class_only() -> None:
    """And none where it was told of no segments."""
    with pytest.raises(TypeError, match="no class of slices"):
        PointLookupTable("segments", [0], 1, tuple, int)  # type: ignore[arg-type]
    points, snapshot = PointLookupTable("segments", [0], 1), ("segments", 3, 1000, 0)
    points.put(0, PointReader(batch(0, [0, 1, 2]), NO_ENTRIES))
    assert None is points.slice(1, 10, True, snapshot)


def test_table_slices_what_the_snapshot_has() -> None:
    """Not behind its end position, and whole where that is asked for; at its end offset nothing."""
    first, second = batch(0, [0, 1, 2]), batch(3, [0, 1])
    points = PointLookupTable("segments", [0], 1, tuple, SegmentSlice, ["segment"])
    points.put(0, PointReader(first + second, NO_ENTRIES))
    snapshot = ("segments", 3, len(first), 0)
    for max_bytes, whole, size in ((0, True, len(first)), (10, False, 10), (2**70, False, None)):
        found = points.slice(1, max_bytes, whole, snapshot)
        assert (0, len(first) if size is None else size) == (found.position, found.size_bytes)
        assert (1, 3, len(first)) == (
            found.start_offset,
            found.following_offset,
            found.bound_position,
        )
    assert (len(first), 0) == (
        points.slice(3, 5, True, snapshot).position,
        len(points.slice(3, 5, True, snapshot)),
    )
    later = ("segments", 5, len(first + second), 0)
    assert (len(first), len(second)) == (
        points.slice(4, 1, True, later).position,
        points.slice(4, 1, True, later).size_bytes,
    )
    for outside in (-1, 6, 2**70):
        assert None is points.slice(outside, 1, True, later)
    for wrong in (-1, -(2**70)):
        with pytest.raises(ValueError, match="negative"):
            points.slice(1, wrong, True, later)
