"""Whole-file replacement: the old content or the new one, whatever happens in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.posix import PosixFileSystem
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk
from tests.unit.files.conftest import Disk

PATH = Path("/data/checkpoint")
OLD, NEW = b"old " * 300, b"new " * 400


def with_old_content() -> SimulatedDisk:
    """Return a disk with the old content, durable, and a longer leftover of an earlier crash."""
    disk = SimulatedDisk()
    disk.make_durable("/data")
    replace_file(disk, PATH, OLD)
    disk.open(Path("/data/checkpoint.tmp"), create=True).pwrite(b"x" * 5000, 0)
    disk.make_durable()
    return disk


def test_replace_file_new_content_is_read_back(disk: Disk) -> None:
    """Missing before, the new content afterwards, and no temporary file."""
    path = disk.directory / "file"
    assert read_file(disk.filesystem, path, max_bytes=10) is None
    for content in (b"first", b"", b"2nd"):
        replace_file(disk.filesystem, path, content)
        assert content == read_file(disk.filesystem, path, max_bytes=10)
        assert ["file"] == disk.filesystem.list(disk.directory)
    with pytest.raises(ValueError, match="must be <= 2 bytes, got 3"):
        read_file(disk.filesystem, path, max_bytes=2)


def test_replace_file_crash_at_any_call_leaves_old_or_new() -> None:
    """All calls, all survivors; the new content is certain once the call returned."""
    for number in range(1, 100):
        disk = with_old_content()
        disk.crash_at(number)
        try:
            replace_file(disk, PATH, NEW)
        except PowerCut:
            states = list(disk.crash_states(60, seed=number))
            for choice, state in states:
                found = read_file(state, PATH, max_bytes=10_000)
                assert found in (OLD, NEW), (number, choice, disk.unsynced())
                replace_file(state, PATH, b"next")
                assert b"next" == read_file(state.crash(), PATH, max_bytes=10_000)
        else:
            assert {NEW} == {s.snapshot()[str(PATH)] for _, s in disk.crash_states(60)}
            break
    assert 7 == number  # unlink, create, write, sync, rename, directory sync, and nothing more


def test_replace_file_not_durable_syncs_nothing_and_leaves_old_or_new() -> None:
    """For readers without a crash; a checksum detects the result of a power cut."""
    for number in range(1, 100):
        disk = with_old_content()
        disk.crash_at(number)
        try:
            replace_file(disk, PATH, NEW, durable=False)
        except PowerCut:
            assert disk.crash(CrashChoice("all")).snapshot()[str(PATH)] in (OLD, NEW)
        else:
            break
    assert 5 == number
    assert NEW == disk.snapshot()[str(PATH)]
    assert 0 == disk.calls["sync"] + disk.calls["sync_directory"]


def test_replace_file_failure_of_any_call_leaves_old_or_new() -> None:
    """The error is raised; the old content stays until the rename; the space is freed."""
    for number in range(1, 100):
        disk = with_old_content()
        disk.fail_at(number)
        try:
            replace_file(disk, PATH, NEW)
        except OSError:
            content = disk.snapshot()[str(PATH)]
            names = disk.list(PATH.parent)
            assert content in (OLD, NEW)
            # Only where the opening itself failed is the leftover of before still there.
            assert number == 1 or ["checkpoint"] == names
        else:
            break
    assert 7 == number


def test_replace_file_full_disk_keeps_old_content_and_frees_space() -> None:
    """The temporary file does not stay on a full disk."""
    disk = with_old_content()
    disk.capacity_bytes = 2048
    with pytest.raises(OSError, match="No space"):
        replace_file(disk, PATH, NEW)
    assert {"/data": None, str(PATH): OLD} == disk.snapshot()
    assert OLD == disk.crash(CrashChoice("all")).snapshot()[str(PATH)]


def test_replace_file_directory_with_temporary_name_is_renamed(disk: Disk) -> None:
    """HOST-14: it does not stop the replacement, and is not removed."""
    path = disk.directory / "file"
    disk.filesystem.make_directory(disk.directory / "file.tmp")
    disk.filesystem.open(disk.directory / "file.tmp" / "kept", create=True).pwrite(b"kept", 0)
    replace_file(disk.filesystem, path, b"new")
    assert b"new" == read_file(disk.filesystem, path, max_bytes=10)
    assert ["file", "file.tmp.broken"] == disk.filesystem.list(disk.directory)
    assert ["kept"] == disk.filesystem.list(disk.directory / "file.tmp.broken")


def test_replace_file_large_content_with_zeros_is_read_back(disk: Disk) -> None:
    """They become holes; the length is that of the content, zeros at the end counted."""
    path, piece = disk.directory / "file", 256 * 1024
    for content in (bytes(3 * piece), b"x" + bytes(3 * piece), bytes(2 * piece) + b"x" * 7):
        replace_file(disk.filesystem, path, content)
        assert content == read_file(disk.filesystem, path, max_bytes=1 << 20)


def test_replace_file_after_another_file_keeps_its_holes(tmp_path: Path) -> None:
    """Gigabytes of holes, in the first file and in the data, are neither read nor written."""
    disk, path, size = PosixFileSystem(), tmp_path / "kept", 8 << 30
    with path.open("wb") as file:
        file.write(b"first")
        file.truncate(size)
    source = tmp_path / "torn"
    with source.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"last")
    torn = disk.open(source)
    before = disk.open(path)
    replace_file(disk, path, torn.map(size + 4), holes=[(0, size)], before=before)
    before.close()
    torn.close()
    with path.open("rb") as file:
        assert file.read(6) == b"first\0"
        file.seek(-5, os.SEEK_END)
        assert (file.read(), file.tell()) == (b"\0last", 2 * size + 4)
    assert path.stat().st_blocks * 512 < 1 << 20
