"""`kafkalog.files.zeros`: telling a hole from bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.zeros import PIECE_BYTES, is_zero, is_zero_after
from tests.unit.files.conftest import Disk


@pytest.mark.parametrize("size", [0, 1, 8, 511, 4096])
def test_is_zero_of_zeros_is_true(size: int) -> None:
    """A hole of any length, none at all too, in every kind of buffer."""
    assert is_zero(bytes(size))
    assert is_zero(memoryview(bytearray(size)))


@pytest.mark.parametrize("position", [0, 7, 8, 510])
def test_is_zero_with_one_other_byte_is_false(position: int) -> None:
    """Wherever the byte is."""
    data = bytearray(511)
    data[position] = 1
    assert not is_zero(data)
    assert not is_zero(memoryview(data)[position:])
    assert is_zero(memoryview(data)[position + 1 :])


@pytest.mark.parametrize("written", [bytes(100), bytes(3 * PIECE_BYTES), b"x" * 100])
def test_is_zero_after_reads_data_and_skips_holes(disk: Disk, written: bytes) -> None:
    """Written zeros are zeros as well; a byte before the position does not count."""
    handle = disk.filesystem.open(disk.directory / "file", create=True)
    handle.pwrite(b"entries", 0)
    handle.truncate(8 << 20)
    assert is_zero_after(handle, 7)
    assert not is_zero_after(handle, 6)
    handle.pwrite(written, 5 << 20)
    assert is_zero_after(handle, 7) is (written[0] == 0)
    assert is_zero_after(handle, 7 << 20)
    assert is_zero_after(handle, 9 << 20)
    assert is_zero_after(handle, 7, 5 << 20)
    assert is_zero_after(handle, 7, (5 << 20) + 1) is (written[0] == 0)


@pytest.mark.parametrize("tail", [b"", b"x"])
def test_is_zero_after_without_hole_support_reads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    """Some file systems do not report them, and some systems have no such call."""

    def unknown(_descriptor: int, _position: int, _whence: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", unknown)
    handle = PosixFileSystem().open(tmp_path / "file", create=True)
    handle.pwrite(b"entries", 0)
    handle.truncate(2 * PIECE_BYTES + 3)
    handle.pwrite(tail, 2 * PIECE_BYTES)
    assert is_zero_after(handle, 7) is (not tail)
    assert is_zero_after(handle, 2 * PIECE_BYTES + 1)


def test_is_zero_after_other_errors_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails is no hole."""

    def broken(_descriptor: int, _position: int, _whence: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "lseek", broken)
    handle = PosixFileSystem().open(tmp_path / "file", create=True)
    with pytest.raises(OSError, match="Input/output error"):
        is_zero_after(handle, 0)
