"""Facts of this machine, with results that are valid on every machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kafkalog.files.machine import LocalMachine, Ownership

MACHINE = LocalMachine()


def test_machine_system_and_release_are_those_of_the_kernel() -> None:
    """Equal to the values of `uname`."""
    assert (os.uname().sysname, os.uname().release) == (MACHINE.system(), MACHINE.release())


def test_machine_read_returns_text_or_none(tmp_path: Path) -> None:
    """Bytes that are no text do not stop it."""
    path = tmp_path / "setting"
    path.write_bytes(b"60 \xff\n")
    assert "60 \udcff\n" == MACHINE.read(path)
    assert MACHINE.read(tmp_path / "missing") is None
    assert MACHINE.read(tmp_path) is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1024, 4096), (1024, 4096)),
        ((1024, resource.RLIM_INFINITY), (1024, None)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (None, None)),
    ],
)
def test_machine_unlimited_descriptors_are_none(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    expected: tuple[int | None, int | None],
) -> None:
    """The system has a number for it that must not be compared."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    assert expected == MACHINE.descriptor_limits()


def test_machine_disk_space_counts_bytes_and_inodes_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what is kept for root."""
    facts = os.statvfs_result((4096, 1024, 1000, 900, 800, 70, 60, 50, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: facts)
    room = MACHINE.disk_space(tmp_path)
    assert (1000 * 1024, 800 * 1024) == (room.total_bytes, room.available_bytes)
    assert (70, 50) == (room.total_inodes, room.available_inodes)


def test_ownership_of_own_file_is_this_user(tmp_path: Path) -> None:
    """Files and directories alike."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(0o640)
    tmp_path.chmod(0o750)
    assert Ownership(os.geteuid(), 0o640, True) == MACHINE.ownership(path)
    assert Ownership(os.geteuid(), 0o750, True) == MACHINE.ownership(tmp_path)


def test_ownership_without_write_permission_is_not_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory has to let us in as well."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    modes = []

    def refuse(path: Path, mode: int, *, effective_ids: bool) -> bool:
        modes.append(mode)
        return False

    monkeypatch.setattr(os, "access", refuse)
    assert not MACHINE.ownership(path).is_usable
    assert not MACHINE.ownership(tmp_path).is_usable
    assert [os.R_OK | os.W_OK, os.R_OK | os.W_OK | os.X_OK] == modes


def test_ownership_of_missing_file_raises(tmp_path: Path) -> None:
    """It passes as it is."""
    with pytest.raises(FileNotFoundError):
        MACHINE.ownership(tmp_path / "missing")
