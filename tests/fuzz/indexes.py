"""Index files of any bytes: checks, look-ups in sound entries, and entry selection."""

from __future__ import annotations

import contextlib
import struct

import numpy as np

from kafkalog._core.index import (
    IndexEntrySelector,
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)
from kafkalog.errors import CorruptRecordError, OffsetOverflowError
from tests.fuzz.inputs import Choices
from tests.support import reference
from tests.support.buffers import exact
from tests.support.reference import Header

__all__ = ["check_indexes", "select_entries"]

BASE_OFFSET = 1000


def check_indexes(data: bytes) -> None:
    """Both files; in sound entries every look-up equals a walk over the entries."""
    choices = Choices(data)
    (sorts,) = choices.flags(1)
    segment_size = choices.number(4)
    target = choices.number(choices.one_of([1, 2, 4, 8]))
    entries = choices.rest
    offset_index = _sorted(entries, ">ii") if sorts else entries
    expected = reference.check_offset_index(offset_index, segment_size)
    assert expected == check_offset_index(exact(offset_index), segment_size=segment_size)
    _check_offset_lookups(offset_index, expected[0], target)
    time_index = _sorted(entries, ">qi") if sorts else entries
    expected = reference.check_time_index(time_index)
    assert expected == check_time_index(exact(time_index))
    _check_time_lookups(time_index, expected[0], target)


def _sorted(data: bytes, layout: str) -> bytes:
    """Return the entries sorted, since mutations rarely are."""
    size = struct.calcsize(layout)
    pairs = [struct.unpack_from(layout, data, start) for start in range(0, len(data) - 11, size)]
    firsts = sorted({abs(first) % 2**31 for first, _ in pairs})
    seconds = sorted({abs(second) % 2**31 for _, second in pairs})
    return b"".join(
        struct.pack(layout, *pair) for pair in zip(firsts, seconds, strict=False) if pair[1] > 0
    )


def _check_offset_lookups(data: bytes, count: int, target: int) -> None:
    view = OffsetIndexView(exact(data), BASE_OFFSET, count)
    entries = [struct.unpack_from(">ii", data, 8 * slot) for slot in range(count)]
    slot = reference.floor_slot([BASE_OFFSET + first for first, _ in entries], target)
    found = (BASE_OFFSET + entries[slot][0], entries[slot][1]) if slot >= 0 else (BASE_OFFSET, 0)
    assert slot == view.lookup_slot(target)
    assert found == view.lookup(target)
    positions = np.zeros(3, np.int64)
    view.lookup_many(np.full(3, target), positions)
    assert [found[1]] * 3 == positions.tolist()
    above = [(BASE_OFFSET + first, place) for first, place in entries if place >= target]
    assert (above[0] if above else None) == view.ceiling_position(target)
    # Unchecked entries have an arbitrary result inside the buffer.
    OffsetIndexView(exact(data), BASE_OFFSET).lookup(target)


def _check_time_lookups(data: bytes, count: int, target: int) -> None:
    view = TimeIndexView(exact(data), BASE_OFFSET, count)
    entries = [struct.unpack_from(">qi", data, 12 * slot) for slot in range(count)]
    slot = reference.floor_slot([first for first, _ in entries], target)
    found = (entries[slot][0], BASE_OFFSET + entries[slot][1]) if slot >= 0 else (-1, BASE_OFFSET)
    assert found == view.lookup(target)
    offsets = np.zeros(3, np.int64)
    view.lookup_many(np.full(3, target), offsets)
    assert [found[1]] * 3 == offsets.tolist()
    TimeIndexView(exact(data), BASE_OFFSET).lookup(target)


def select_entries(data: bytes) -> None:
    """Entries for any batches: refused, or equal to the reference's, in one chunk or two."""
    choices = Choices(data)
    hostile, cuts = choices.flags(2)
    interval = choices.one_of([0, 1, 60, 100, 4096])
    position, offset = 0, BASE_OFFSET - 1
    batches: list[tuple[int, Header]] = []
    while len(choices.rest) >= 3 and len(batches) < 50:
        position += choices.number(8) if hostile else choices.byte() * (len(batches) > 0)
        offset += choices.number(8) if hostile else 1 + choices.byte()
        if not (-(2**63) <= position < 2**63 and -(2**63) <= offset < 2**63):
            return
        batches.append((position, Header(base_offset=offset, max_timestamp=choices.number(1))))
    starts = np.array([start for start, _ in batches], np.int64)
    lasts = np.array([header.last_offset for _, header in batches], np.int64)
    times = np.array([header.max_timestamp for _, header in batches], np.int64)
    cut = len(batches) // 2 if cuts else 0
    selector = IndexEntrySelector(BASE_OFFSET, interval)
    with contextlib.suppress(OffsetOverflowError, CorruptRecordError):
        first = selector.select(starts[:cut], lasts[:cut], times[:cut])
        second = selector.select(starts[cut:], lasts[cut:], times[cut:])
        actual = (first[0] + second[0], first[1] + second[1] + selector.final_time_entry())
        assert reference.select_entries(batches, BASE_OFFSET, interval) == actual
        return
    assert hostile or position >= 2**31
