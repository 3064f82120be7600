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
from kafkalog.files.atomic_files import replace_file, write_synced
from kafkalog.files.directories import remove_tree
from kafkalog.files.posix import PosixFileSystem

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
def test_log_with_link_in_directory_writes_nothing_through_it(
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
def test_open_refused_link_is_named_in_the_error(tmp_path: Path, name: str) -> None:
    """HOST-6: the error has the path and the reason."""
    directory = tmp_path / "t-0"
    killed_log(directory)
    (directory / name).rename(tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    message = use(directory)
    assert str(directory) in message
    assert "symbolic link" in message


@pytest.mark.parametrize("special", SPECIALS)
@pytest.mark.parametrize("name", NAMES)
def test_log_with_special_file_in_directory_never_waits(
    tmp_path: Path, name: str, special: str
) -> None:
    """HOST-6: a FIFO without a partner hangs no open; errors are typed."""
    directory = tmp_path / "t-0"
    killed_log(directory)
    (directory / name).unlink(missing_ok=True)
    SPECIALS[special](directory / name)
    use(directory)


def test_replace_file_hard_link_with_temporary_name_is_not_written(tmp_path: Path) -> None:
    """HOST-6: the file that is written is a new one, whatever had the name."""
    victim, path = tmp_path / "victim", tmp_path / "checkpoint"
    victim.write_bytes(PRECIOUS)
    (tmp_path / "checkpoint.tmp").hardlink_to(victim)
    replace_file(PosixFileSystem(), path, b"new")
    (tmp_path / "snapshot").hardlink_to(victim)
    write_synced(PosixFileSystem(), tmp_path / "snapshot", b"new")
    assert PRECIOUS == victim.read_bytes()
    assert b"new" == path.read_bytes() == (tmp_path / "snapshot").read_bytes()


@pytest.mark.parametrize("write", [False, True])
def test_manager_data_directory_is_link_is_used(tmp_path: Path, write: bool) -> None:
    """HOST-6: what the caller names may be a link: only names below it may not."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    killed_log(tmp_path / "link" / "t-0")
    with kafkalog.open_log(tmp_path / "link" / "t-0", read_only=not write) as log:
        assert 5 == len(list(log.records()))


def test_create_new_for_directory_is_refused(tmp_path: Path) -> None:
    """A directory is never removed for a file."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError) as caught:
        PosixFileSystem().create_new(tmp_path / "taken")
    assert caught.value.errno in (errno.EISDIR, errno.EPERM)


def decoy_of(directory: Path, decoy: Path) -> dict[str, tuple[bytes, float]]:
    """Move a directory away, leave a link to it, and return what is in it."""
    directory.rename(decoy)
    directory.symlink_to(decoy, target_is_directory=True)
    return content_of(decoy)


def content_of(directory: Path) -> dict[str, tuple[bytes, float]]:
    """Return content and last modification of each file in a directory."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime) for path in sorted(directory.iterdir())
    }


def test_open_log_directory_is_link_is_refused(tmp_path: Path) -> None:
    """HOST-6: below a data directory; what it leads to is read only, and stays as it is."""
    data, decoy = tmp_path / "data", tmp_path / "decoy"
    with kafkalog.LogManager([data]) as manager:
        manager.create_topic("t")
        manager.log("t").append([Record(value=b"one")])
    before = decoy_of(data / "t-0", decoy)
    (data / ".kafka_cleanshutdown").unlink()
    with pytest.raises(LogStorageError, match="symbolic link") as caught:
        kafkalog.open_log(data / "t-0")
    assert (errno.ELOOP, str(data / "t-0")) == (caught.value.errno, caught.value.path)
    with kafkalog.open_log(data / "t-0", read_only=True) as log:
        assert [b"one"] == [record.value for record in log.records()]
    assert before == content_of(decoy)


def test_open_log_directory_is_dangling_link_is_not_created(tmp_path: Path) -> None:
    """HOST-6: nothing is created where it leads."""
    data = tmp_path / "data"
    with kafkalog.LogManager([data]):
        pass
    (data / "t-0").symlink_to(tmp_path / "victim")
    with pytest.raises(LogStorageError):
        kafkalog.open_log(data / "t-0")
    with kafkalog.LogManager([data]) as manager, pytest.raises(LogStorageError):
        manager.create_topic("t")
    assert not (tmp_path / "victim").exists()


def test_open_log_standalone_through_link_is_opened(tmp_path: Path) -> None:
    """HOST-6: the caller has named it, as he names a data directory."""
    killed_log(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    with kafkalog.open_log(tmp_path / "link") as log:
        assert 5 == log.append([Record(value=b"more")]).first_offset


def test_manager_partition_is_link_is_not_written(tmp_path: Path) -> None:
    """HOST-6: it is among the faults, its neighbours work, and deleting it takes the link."""
    data, decoy = tmp_path / "data", tmp_path / "decoy"
    with kafkalog.LogManager([data]) as manager:
        manager.create_topic("t", 2)
        for partition in range(2):
            manager.log("t", partition).append([Record(value=b"one")])
    before = decoy_of(data / "t-0", decoy)
    with kafkalog.LogManager([data]) as manager:
        with pytest.raises(LogStorageError, match="symbolic link"):
            manager.log("t", 0)
        (fault,) = manager.health().faults
        assert kafkalog.TopicPartition("t", 0) == fault.subject
        assert not manager.health().is_healthy
        assert 1 == manager.log("t", 1).append([Record(value=b"more")]).first_offset
        manager.delete_topic("t")
    with kafkalog.LogManager([data]):
        pass
    assert before == content_of(decoy)


def test_manager_deleted_directory_is_link_is_removed_and_not_emptied(tmp_path: Path) -> None:
    """HOST-6: what is removed after a deletion is the link."""
    decoy, deleted = tmp_path / "decoy", tmp_path / f"t-0.{'0' * 32}-delete"
    decoy.mkdir()
    (decoy / "precious").write_bytes(PRECIOUS)
    deleted.symlink_to(decoy, target_is_directory=True)
    remove_tree(PosixFileSystem(), deleted)
    assert not deleted.is_symlink()
    assert PRECIOUS == (decoy / "precious").read_bytes()


def test_doctor_partition_directory_is_link_is_reported(tmp_path: Path) -> None:
    """HOST-6: an error, as they cannot be opened for writing."""
    data = tmp_path / "data"
    with kafkalog.LogManager([data]) as manager:
        manager.create_topic("t")
    decoy_of(data / "t-0", tmp_path / "decoy")
    for path in (data, data / "t-0"):
        found = [e for e in kafkalog.examine_directories([path]).findings if e.paths]
        (finding,) = [each for each in found if each.check == "files.links"]
        assert (data / "t-0",) == finding.paths
