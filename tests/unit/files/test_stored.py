"""`kafkalog.files.stored`: what reads show, compared with the disk past the page cache."""

from __future__ import annotations

import ctypes
import fcntl
import os
import runpy
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalog.files import stored
from kafkalog.files.stored import is_stored

MOUNT = "36 35 98:0 / / rw,relatime - {kind} /dev/sda1 rw\n"


def mounts(folder: Path, kind: str) -> Path:
    """Return a table in which everything is one file system of a kind."""
    table = folder / "mountinfo"
    table.write_text(MOUNT.format(kind=kind))
    return table


def synced(folder: Path, size: int) -> Path:
    """Return a file that was synced."""
    path = folder / "file"
    with path.open("wb") as file:
        file.write(bytes(1 + number % 251 for number in range(size)))
        file.flush()
        os.fsync(file.fileno())
    return path


def has_direct_reads(path: Path) -> bool:
    """Return whether the temporary directory is on a file system with known direct reads."""
    return is_stored(path, 0)


@pytest.mark.parametrize("size", [1, 4096, 70_001])
def test_is_stored_synced_file_is_stored_from_every_position(tmp_path: Path, size: int) -> None:
    """DUR-2: at the start, within a block and at the end, where the size is no multiple of it."""
    path = synced(tmp_path, size)
    if not has_direct_reads(path):
        pytest.skip("no direct reads are known of this file system")
    assert all(is_stored(path, position) for position in (0, 1, size // 2, size - 1, size))


def test_is_stored_hole_reads_as_zeros(tmp_path: Path) -> None:
    """The preallocated tail of a segment is the same in the cache and on the disk."""
    path = synced(tmp_path, 5000)
    if not has_direct_reads(path):
        pytest.skip("no direct reads are known of this file system")
    os.truncate(path, 3 * stored.PIECE_BYTES)
    assert is_stored(path, 0)


@pytest.mark.parametrize("kind", ["btrfs", "nfs4", "fuse.sshfs", "overlay", "tmpfs"])
def test_is_stored_other_file_system_is_false(tmp_path: Path, kind: str) -> None:
    """DUR-2: a direct read may come from a cache there."""
    path = synced(tmp_path, 5000)
    assert not is_stored(path, 0, mounts=mounts(tmp_path, kind))
    assert not is_stored(path, 0, mounts=tmp_path / "none")


def test_is_stored_different_bytes_are_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: the disk has zeros instead of the last byte, as after a failed write-back."""
    path = synced(tmp_path, 5000)
    if not has_direct_reads(path):
        pytest.skip("no direct reads are known of this file system")
    read = os.preadv

    def read_other(descriptor: int, buffers: list[memoryview], position: int) -> int:
        count = read(descriptor, buffers, position)
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            buffers[0][count - 1] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", read_other)
    assert not is_stored(path, 0)


def test_is_stored_without_direct_reads_is_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old system: it has no function that states the alignment of direct reads."""
    path = synced(tmp_path, 5000)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: SimpleNamespace())
    is_stored_there = runpy.run_path(str(stored.__file__))["is_stored"]
    assert not is_stored_there(path, 0)


def test_is_stored_without_an_alignment_is_false(tmp_path: Path) -> None:
    """Journaled data or encryption, as a file in memory: the kernel states no alignment."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no file system in memory is known here")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = synced(Path(folder), 5000)
        assert not is_stored(path, 0, mounts=mounts(tmp_path, "ext4"))
