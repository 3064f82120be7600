"""Tests of `SegmentAppender`: planned and written runs, and restores after failed writes."""

from __future__ import annotations

import struct

import pytest

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._engine.append_file import AppendFile
from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog._engine.segment_appender import SegmentAppender
from tests.support.memory_file import MemoryFile


def new_segment_appender(
    handle: MemoryFile,
) -> tuple[SegmentAppender, AppendFile, IndexBuffer, IndexBuffer]:
    """Return an appender of at most 1000 bytes, with an index entry for each batch."""
    stage = RollPlanner(0, offset_entries_max=100, time_entries_max=100)
    stage.set_limits(segment_bytes=1000, interval_bytes=0, roll_after_ms=2**40)
    file, offsets, times = AppendFile(), IndexBuffer(8), IndexBuffer(12)
    file.attach(handle.pwrite)
    return SegmentAppender(stage, file, offsets, times), file, offsets, times


def test_segment_appender_run_that_must_roll_is_planned_not_written() -> None:
    """The part of the run that fits is planned; `commit` writes it."""
    handle = MemoryFile()
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
    end, file, offsets, _times = new_segment_appender(MemoryFile(500))
    facts = BatchMetadata([(400, 0, 3, 50, 3)])
    end.append(bytes(400), facts, 0)
    with pytest.raises(OSError, match="no room"):
        end.append(bytes(400), BatchMetadata([(400, 4, 7, 90, 7)]), 0)
    assert (0, 0) == end.stage.restore()
    assert (400, 400, 0) == (end.saved_bytes, file.size_bytes, len(offsets))
    assert (50, 3) == (end.stage.max_timestamp, end.stage.offset_of_max_timestamp)
    with pytest.raises(TypeError, match="copied"):
        end.__reduce__()
