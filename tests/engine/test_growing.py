"""Tests of `IndexBuffer`, `AppendFile`, and `SegmentAppender`, which has both."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._engine.append_file import AppendFile
from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog._engine.segment_appender import SegmentAppender
from tests.support.examples import examples


class Handle:
    """A file in memory whose writes fail once it is full."""

    def __init__(self, capacity: int = 2**31) -> None:
        self.data = b""
        self.capacity = capacity

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write at the end."""
        assert len(self.data) == position
        if position + memoryview(data).nbytes > self.capacity:
            raise OSError("no room")
        self.data += bytes(data)


class Written:
    """The file of an index buffer: counts the writes, and takes them unless it is gone."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.data = b""
        self.writes = 0
        self.is_there = is_there

    def __call__(self, entries: bytes, position: int) -> bool:
        """Write entries at their position."""
        self.writes += 1
        if self.is_there:
            self.data = self.data[:position] + entries
        return self.is_there


@settings(max_examples=examples(50))
@given(
    st.sampled_from([8, 12]), st.lists(st.integers(-200, 400).filter(bool), min_size=1, max_size=12)
)
def test_index_buffer_extend_and_truncate_keep_published_entries(
    size: int, steps: list[int]
) -> None:
    """A positive step adds entries, a negative step removes the last ones."""
    memory, expected, number = IndexBuffer(size), b"", 0
    given_out = []
    for step in steps:
        if step > 0:
            more = b"".join(bytes([number + each & 255]) * size for each in range(step))
            number += step
            memory.extend(more)
            expected += more
        else:
            memory.truncate_to(max(len(memory) + step, 0))
            expected = expected[: max(len(expected) + step * size, 0)]
        room, count = memory.published
        assert (len(expected), expected) == (count * size, bytes(room[: count * size]))
        assert not any(room[count * size :])
        given_out.append((room, count, expected))
    for room, count, content in given_out:
        assert content == bytes(room[: count * size])
    assert expected == memory.entries() == IndexBuffer(size, expected).entries()
    assert expected[size:] == memory.entries(min(1, len(memory)))


def test_index_buffer_writes_entries_in_groups_of_64() -> None:
    """Fewer than 64 entries are written by `flush` only."""
    file = Written()
    memory = IndexBuffer(8, b"", file)
    for number in range(130):
        memory.extend(struct.pack(">q", number))
    assert (2, 128 * 8) == (file.writes, len(file.data))
    assert memory.flush()
    assert memory.flush()
    assert (3, memory.entries()) == (file.writes, file.data)
    with pytest.raises(IndexError, match="131"):
        memory.entries(131)
    with pytest.raises(TypeError, match="copied"):
        memory.__reduce__()


def test_index_buffer_unwritten_entries_stay_in_memory() -> None:
    """The next flush writes them; a buffer without a file writes nothing."""
    file = Written(is_there=False)
    memory = IndexBuffer(8, bytes(16), file)
    assert not memory.flush()
    file.is_there = True
    assert memory.flush()
    assert bytes(16) == file.data
    assert not IndexBuffer(8, bytes(8)).flush()
    assert IndexBuffer(8).flush()


def test_index_buffer_truncate_to_returns_count_of_written_entries() -> None:
    """Entries that were not written are removed from memory and are not counted."""
    file = Written()
    memory = IndexBuffer(8, bytes(24), file)
    assert 0 == memory.truncate_to(3)
    assert memory.flush()
    memory.extend(bytes(8))
    assert 0 == memory.truncate_to(3)
    assert 2 == memory.truncate_to(1)
    assert (1, 0) == (len(memory), memory.truncate_to(1))
    memory.extend(b"12345678")
    assert memory.flush()
    assert bytes(8) + b"12345678" == file.data


def test_append_file_size_grows_with_writes_and_stays_after_a_failed_write() -> None:
    """Zeros are written ahead when data reaches their end, and never after an end of 2**63 - 1."""
    file, handle, ends = AppendFile(), Handle(10), []

    def write_zeros(end: int) -> int:
        ends.append(end)
        return end + 4 if len(ends) < 2 else 2**63 - 1

    with pytest.raises(AssertionError, match="sealed"):
        file.append(b"abc", 3)
    file.attach(handle.pwrite)
    file.append(b"ab", 2)
    file.write_ahead(write_zeros)
    file.append(b"c", 1)
    file.append(b"de", 2)
    assert (5, [3]) == (file.size_bytes, ends)
    file.append(b"fgh", 3)
    assert (8, [3, 8]) == (file.size_bytes, ends)
    with pytest.raises(OSError, match="no room"):
        file.append(b"123456", 6)
    assert (8, b"abcdefgh") == (file.size_bytes, handle.data)
    file.set_size(5)
    assert 5 == file.size_bytes
    file.detach()
    with pytest.raises(AssertionError, match="sealed"):
        file.append(b"abc", 3)


def new_segment_appender(
    handle: Handle,
) -> tuple[SegmentAppender, AppendFile, IndexBuffer, IndexBuffer]:
    """Return an appender of at most 1000 bytes, with an index entry for each batch."""
    stage = RollPlanner(0, offset_entries_max=100, time_entries_max=100)
    stage.set_limits(segment_bytes=1000, interval_bytes=0, roll_after_ms=2**40)
    file, offsets, times = AppendFile(), IndexBuffer(8), IndexBuffer(12)
    file.attach(handle.pwrite)
    return SegmentAppender(stage, file, offsets, times), file, offsets, times


def test_segment_appender_run_that_must_roll_is_planned_not_written() -> None:
    """The part of the run that fits is planned; `commit` writes it."""
    handle = Handle()
    end, file, offsets, times = new_segment_appender(handle)
    facts = BatchMetadata([(400, 0, 3, 50, 3), (300, 4, 6, 60, 6)])
    assert (2, 700) == end.append(bytes(700), facts, 0)
    assert (0, 700) == (end.saved_bytes, file.size_bytes)
    assert struct.pack(">ii", 6, 400) == offsets.entries()
    assert struct.pack(">qi", 60, 6) == times.entries()
    facts = BatchMetadata([(300, 7, 7, 55, 7), (300, 8, 8, 70, 8)])
    assert (1, 300) == end.append(bytes(600), facts, 0)
    assert (700, 700, 1) == (end.saved_bytes, file.size_bytes, len(offsets))
    end.commit(bytes(300), 300)
    assert struct.pack(">iiii", 6, 400, 7, 700) == offsets.entries()
    assert (1000, 1) == (file.size_bytes, len(times))


def test_segment_appender_failed_write_can_be_restored() -> None:
    """No index entry was added, and `restore` resets the roll planner."""
    end, file, offsets, _times = new_segment_appender(Handle(500))
    facts = BatchMetadata([(400, 0, 3, 50, 3)])
    end.append(bytes(400), facts, 0)
    with pytest.raises(OSError, match="no room"):
        end.append(bytes(400), BatchMetadata([(400, 4, 7, 90, 7)]), 0)
    assert (0, 0) == end.stage.restore()
    assert (400, 400, 0) == (end.saved_bytes, file.size_bytes, len(offsets))
    assert (50, 3) == (end.stage.max_timestamp, end.stage.offset_of_max_timestamp)
    with pytest.raises(TypeError, match="copied"):
        end.__reduce__()


INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
LONG = st.integers(0, 2**63 - 1) | st.integers(0, 5)


@settings(max_examples=examples(200))
@given(LONG, LONG, LONG, INT64, INT64, st.booleans(), st.booleans(), st.integers(0, 1))
def test_append_limits_decide_as_unbounded_integers(
    now_ms: int,
    before_ms: int,
    after_ms: int,
    lower: int,
    upper: int,
    is_key_required: bool,
    is_log_append_time: bool,
    nulls: int,
) -> None:
    """Timestamps and limits over the whole range of 64 bits, with negative timestamps."""
    limits = AppendLimits(
        batch_bytes=1,
        max_message_bytes=2,
        before_ms=before_ms,
        after_ms=after_ms,
        is_key_required=is_key_required,
        is_log_append_time=is_log_append_time,
    )
    is_out = now_ms - lower > before_ms or upper - now_ms > after_ms
    expected = (is_key_required and nulls > 0) or (
        not is_log_append_time and lower != -1 and is_out
    )
    assert expected == limits.has_invalid_record(now_ms, nulls, lower, upper)
