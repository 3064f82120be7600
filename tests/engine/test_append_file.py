"""Tests of `AppendFile`: its size, zeros written ahead, and failed writes."""

from __future__ import annotations

import pytest

from kafkalog._engine.append_file import AppendFile
from tests.support.memory_file import MemoryFile


def test_append_file_size_grows_with_writes_and_stays_after_a_failed_write() -> None:
    """Zeros are written ahead when data reaches their end, and never after an end of 2**63 - 1."""
    file, handle, ends = AppendFile(), MemoryFile(10), []

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
