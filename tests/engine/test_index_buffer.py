"""Tests of `IndexBuffer`: published entries, groups of writes, and truncation."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._engine.index_buffer import IndexBuffer
from tests.support.examples import examples


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
    snapshots = []
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
        snapshots.append((room, count, expected))
    for room, count, content in snapshots:
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
