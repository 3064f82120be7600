"""What names the cache of written bytes: the boot, the device, the mounted file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog.files.cache_id import ID_BYTES, cache_id
from kafkalog.files.posix import PosixFileSystem


@pytest.fixture(name="boot")
def fixture_boot(tmp_path: Path) -> Path:
    """Return a file with the id of a boot."""
    path = tmp_path / "boot_id"
    path.write_text("0c2a4a06-ae2b-4f3f-9e31-2d7a3a4d9d2e\n")
    return path


def mounted(system: Path, directory: Path, kind: str = "ext4") -> Path:
    """Make what a kernel shows of the file system of a directory; return its object."""
    device = directory.stat().st_dev
    block = system / "dev" / "block"
    block.mkdir(parents=True, exist_ok=True)
    link = block / f"{os.major(device)}:{os.minor(device)}"
    if not link.is_symlink():
        link.symlink_to("../../devices/virtual/block/disk7")
    object_ = system / "fs" / kind / "disk7"
    object_.mkdir(parents=True)
    return object_


def test_id_is_the_same_within_a_boot_and_for_all_files_of_a_disk(tmp_path: Path) -> None:
    """INT-3: a process that is killed takes nothing with it."""
    (tmp_path / "orders-0").mkdir()
    found = PosixFileSystem().cache_id(tmp_path)
    assert ID_BYTES == len(found)
    assert found == PosixFileSystem().cache_id(tmp_path / "orders-0") == cache_id(tmp_path)


def test_id_is_another_after_a_boot(tmp_path: Path, boot: Path) -> None:
    """INT-3: what was not synced may be gone."""
    later = tmp_path / "later"
    later.write_text("5f1c7c52-54a5-4c09-9d3e-1be0e4a5fe1a\n")
    assert cache_id(tmp_path, boot_id=boot) != cache_id(tmp_path, boot_id=later)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_id_is_another_after_a_mount(tmp_path: Path, boot: Path, kind: str) -> None:
    """INT-3: a file system that shut itself down has lost its cache within the boot."""
    system = tmp_path / "sys"
    object_ = mounted(system, tmp_path, kind)
    first = cache_id(tmp_path, boot_id=boot, system=system)
    assert first == cache_id(tmp_path, boot_id=boot, system=system)
    object_.rename(object_.with_name("before"))
    mounted_again = mounted(system, tmp_path, kind)
    assert mounted_again.stat().st_ino != object_.with_name("before").stat().st_ino
    assert first != cache_id(tmp_path, boot_id=boot, system=system)


def test_id_without_an_object_of_the_file_system_is_that_of_the_boot(
    tmp_path: Path, boot: Path
) -> None:
    """A network's file system, or one of layers."""
    found = cache_id(tmp_path, boot_id=boot, system=tmp_path / "nothing")
    assert ID_BYTES == len(found)
    assert found == cache_id(tmp_path, boot_id=boot, system=tmp_path / "nothing")


def test_id_is_empty_where_nothing_is_known(tmp_path: Path, boot: Path) -> None:
    """No boot id, or no such directory: nothing vouches."""
    assert b"" == cache_id(tmp_path, boot_id=tmp_path / "missing")
    assert b"" == cache_id(tmp_path / "missing", boot_id=boot)
