"""Events of directories: each change of a name or of bytes has one, and lost ones are reported."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sys
from pathlib import Path

import pytest

from kafkalog.files.filesystem import FileEvent, FileNotifications
from kafkalog.files.inotify import Inotify, InotifyFunctions, open_inotify
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.processes import own_start_ticks, start_ticks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


def opened() -> FileNotifications:
    """Return the notifications of the machine."""
    found = PosixFileSystem().open_notifications()
    assert found is not None
    return found


def test_names_and_writes_have_events(tmp_path: Path) -> None:
    """Creation, write, truncation, rename and removal; the descriptor is readable until then."""
    events = opened()
    watch = events.add(tmp_path, with_writes=True)
    assert [] == events.read()
    (tmp_path / "a").write_bytes(b"1")
    assert [events.fileno()] == select.select([events.fileno()], [], [], 5)[0]
    assert [FileEvent(watch, "a"), FileEvent(watch, "a", is_written=True)] == events.read()
    os.truncate(tmp_path / "a", 0)
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "b").unlink()
    assert [
        FileEvent(watch, "a", is_written=True),
        FileEvent(watch, "a", is_removed=True),
        FileEvent(watch, "b"),
        FileEvent(watch, "b", is_removed=True),
    ] == events.read()
    events.close()
    events.close()


def test_watch_of_names_has_no_writes_and_ends(tmp_path: Path) -> None:
    """After the end of a watch there are no events; another end does nothing."""
    events = opened()
    watch = events.add(tmp_path, with_writes=False)
    (tmp_path / "a").write_bytes(b"1")
    assert [FileEvent(watch, "a")] == events.read()
    events.remove(watch)
    events.remove(watch)
    (tmp_path / "b").touch()
    assert [FileEvent(watch, "", is_removed=True)] == events.read()
    (tmp_path / "c").mkdir()
    watch = events.add(tmp_path / "c", with_writes=False)
    (tmp_path / "c").rmdir()
    assert [FileEvent(watch, "", is_removed=True)] == events.read()
    events.close()


def test_many_events_are_read_in_order(tmp_path: Path) -> None:
    """More than one buffer of the system call."""
    events = opened()
    events.add(tmp_path, with_writes=False)
    names = [f"{number:04d}-{'x' * 100}" for number in range(2_000)]
    for name in names:
        (tmp_path / name).touch()
    assert names == [event.name for event in events.read()]
    events.close()


def test_lost_events_are_an_event(tmp_path: Path) -> None:
    """A queue that is full has a last event without a watch."""
    events = opened()
    events.add(tmp_path, with_writes=False)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text("ascii"))
    if limit > 50_000:
        pytest.skip(f"the queue has {limit} events")
    path = tmp_path / "a"
    for _pair in range(limit // 2 + 10):
        path.touch()
        path.unlink()
    found = events.read()
    assert limit + 1 == len(found)
    assert FileEvent(-1, "") == found[-1]
    events.close()


def test_missing_directory_and_file_are_errors(tmp_path: Path) -> None:
    """Only a directory that exists can be watched."""
    events = opened()
    with pytest.raises(FileNotFoundError):
        events.add(tmp_path / "none", with_writes=True)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        events.add(tmp_path / "file", with_writes=True)
    events.close()


def test_limits_of_the_system_are_named(tmp_path: Path) -> None:
    """The error has the setting of the kernel that must be raised."""

    def fail_with(number: int) -> InotifyFunctions:
        def fail(*arguments: object) -> int:
            ctypes.set_errno(number)
            return -1

        return InotifyFunctions(fail, fail, fail)

    with pytest.raises(OSError, match="max_user_instances") as raised:
        Inotify(fail_with(errno.EMFILE))
    assert errno.EMFILE == raised.value.errno
    refusing = InotifyFunctions(
        lambda flags: os.open(tmp_path, os.O_RDONLY), *fail_with(errno.ENOSPC)[1:]
    )
    with pytest.raises(OSError, match="max_user_watches"):
        Inotify(refusing).add(tmp_path, with_writes=True)
    assert open_inotify("darwin") is None


def test_start_of_a_process_identifies_it(tmp_path: Path) -> None:
    """The same for each call, None for a process that does not exist or cannot be read."""
    assert own_start_ticks() is not None
    assert own_start_ticks() == start_ticks(os.getpid())
    assert start_ticks(2**22 + 1) is None
    for text in ("", "1 (a) S 1", "1 (a b) c) S " + "x " * 30):
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "7" / "stat").write_text(text, "ascii")
        assert start_ticks(7, processes=tmp_path) is None
    fields = " ".join(str(number) for number in range(3, 50))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b) {fields}", "ascii")
    assert 22 == start_ticks(7, processes=tmp_path)
