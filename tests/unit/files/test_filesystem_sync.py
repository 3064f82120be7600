"""Syncs of a whole file system: of this machine, with a fake call, and of a simulated disk."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from kafkalog.files.filesystem_sync import (
    SYNCFS,
    PosixFilesystemSync,
    find_function,
    open_filesystem_sync,
)
from kafkalog.files.posix import PosixFileSystem
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

A = Path("/a")


class FakeCall:
    """The call of the system: notes descriptors, and fails with `error_number` if that is set."""

    def __init__(self, error_number: int = 0) -> None:
        self.error_number = error_number
        self.descriptors: list[int] = []

    def __call__(self, descriptor: int) -> int:
        self.descriptors.append(descriptor)
        ctypes.set_errno(self.error_number)
        return -1 if self.error_number else 0


@pytest.mark.skipif(SYNCFS is None, reason="the system has no syncfs")
def test_sync_of_this_machine(tmp_path: Path) -> None:
    """The call is made with the descriptor of the directory, and succeeds."""
    assert SYNCFS is not None
    syncs = PosixFilesystemSync(tmp_path, SYNCFS)
    (tmp_path / "file").write_bytes(b"x")
    syncs.sync()
    assert syncs.covers(tmp_path)
    assert not syncs.covers(Path("/proc"))
    with pytest.raises(FileNotFoundError):
        syncs.covers(tmp_path / "none")
    syncs.close()


def test_one_descriptor_is_held_for_all_syncs(tmp_path: Path) -> None:
    """A new one would not get the errors that another program has seen."""
    call = FakeCall()
    syncs = PosixFilesystemSync(tmp_path, call)
    syncs.sync()
    syncs.sync()
    assert 1 == len(set(call.descriptors))
    held = call.descriptors[0]
    assert os.path.samestat(os.fstat(held), tmp_path.stat())
    syncs.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
    syncs.close()
    with pytest.raises(ValueError, match="its file system must be open for a sync"):
        syncs.sync()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR])
def test_error_of_the_call_is_raised_and_not_retried(tmp_path: Path, number: int) -> None:
    """With the number, and with the reason why it names no file."""
    call = FakeCall(number)
    syncs = PosixFilesystemSync(tmp_path, call)
    with pytest.raises(OSError, match="in a sync of the whole file system") as caught:
        syncs.sync()
    assert (number, str(tmp_path)) == (caught.value.errno, caught.value.filename)
    assert 1 == len(call.descriptors)
    syncs.close()


def test_none_where_errors_may_be_hidden_or_the_call_is_missing(tmp_path: Path) -> None:
    """A success would prove nothing."""
    assert find_function("darwin") is None
    assert open_filesystem_sync(tmp_path, function=None) is None
    call = FakeCall()
    assert open_filesystem_sync(tmp_path, function=call, reports_errors=lambda _: False) is None
    opened = open_filesystem_sync(tmp_path, function=call, reports_errors=lambda _: True)
    assert opened is not None
    opened.close()
    with pytest.raises(FileNotFoundError):
        open_filesystem_sync(tmp_path / "none", function=call, reports_errors=lambda _: True)


def test_posix_file_system_offers_it_where_errors_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the mount of the directory; /proc is none."""
    assert PosixFileSystem().open_filesystem_sync(Path("/proc")) is None
    offered = PosixFileSystem().open_filesystem_sync(tmp_path)
    if offered is not None:
        offered.close()


# --------------------------------------------------------------------------- the simulated disk


def test_simulated_sync_makes_contents_and_names_durable() -> None:
    """All that came before it, and nothing that came after."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    syncs = disk.open_filesystem_sync(A)
    assert syncs is not None
    for name in ("one", "two"):
        disk.open(A / name, create=True).pwrite(b"x", 0)
    syncs.sync()
    disk.open(A / "three", create=True).pwrite(b"x", 0)
    disk.open(A / "one", write=True).pwrite(b"y", 0)
    after = disk.crash(CrashChoice("nothing")).snapshot()
    assert {"/a": None, "/a/one": b"x", "/a/two": b"x"} == after
    syncs.close()
    with pytest.raises(ValueError, match="must be open"):
        syncs.sync()


def test_simulated_sync_that_fails_is_one_of_every_dirty_file() -> None:
    """Later syncs of all do not report it again, and make nothing durable of it."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    syncs = disk.open_filesystem_sync(A)
    assert syncs is not None
    handle = disk.open(A / "file", create=True)
    handle.pwrite(b"x", 0)
    disk.fail_at(1, errno.EIO, only=frozenset({"sync_filesystem"}))
    with pytest.raises(OSError, match="Input/output error"):
        syncs.sync()
    syncs.sync()
    assert b"x" != disk.crash(CrashChoice("nothing")).snapshot()["/a/file"]
    with pytest.raises(OSError, match="Input/output error"):
        handle.sync()


def test_simulated_sync_reports_every_failed_write_once() -> None:
    """Also after a sync of the file has reported it; to each object that was open before."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    first = disk.open_filesystem_sync(A)
    handle = disk.open(A / "file", create=True)
    handle.pwrite(b"x", 0)
    disk.fail_write_back(A / "file")
    later = disk.open_filesystem_sync(A)
    assert first is not None
    assert later is not None
    with pytest.raises(OSError, match="Input/output error"):
        first.sync()
    first.sync()
    later.sync()
    with pytest.raises(OSError, match="Input/output error"):
        handle.sync()
    with pytest.raises(OSError, match="Input/output error"):
        later.sync()


def test_simulated_sync_has_faults_as_other_syncs() -> None:
    """It can be forgotten, and the power may go before it."""
    disk = SimulatedDisk()
    disk.make_durable(A)
    syncs = disk.open_filesystem_sync(A)
    assert syncs is not None
    disk.open(A / "file", create=True).pwrite(b"x", 0)
    disk.forget_sync_at(1)
    syncs.sync()
    assert {"/a": None} == disk.crash(CrashChoice("nothing")).snapshot()
    disk.crash_at(1)
    with pytest.raises(PowerCut):
        syncs.sync()
    for hidden in ("syncs_all", "errors_are_kept"):
        other = SimulatedDisk()
        other.make_durable(A)
        setattr(other, hidden, False)
        assert other.open_filesystem_sync(A) is None
