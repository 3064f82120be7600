"""Tests of the doctor's checks of file systems, their options, and the space on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.doctor.findings import Severity
from kafkalog.files.machine import DiskSpace
from tests.support.doctor_fixtures import checks, examined, healthy_directory, judged, only
from tests.support.machines import GIB, MadeUpMachine

WARNING, ERROR, NOTE = Severity.WARNING, Severity.ERROR, Severity.NOTE


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        ("ext4 /dev/sda1 rw", None),
        ("xfs /dev/sda1 rw,attr2", None),
        ("btrfs /dev/sda1 rw", None),
        ("ext3 /dev/sda1 rw", None),
        ("ext2 /dev/sda1 rw", WARNING),
        ("tmpfs tmpfs rw", ERROR),
        ("ramfs none rw", ERROR),
        ("nfs4 server:/export rw,vers=4.2", WARNING),
        ("cifs //server/share rw", WARNING),
        ("gfs2 /dev/sda1 rw", WARNING),
        ("fuse.sshfs host: rw", WARNING),
        ("fuseblk /dev/sda1 rw", WARNING),
        ("overlay overlay rw,lowerdir=/a,upperdir=/b", WARNING),
        ("vfat /dev/sda1 rw", WARNING),
        ("zfs tank/data rw", NOTE),
    ],
)
def test_file_system_is_judged_by_its_syncs_and_locks(
    data: Path, mount: str, expected: Severity | None
) -> None:
    """Local ones with a journal are fine; an unknown one is noted."""
    diagnosis = examined(data, machine=MadeUpMachine(mount=mount))
    finding = judged(diagnosis, "mount.type", expected)
    if finding is not None:
        assert (data,) == finding.paths
        assert f"is on {mount.split()[0]} ({mount.split()[1]} on /)" in finding.seen
        assert (expected is not NOTE) == bool(finding.remedy)


@pytest.mark.parametrize(
    ("mount", "flags", "severity", "option"),
    [
        ("ext4 /dev/sda1 rw,nobarrier", "rw", ERROR, "nobarrier"),
        ("ext4 /dev/sda1 rw,barrier=0", "rw", ERROR, "barrier=0"),
        ("ext4 /dev/sda1 rw,data=writeback", "rw", WARNING, "data=writeback"),
        ("ext4 /dev/sda1 rw,data=journal", "rw", WARNING, "data=journal"),
        ("ext4 /dev/sda1 rw,errors=continue", "rw", WARNING, "errors=continue"),
        ("ext4 /dev/sda1 rw", "rw,sync", WARNING, "sync"),
        ("ext4 /dev/sda1 rw", "rw,strictatime", NOTE, "strictatime"),
        ("ext4 /dev/sda1 rw,commit=31", "rw", WARNING, "commit=31"),
    ],
)
def test_mount_option_that_is_unsafe_or_slow_is_found(
    data: Path, mount: str, flags: str, severity: Severity, option: str
) -> None:
    """An option of the mount or of the file system."""
    finding = only(examined(data, machine=MadeUpMachine(mount=mount, flags=flags)), "mount.options")
    assert severity is finding.severity
    assert f"/ is mounted with {option}" == finding.seen
    assert finding.remedy
    assert "{point}" not in finding.remedy


def test_volatile_overlay_is_found_besides_its_type(data: Path) -> None:
    """An overlay without syncs."""
    machine = MadeUpMachine(mount="overlay overlay rw,upperdir=/b,volatile")
    diagnosis = examined(data, machine=machine)
    assert ["mount.options", "mount.type"] == checks(diagnosis)
    assert ERROR is diagnosis.findings[0].severity


@pytest.mark.parametrize(
    ("mount", "flags"),
    [
        ("ext4 /dev/sda1 rw,errors=remount-ro,data=ordered,commit=30", "rw,noatime"),
        ("ext4 /dev/sda1 rw,commit=often", "rw,lazytime,nodev"),
    ],
)
def test_ordinary_options_have_no_finding(data: Path, mount: str, flags: str) -> None:
    """The default options of most machines."""
    assert [] == checks(examined(data, machine=MadeUpMachine(mount=mount, flags=flags)))


@pytest.mark.parametrize(
    ("mount", "flags"), [("ext4 /dev/sda1 ro", "rw"), ("ext4 /dev/sda1 rw", "ro,relatime")]
)
def test_read_only_mount_is_an_error(data: Path, mount: str, flags: str) -> None:
    """By configuration, or by the kernel after an error."""
    finding = only(
        examined(data, machine=MadeUpMachine(mount=mount, flags=flags)), "mount.read_only"
    )
    assert ERROR is finding.severity
    assert "remount,rw /" in finding.remedy


def test_unreadable_mount_table_is_reported_once_as_not_examined(data: Path) -> None:
    """Several checks use the table."""
    diagnosis = examined(data, machine=MadeUpMachine(mount=""))
    assert [] == checks(diagnosis)
    assert (f"the mount of {data}",) == diagnosis.unseen


@pytest.mark.parametrize(
    ("available", "expected"),
    [(50 * GIB, None), (50 * GIB - 1, WARNING), (16 << 20, WARNING), ((16 << 20) - 1, ERROR)],
)
def test_scarce_space_is_found(data: Path, available: int, expected: Severity | None) -> None:
    """A twentieth of the whole; an error if no checkpoint could be replaced."""
    space = DiskSpace(1000 * GIB, available, 1000, 1000)
    diagnosis = examined(data, machine=MadeUpMachine(space=space))
    finding = judged(diagnosis, "disk.space", expected)
    if finding is not None:
        assert "1000.0 GiB on /" in finding.seen
        assert (data,) == finding.paths


def test_space_below_two_of_the_largest_segment_is_found(data: Path) -> None:
    """A truncation rewrites a segment."""
    (data / "orders-0" / f"{8:020d}.log").write_bytes(bytes(20 << 20))
    (data / ".lock").unlink()
    space = DiskSpace(100 << 20, 40 << 20, 1000, 1000)
    assert "disk.space" not in checks(examined(data, machine=MadeUpMachine(space=space)))
    space = DiskSpace(100 << 20, (40 << 20) - 1, 1000, 1000)
    diagnosis = examined(data, machine=MadeUpMachine(space=space))
    finding = next(each for each in diagnosis.findings if each.check == "disk.space")
    assert WARNING is finding.severity
    assert "the largest here has 20.0 MiB" in finding.matters
    assert "keep 40.0 MiB free" in finding.remedy


def test_space_is_reported_once_for_all_directories_of_a_file_system(tmp_path: Path) -> None:
    """Both directories are named."""
    directories = (
        healthy_directory(tmp_path / "a", "orders-0"),
        healthy_directory(tmp_path / "b", "orders-1"),
    )
    space = DiskSpace(1000 * GIB, GIB, 1000, 1000)
    diagnosis = examined(*directories, machine=MadeUpMachine(space=space))
    assert directories == only(diagnosis, "disk.space").paths


@pytest.mark.parametrize(
    ("total", "available", "expected"),
    [
        (0, 0, None),
        (100_000, 5_000, None),
        (100_000, 4_999, WARNING),
        (100_000, 999, ERROR),
        (1_000_000_000, 999, ERROR),
    ],
)
def test_scarce_inodes_are_found(
    data: Path, total: int, available: int, expected: Severity | None
) -> None:
    """If the file system has a limit at all."""
    space = DiskSpace(1000 * GIB, 500 * GIB, total, available)
    diagnosis = examined(data, machine=MadeUpMachine(space=space))
    finding = judged(diagnosis, "disk.inodes", expected)
    if finding is not None:
        assert f"{available} inodes left of {total} on /" == finding.seen


def test_unreadable_space_is_reported_as_not_examined(data: Path) -> None:
    """With the reason."""
    machine = MadeUpMachine(space=OSError(5, "Input/output error"))
    diagnosis = examined(data, machine=machine)
    assert [] == checks(diagnosis)
    assert ("the space on /: Input/output error",) == diagnosis.unseen
