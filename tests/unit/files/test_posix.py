"""Behaviour of the real system: descriptors, short writes, locks between processes, forks."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import Buffer

from kafkalog.files.posix import PosixFileSystem

# A process that acquires the lock like a broker's Java, reports it, and waits for end of input.
HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("held", flush=True)
except BlockingIOError:
    print("refused", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    """Start another process that asks for the lock on `path`."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer_of(path: Path) -> str:
    """Return what another process gets when it asks for the lock on `path`."""
    with start_holder(path) as process:
        answer, _ = process.communicate(timeout=30)
    return answer.strip()


def open_descriptors() -> int:
    """Return how many descriptors this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def filesystem() -> PosixFileSystem:
    """Return the machine's disk."""
    return PosixFileSystem()


def test_posix_file_systems_are_equal() -> None:
    """Locks are shared by equality: two objects must not open one lock file twice."""
    assert PosixFileSystem() == PosixFileSystem()
    assert hash(PosixFileSystem()) == hash(PosixFileSystem())
    assert PosixFileSystem() != object()


def test_handle_closed_or_unreferenced_releases_descriptor(
    filesystem: PosixFileSystem, tmp_path: Path
) -> None:
    """Closed or forgotten, a handle leaves no descriptor; it is not passed to programs started."""
    before = open_descriptors()
    handle = filesystem.open(tmp_path / "a", create=True)
    assert fcntl.fcntl(handle.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert before + 1 == open_descriptors()
    handle.close()
    assert before == open_descriptors()
    handle = filesystem.open(tmp_path / "a")
    del handle
    assert before == open_descriptors()
    with pytest.raises(IsADirectoryError):
        filesystem.open(tmp_path)
    assert before == open_descriptors()


def test_close_during_read_keeps_the_descriptor_open(
    filesystem: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has begun finishes on its file although the handle is closed during the call."""
    handle = filesystem.open(tmp_path / "mine", create=True)
    handle.pwrite(b"mine", 0)
    filesystem.open(tmp_path / "other", create=True).pwrite(b"other", 0)
    real_pread = os.pread
    begun, closed = threading.Event(), threading.Event()

    def slow_pread(descriptor: int, size: int, position: int) -> bytes:
        begun.set()
        assert closed.wait(30)
        return real_pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", slow_pread)
    answers: list[bytes] = []
    reader = threading.Thread(target=lambda: answers.append(handle.pread(4, 0)))
    reader.start()
    assert begun.wait(30)
    handle.close()
    others = [filesystem.open(tmp_path / "other") for _ in range(3)]
    closed.set()
    reader.join(30)
    assert [b"mine"] == answers
    assert 3 == len({other.fileno() for other in others})


class may_grow_to:  # noqa: N801 - reads as what it is used for
    """Let files grow to so many bytes at most, from now on, or while it is entered."""

    def __init__(self, size_bytes: int) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, self._before[1]))

    def __enter__(self) -> None:
        """It is in force already."""

    def __exit__(self, *_error: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


def test_pwrite_above_the_file_size_limit_raises_efbig(
    filesystem: PosixFileSystem, tmp_path: Path
) -> None:
    """The error has the system's number, whether nothing was taken or a part."""
    handle = filesystem.open(tmp_path / "file", create=True)
    for position in (0, 4):
        with may_grow_to(4), pytest.raises(OSError, match="File too large") as caught:
            handle.pwrite(b"xyzxyz", position)
        assert errno.EFBIG == caught.value.errno
    assert b"xyzx" == handle.pread(9, 0)


def test_short_writes_and_reads_are_continued(
    filesystem: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that takes three bytes at a time still gets and gives everything."""
    real = os.pwrite, os.pwritev, os.pread, os.preadv

    def pwrite(descriptor: int, data: Buffer, position: int) -> int:
        may_grow_to(resource.RLIM_INFINITY)
        return real[0](descriptor, memoryview(data)[:3], position)

    def pwritev(descriptor: int, parts: Sequence[Buffer], position: int) -> int:
        return real[0](descriptor, b"".join(bytes(part) for part in parts)[:3], position)

    def pread(descriptor: int, size: int, position: int) -> bytes:
        return real[2](descriptor, min(size, 3), position)

    def preadv(descriptor: int, targets: Sequence[memoryview], position: int) -> int:
        return real[3](descriptor, [targets[0][:3]], position)

    for name, short in (
        ("pwrite", pwrite),
        ("pwritev", pwritev),
        ("pread", pread),
        ("preadv", preadv),
    ):
        monkeypatch.setattr(os, name, short)
    handle = filesystem.open(tmp_path / "file", create=True)
    data = bytes(range(100))
    with may_grow_to(40):
        handle.pwrite(data, 0)
    handle.pwritev([b"a", b"bcdefg", b"", b"hi"], 100)
    target = bytearray(200)
    assert 109 == handle.pread_into(target, 0)
    assert data + b"abcdefghi" == bytes(target[:109]) == handle.pread(200, 0)
    assert data[10:20] == handle.pread(10, 10)


def test_write_that_takes_nothing_is_an_error(
    filesystem: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero bytes written is no progress and no success: it must not loop for ever."""
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    handle = filesystem.open(tmp_path / "file", create=True)
    with may_grow_to(1), pytest.raises(OSError, match="wrote nothing") as caught:
        handle.pwrite(b"xy", 0)
    assert errno.EIO == caught.value.errno


def test_open_fifo_is_refused_at_once(filesystem: PosixFileSystem, tmp_path: Path) -> None:
    """Opening it must neither hang nor succeed."""
    path = tmp_path / "00000000000000000000.log"
    os.mkfifo(path)
    errors: list[str] = []

    def try_to_open() -> None:
        try:
            filesystem.open(path)
        except OSError as error:
            errors.append(str(error.strerror))

    thread = threading.Thread(target=try_to_open, daemon=True)
    thread.start()
    thread.join(30)
    assert ["not a regular file"] == errors


def test_truncate_up_uses_no_space(filesystem: PosixFileSystem, tmp_path: Path) -> None:
    """Preallocation is sparse."""
    handle = filesystem.open(tmp_path / "file", create=True)
    handle.truncate(10 * 1024 * 1024)
    assert os.fstat(handle.fileno()).st_blocks * 512 < 1024 * 1024


def test_map_is_released_with_its_last_view(filesystem: PosixFileSystem, tmp_path: Path) -> None:
    """The kernel's list of mappings has the file as long as a slice lives, and no longer."""
    handle = filesystem.open(tmp_path / "mapped-file", create=True)
    handle.truncate(1 << 16)
    part = handle.map(1 << 16)[10:20]
    handle.close()
    maps = Path("/proc/self/maps")
    assert "mapped-file" in maps.read_text()
    assert bytes(10) == bytes(part)
    del part
    gc.collect()
    assert "mapped-file" not in maps.read_text()


def test_sync_directory_failed_raises_unless_unsupported(
    filesystem: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EINVAL means that the operation does not exist there; EIO that names are in danger."""

    def failing(number: int) -> object:
        def fsync(_: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    filesystem.sync_directory(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        filesystem.sync_directory(tmp_path)


def test_lock_and_other_process_exclude_each_other(
    filesystem: PosixFileSystem, tmp_path: Path
) -> None:
    """In both directions; the error has the holder's process id."""
    path = tmp_path / ".lock"
    lock = filesystem.lock(path)
    assert lock is not None
    assert os.getpid() == filesystem.lock_holder(path)
    # Refused requests of our own must not free it: they never open the file.
    assert PosixFileSystem().lock(path) is None
    assert answer_of(path) == "refused"
    lock.release()
    with start_holder(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert filesystem.lock(path) is None
        assert process.pid == filesystem.lock_holder(path)
        process.communicate(timeout=30)
    lock = filesystem.lock(path)
    assert lock is not None
    lock.release()
    assert filesystem.lock_holder(path) is None
    assert filesystem.lock_holder(tmp_path / "none") is None


def test_lock_on_deleted_file_is_acquired_again(
    filesystem: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes its lock file on release: a process that locked the old inode retries."""
    path = tmp_path / ".lock"
    real_lockf = fcntl.lockf
    deleted: list[bool] = []

    def lockf(descriptor: int, flags: int) -> None:
        real_lockf(descriptor, flags)
        if not deleted:
            path.unlink()
            deleted.append(True)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    lock = filesystem.lock(path)
    assert lock is not None
    assert path.exists()
    assert answer_of(path) == "refused"
    lock.release()


def test_lock_without_permission_raises(filesystem: PosixFileSystem, tmp_path: Path) -> None:
    """An error is an error, not 'held by another'."""
    with pytest.raises(FileNotFoundError):
        filesystem.lock(tmp_path / "none" / ".lock")


def test_lock_in_forked_child_is_neither_held_nor_released(
    filesystem: PosixFileSystem, tmp_path: Path
) -> None:
    """Releasing, asking and ending in the child leave the parent's lock as it is."""
    path = tmp_path / ".lock"
    lock = filesystem.lock(path)
    assert lock is not None
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(30)  # ends a child that waits for ever
        try:
            lock.release()
            if filesystem.lock(path) is None and filesystem.lock_holder(path) == os.getppid():
                status = 0
        finally:
            os._exit(status)
    assert (child, 0) == os.waitpid(child, 0)
    assert answer_of(path) == "refused"
    lock.release()
