"""Damaged small files and other kinds of files at their paths: faults that stop no manager."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog import CorruptStateError, LogManager, LogStorageError, Record

pytestmark = pytest.mark.usefixtures("_quiet")

START = "log-start-offset-checkpoint"
OTHERS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def make_socket(path: Path) -> None:
    """Make a socket; its path is too long in some temporary directories."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_link(path: Path) -> None:
    """Make a dangling link."""
    path.symlink_to(path.parent / "nowhere" / "decoy")


def make_full_directory(path: Path) -> None:
    """Make a directory with a file in it."""
    path.mkdir()
    (path / "x").write_text("x")


ODD: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": make_socket,
    "directory": lambda path: path.mkdir(),
    "full-directory": make_full_directory,
    "link": make_link,
    "garbage": lambda path: path.write_text("garbage"),
}


def two(tmp_path: Path) -> tuple[Path, Path]:
    """Return two data directories with a topic whose first two records were deleted."""
    with LogManager([tmp_path / "a", tmp_path / "b"]) as manager:
        manager.create_topic("t", 2)
        for number in (0, 1):
            log = manager.log("t", number)
            log.append([Record(value=b"%d" % each) for each in range(3)])
            log.delete_records(2)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", sorted(ODD))
def test_manager_odd_checkpoint_is_a_fault(tmp_path: Path, name: str, kind: str) -> None:
    """HOST-14: the manager starts, serves, closes, and starts again."""
    a, b = two(tmp_path)
    (a / name).unlink(missing_ok=True)
    ODD[kind](a / name)
    for each in range(2):
        with LogManager([a, b]) as manager:
            assert [b"2"] == [record.value for record in manager.log("t", 0).records()][:1]
            manager.log("t", 0).append([Record(value=b"x")], wait="durable")
            health = manager.health()
            assert all(directory.is_online for directory in health.directories)
            faults = [fault.subject for fault in health.faults if fault.task == "checkpoint"]
            if each == 0 and kind != "link":
                assert [a / name] == faults
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "garbage"])
def test_manager_unreadable_log_starts_take_their_directory_offline(
    tmp_path: Path, kind: str
) -> None:
    """PAR-3, HOST-14: no deleted record is served, and the file is not changed."""
    a, b = two(tmp_path)
    good = (a / START).read_bytes()
    (a / START).unlink()
    ODD[kind](a / START)
    before = (a / START).lstat()
    with LogManager([a, b]) as manager:
        health = manager.health()
        assert [False, True] == [each.is_online for each in health.directories]
        assert START in str(health.directories[0].error)
        assert [b"2"] == [record.value for record in manager.log("t", 1).records()]
        assert before.st_ino == (a / START).lstat().st_ino
        (a / START).rmdir() if kind == "directory" else (a / START).unlink()
        (a / START).write_bytes(good)
        manager.bring_online(a)
        assert manager.health().is_healthy
        assert 2 == manager.log("t", 0).log_start_offset
    (a / START).write_text("garbage")
    with pytest.raises(CorruptStateError, match=START):
        LogManager(a)
    assert "garbage" == (a / START).read_text()


@pytest.mark.parametrize("place", ["alone", "data"])
@pytest.mark.parametrize("read_only", [False, True])
def test_open_log_damaged_log_start_raises_corrupt_state_error(
    tmp_path: Path, place: str, read_only: bool
) -> None:
    """PAR-3: no deleted record is served, and the file is not changed."""
    if place == "data":
        directory, state = two(tmp_path)[0] / "t-0", tmp_path / "a"
    else:
        directory = state = tmp_path / "t-0"
        with kafkalog.open_log(directory) as log:
            log.append([Record(value=b"%d" % each) for each in range(3)])
            log.delete_records(2)
    good = (state / START).read_bytes()
    (state / START).write_text("garbage")
    with pytest.raises(CorruptStateError, match="remove it"):
        kafkalog.open_log(directory, read_only=read_only)
    assert "garbage" == (state / START).read_text()
    (state / START).write_bytes(good)
    with kafkalog.open_log(directory, read_only=read_only) as log:
        assert [b"2"] == [record.value for record in log.records()]


@pytest.mark.parametrize("kind", ["fifo", "directory", "full-directory"])
def test_open_log_odd_sync_journal_is_ignored(tmp_path: Path, kind: str) -> None:
    """HOST-14: the log is written and closed cleanly."""
    directory = tmp_path / "t-0"
    with kafkalog.open_log(directory) as log:
        log.append([Record(value=b"x")])
    ODD[kind](directory / ".kafkalog_syncs")
    for _ in range(2):
        with kafkalog.open_log(directory) as log:
            log.append([Record(value=b"x")], wait="durable")
    with kafkalog.open_log(directory) as log:
        assert log.recovery_report.clean


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "garbage"])
def test_manager_odd_file_of_a_partition_does_not_affect_others(
    tmp_path: Path, name: str, kind: str
) -> None:
    """HOST-14: at most that partition is not opened, with a typed error and a fault."""
    a, b = two(tmp_path)
    (a / "t-0" / name).unlink(missing_ok=True)
    ODD[kind](a / "t-0" / name)
    with LogManager([a, b]) as manager:
        assert [b"2"] == [record.value for record in manager.log("t", 1).records()]
        try:
            assert [b"2"] == [record.value for record in manager.log("t", 0).records()]
        except LogStorageError:
            assert manager.health().faults
        assert manager.health().directories[1].is_online
