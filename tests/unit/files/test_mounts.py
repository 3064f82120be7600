"""Mounts, errors of write-backs that a kernel keeps, and ids of caches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog.files.mounts import (
    ID_BYTES,
    Mount,
    cache_id,
    find_mount,
    keeps_errors,
    reports_errors_of_syncfs,
)
from kafkalog.files.posix import PosixFileSystem

TABLE = """\
27 1 254:0 / / rw,relatime - overlay overlay rw,lowerdir=/a
30 27 254:1 / /data rw,noatime shared:3 master:1 - ext4 /dev/vdb rw,commit=30,data=ordered
33 30 254:3 / /data/with\\040space ro - xfs /dev/disk\\0401 rw
34 27 254:4 / /twice rw - ext4 /dev/vde rw
35 34 0:41 / /twice rw - fuse.sshfs host: rw
36 27 0:42 / /cut rw - ext4
37 27 0:43
"""


def test_find_mount_has_point_kind_source_and_options() -> None:
    """The optional fields between them may be many or none."""
    expected = Mount(
        "/data",
        "ext4",
        "/dev/vdb",
        frozenset({"rw", "noatime"}),
        frozenset({"rw", "commit=30", "data=ordered"}),
    )
    assert expected == find_mount("/data/orders-0", TABLE)


def test_find_mount_escaped_blanks_are_decoded() -> None:
    """The kernel writes them in octal."""
    mount = find_mount("/data/with space/orders-0", TABLE)
    assert mount is not None
    assert ("/data/with space", "/dev/disk 1") == (mount.point, mount.source)
    assert "ro" in mount.flags


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "overlay"),
        ("/database", "overlay"),
        ("/data", "ext4"),
        ("/twice/orders-0", "fuse.sshfs"),
        ("/cut/orders-0", "overlay"),
    ],
)
def test_find_mount_last_of_the_longest_points_counts(path: str, expected: str) -> None:
    """A later mount hides an earlier one; an incomplete line is ignored."""
    mount = find_mount(path, TABLE)
    assert mount is not None
    assert expected == mount.kind


def test_find_mount_without_matching_line_is_none() -> None:
    """As it is where nothing is known."""
    assert find_mount("/data", "") is None


def test_mount_option_with_value_is_found_by_name() -> None:
    """The whole name, and not one without a value."""
    mount = Mount("/", "ext4", "d", frozenset({"rw"}), frozenset({"commit=30", "data=ordered"}))
    assert "30" == mount.option("commit")
    assert mount.option("com") is None
    assert mount.option("rw") is None


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b
30 27 254:1 / /data rw,relatime shared:3 - ext4 /dev/vdb rw,errors=remount-ro
31 30 254:2 / /data/journalled rw - ext4 /dev/vdc rw,data=journal
32 30 0:40 / /data/remote rw - nfs4 server:/x rw,vers=4.2
33 30 254:3 / /data/with\\040space rw - xfs /dev/vdd rw,attr2
34 27 254:4 / /twice rw - ext4 /dev/vde rw
35 34 0:41 / /twice rw - fuse.sshfs host: rw
36 27 0:42 /@ /subvolume rw - btrfs /dev/vdf rw,subvol=/@
a line that says nothing
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """Return a table of mounts."""
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("/data", True),
        ("/data/orders-0", True),
        ("/database/orders-0", False),
        ("/data/journalled/orders-0", False),
        ("/data/remote/orders-0", False),
        ("/data/with space/orders-0", True),
        ("/twice/orders-0", False),
        ("/subvolume/orders-0", True),
        ("/orders-0", False),
    ],
)
def test_keeps_errors_file_system_of_the_last_mount_decides(
    mounts: Path, directory: str, expected: bool
) -> None:
    """Only local ones whose rules are known; the names end at slashes."""
    assert expected is keeps_errors(Path(directory), mounts=mounts, release="6.1.0-13-amd64")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("4.17.0", True),
        ("4.18.0-553.el8_10.x86_64", True),
        ("10.0", True),
        ("4.16.18", False),
        ("4.4.0", False),
        ("3.99", False),
        ("unknown", False),
    ],
)
def test_keeps_errors_release_of_the_kernel_decides(
    mounts: Path, release: str, expected: bool
) -> None:
    """Before 4.17 an error is reported only to processes that had the file open."""
    assert expected is keeps_errors(Path("/data"), mounts=mounts, release=release)


def test_keeps_errors_unknown_system_or_table_is_false(
    mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown fact is False."""
    assert not keeps_errors(Path("/data"), mounts=mounts / "missing", release="6.1")
    monkeypatch.setattr("kafkalog.files.mounts.sys.platform", "darwin")
    assert not keeps_errors(Path("/data"), mounts=mounts, release="24.1.0")


