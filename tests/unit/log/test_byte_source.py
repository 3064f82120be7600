"""Byte sources return the requested windows and detect a file that was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.byte_source import ByteSource, MappedSource, PreadSource, RangeSource

DATA = bytes(range(256)) * 8


def range_source(data: bytes, requests: list[tuple[int, int]], size: int) -> RangeSource:
    def fetch(position: int, size_bytes: int) -> bytes:
        requests.append((position, size_bytes))
        return data[position : position + size_bytes]

    return RangeSource(fetch, size, fetch_bytes=100)


@pytest.fixture(params=["mapped", "pread", "range"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> ByteSource:
    if request.param == "mapped":
        return MappedSource(memoryview(DATA))
    if request.param == "range":
        return range_source(DATA, [], len(DATA))
    path = tmp_path / "bytes"
    path.write_bytes(DATA)
    return PreadSource(PosixFileSystem().open(path), len(DATA), memoryview(bytearray(64)))


@pytest.mark.parametrize("position", [0, 1, 63, 64, 200, len(DATA) - 1])
@pytest.mark.parametrize("size", [1, 64, 65, 150, len(DATA)])
def test_window_any_position_has_the_requested_bytes(
    source: ByteSource, position: int, size: int
) -> None:
    """A window has fewer bytes only at the end of the source."""
    expected = DATA[position : position + size]
    assert expected == bytes(source.window(position, size))
    assert expected == bytes(source.window(position, size))
    assert source.window(position, size).readonly
    assert len(DATA) == source.size_bytes
    source.close()


def test_pread_source_cut_file_lowers_its_end(tmp_path: Path) -> None:
    """The source has the bytes before the cut."""
    path = tmp_path / "bytes"
    path.write_bytes(DATA[:70])
    source = PreadSource(PosixFileSystem().open(path), 200, memoryview(bytearray(64)))
    assert DATA[:64] == bytes(source.window(0, 64))
    assert (200, DATA[60:70]) == (source.size_bytes, bytes(source.window(60, 64)))
    assert 70 == source.size_bytes


def test_range_source_adjacent_windows_are_one_request() -> None:
    """A request costs a round trip, so a small window fetches the bytes after it, too."""
    requests: list[tuple[int, int]] = []
    source = range_source(DATA, requests, 250)
    parts = [bytes(source.window(position, 30)) for position in range(0, 250, 30)]
    assert DATA[:250] == b"".join(parts)
    assert [(0, 100), (90, 100), (180, 70)] == requests


def test_range_source_shorter_object_lowers_its_end() -> None:
    """An object that was replaced by a shorter one ends where its bytes end."""
    source = range_source(DATA[:120], [], 250)
    assert DATA[100:120] == bytes(source.window(100, 80))
    assert 120 == source.size_bytes
