"""Which kernels and file systems are believed when a sync says that all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.write_back import keeps_errors

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
def test_file_system_decides_by_the_last_mount_above_the_directory(
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
def test_kernel_decides_by_its_release(mounts: Path, release: str, expected: bool) -> None:
    """Before 4.17 an error is told only to those who had the file open."""
    assert expected is keeps_errors(Path("/data"), mounts=mounts, release=release)


def test_other_systems_and_missing_tables_are_not_believed(
    mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known is False."""
    assert not keeps_errors(Path("/data"), mounts=mounts / "missing", release="6.1")
    monkeypatch.setattr("kafkalog.files.write_back.sys.platform", "darwin")
    assert not keeps_errors(Path("/data"), mounts=mounts, release="24.1.0")


def test_this_machine_answers(tmp_path: Path) -> None:
    """Whatever it says, it says it for the file system as for the function."""
    assert keeps_errors(tmp_path) is PosixFileSystem().keeps_errors(tmp_path)
