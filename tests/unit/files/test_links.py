"""Links, FIFOs and sockets in a directory that others may write to (HOST-6)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Record
from kafkalog.errors import LogStorageError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.whole import replace_whole, write_synced

PRECIOUS = b"precious " * 10
NAMES = (
    ".kafkalog_syncs",
    ".lock",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "recovery-point-offset-checkpoint.tmp",
    "leader-epoch-checkpoint.tmp",
    "00000000000000000000.log",
    "00000000000000000000.log.tmp",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000005.log",
    "00000000000000000005.index",
    "00000000000000000010.log",
    "00000000000000000010.snapshot",
)
SPECIALS: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "socket": lambda path: make_socket(path),
    "directory": os.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}


def make_socket(path: Path) -> None:
    """Leave a socket under a name; its path may be longer than a socket takes."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def killed_log(directory: Path) -> None:
    """Leave a log of five records that was not closed in order."""
    with kafkalog.open_log(directory) as log:
        for number in range(5):
            log.append([Record(value=b"%d" % number)], wait="durable")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)


def use(directory: Path) -> str:
    """Open the log, append, roll, append; return the error where there was one."""
    try:
        with kafkalog.open_log(directory) as log:
            for _ in range(5):
                log.append([Record(value=b"other")], wait="durable")
            log.roll()
            log.append([Record(value=b"other")])
            log.truncate_to(7)
    except kafkalog.KafkaLogError as error:
        assert isinstance(error, LogStorageError)
        return str(error)
    return ""


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_log_with_a_link_in_its_directory_writes_nothing_through_it(
    tmp_path: Path, name: str, dangling: bool
) -> None:
    """HOST-6: neither what the link leads to is changed, nor is made; errors are typed."""
    directory, victim = tmp_path / "t-0", tmp_path / "victim"
    killed_log(directory)
    if not dangling:
        victim.write_bytes(PRECIOUS)
        os.utime(victim, (1, 1))
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(victim)
    use(directory)
    if dangling:
        assert not victim.exists()
    else:
        assert PRECIOUS == victim.read_bytes()
        assert 1 == victim.stat().st_mtime


@pytest.mark.parametrize("name", ["00000000000000000000.log", ".lock"])
def test_link_that_is_refused_is_named(tmp_path: Path, name: str) -> None:
    """HOST-6: the error says which path, and why."""
    directory = tmp_path / "t-0"
    killed_log(directory)
    (directory / name).rename(tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    message = use(directory)
    assert str(directory) in message
    assert "symbolic link" in message


@pytest.mark.parametrize("special", SPECIALS)
@pytest.mark.parametrize("name", NAMES)
def test_log_with_a_special_file_in_its_directory_never_waits(
    tmp_path: Path, name: str, special: str
) -> None:
    """HOST-6: a FIFO without a partner hangs no open; errors are typed."""
    directory = tmp_path / "t-0"
    killed_log(directory)
    (directory / name).unlink(missing_ok=True)
    SPECIALS[special](directory / name)
    use(directory)


def test_hard_link_to_a_temporary_name_is_replaced_and_not_written(tmp_path: Path) -> None:
    """HOST-6: the file that is written is a new one, whatever had the name."""
    victim, path = tmp_path / "victim", tmp_path / "checkpoint"
    victim.write_bytes(PRECIOUS)
    (tmp_path / "checkpoint.tmp").hardlink_to(victim)
    replace_whole(PosixFileSystem(), path, b"new")
    (tmp_path / "snapshot").hardlink_to(victim)
    write_synced(PosixFileSystem(), tmp_path / "snapshot", b"new")
    assert PRECIOUS == victim.read_bytes()
    assert b"new" == path.read_bytes() == (tmp_path / "snapshot").read_bytes()


@pytest.mark.parametrize("write", [False, True])
def test_data_directory_that_is_a_link_is_used(tmp_path: Path, write: bool) -> None:
    """HOST-6: what the caller names may be a link: only names below it may not."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    killed_log(tmp_path / "link" / "t-0")
    with kafkalog.open_log(tmp_path / "link" / "t-0", read_only=not write) as log:
        assert 5 == len(list(log.records()))


def test_create_new_for_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory is never removed for a file."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError) as caught:
        PosixFileSystem().create_new(tmp_path / "taken")
    assert caught.value.errno in (errno.EISDIR, errno.EPERM)