def test_keeps_errors_of_this_machine_equals_that_of_the_file_system(tmp_path: Path) -> None:
    """Both return the same value."""
    assert keeps_errors(tmp_path) is PosixFileSystem().keeps_errors(tmp_path)


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


def test_cache_id_within_a_boot_is_the_same_for_all_files(tmp_path: Path) -> None:
    """INT-3: a process that is killed takes nothing with it."""
    (tmp_path / "orders-0").mkdir()
    found = PosixFileSystem().cache_id(tmp_path)
    assert ID_BYTES == len(found)
    assert found == PosixFileSystem().cache_id(tmp_path / "orders-0") == cache_id(tmp_path)


def test_cache_id_after_a_boot_differs(tmp_path: Path, boot: Path) -> None:
    """INT-3: what was not synced may be gone."""
    later = tmp_path / "later"
    later.write_text("5f1c7c52-54a5-4c09-9d3e-1be0e4a5fe1a\n")
    assert cache_id(tmp_path, boot_id=boot) != cache_id(tmp_path, boot_id=later)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_cache_id_after_a_mount_differs(tmp_path: Path, boot: Path, kind: str) -> None:
    """INT-3: a file system that shut itself down has lost its cache within the boot."""
    system = tmp_path / "sys"
    object_ = mounted(system, tmp_path, kind)
    first = cache_id(tmp_path, boot_id=boot, system=system)
    assert first == cache_id(tmp_path, boot_id=boot, system=system)
    object_.rename(object_.with_name("before"))
    mounted_again = mounted(system, tmp_path, kind)
    assert mounted_again.stat().st_ino != object_.with_name("before").stat().st_ino
    assert first != cache_id(tmp_path, boot_id=boot, system=system)


def test_cache_id_without_kernel_object_has_boot_and_device(tmp_path: Path, boot: Path) -> None:
    """A network's file system, or one of layers."""
    found = cache_id(tmp_path, boot_id=boot, system=tmp_path / "nothing")
    assert ID_BYTES == len(found)
    assert found == cache_id(tmp_path, boot_id=boot, system=tmp_path / "nothing")


def test_cache_id_unknown_is_empty(tmp_path: Path, boot: Path) -> None:
    """No boot id, or no such directory: nothing vouches."""
    assert b"" == cache_id(tmp_path, boot_id=tmp_path / "missing")
    assert b"" == cache_id(tmp_path / "missing", boot_id=boot)


@pytest.mark.parametrize(
    ("kind", "options", "release", "expected"),
    [
        ("ext4", "rw", "6.12.0-1", True),
        ("ext4", "rw,data=ordered", "7.0", True),
        ("ext4", "rw,data=journal", "6.12", False),
        ("ext4", "rw", "6.11.9", False),
        ("ext4", "rw", "5.8", False),
        ("ext4", "rw", "unknown", False),
        ("xfs", "rw", "6.18", False),
        ("btrfs", "rw", "6.18", False),
        ("nfs4", "rw", "6.18", False),
        ("overlay", "rw", "6.18", False),
        ("tmpfs", "rw", "6.18", False),
    ],
)
def test_reports_errors_of_syncfs_on_new_kernels_and_ext4_only(
    tmp_path: Path, kind: str, options: str, release: str, expected: bool
) -> None:
    """Elsewhere its success does not prove that the disk has everything."""
    table = tmp_path / "mountinfo"
    table.write_text(f"27 1 254:0 / / rw - {kind} /dev/vda {options}\n")
    assert expected is reports_errors_of_syncfs(tmp_path, mounts=table, release=release)
    assert not reports_errors_of_syncfs(tmp_path, mounts=tmp_path / "none", release=release)
