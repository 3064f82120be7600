"""The file pool: limits, second chances, renames, removal of files during reads, threads."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import threading
import weakref
from pathlib import Path
from typing import Any, cast

import pytest

from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.pool import FilePool, PooledFile
from kafkalog.files.posix import PosixFileSystem
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.files.conftest import Disk


def make_files(disk: Disk, count: int) -> list[Path]:
    """Make files of 100 bytes; each byte is the file's number."""
    paths = []
    for number in range(count):
        handle = disk.filesystem.open(disk.directory / f"{number:03d}", create=True)
        handle.pwrite(bytes([number]) * 100, 0)
        handle.close()
        paths.append(handle.path)
    return paths


def open_all(pool: FilePool, paths: list[Path]) -> list[PooledFile]:
    """Open every path in the pool."""
    return [pool.open(path) for path in paths]


def test_pool_beyond_the_limits_reopens_reclaimed_files(disk: Disk) -> None:
    """At most three handles and two mappings are kept, and every read is right."""
    pool = FilePool(disk.filesystem, max_open_files=3, max_mappings=2)
    files = open_all(pool, make_files(disk, 7))
    assert (0, 0) == (pool.open_count, pool.mapping_count)
    for _ in range(2):
        for number, file in enumerate(files):
            assert bytes([number]) * 10 == file.read(10, 5)
            assert bytes([number]) * 50 == file.view(50)
            assert pool.open_count <= 3
            assert pool.mapping_count <= 2
    assert (3, 2) == (pool.open_count, pool.mapping_count)


def test_pool_file_in_use_is_not_reclaimed() -> None:
    """A file that is read between the openings of others is not opened again."""
    disk = SimulatedDisk()
    disk.make_durable("/d")
    paths = make_files(Disk(disk, Path("/d")), 10)
    pool = FilePool(disk, max_open_files=3, max_mappings=3)
    files = open_all(pool, paths)
    disk.calls.clear()
    for other in files[1:]:
        files[0].read(1, 0)
        other.read(1, 0)
        files[0].view(10)
        other.view(10)
    assert 10 == disk.calls["open"]
    assert 10 == disk.calls["map"]


def test_view_is_mapped_again_only_if_larger(disk: Disk) -> None:
    """A smaller view is a slice of the mapping; a larger one takes its place."""
    pool = FilePool(disk.filesystem)
    (path,) = make_files(disk, 1)
    file = pool.open(path)
    small = file.view(10)
    large = file.view(100)
    again = file.view(20)
    assert (10, 100, 20) == (len(small), len(large), len(again))
    assert large.obj is again.obj
    assert 1 == pool.mapping_count
    assert small == large[:10]
    assert 0 == len(file.view(0))
    with pytest.raises(ShortFileError, match="must have 101 bytes, got 100"):
        file.view(101)
    assert large.readonly


def test_slice_after_eviction_close_and_unlink_stays_valid(disk: Disk) -> None:
    """Reclaiming a mapping never invalidates it for a reader that refers to it."""
    paths = make_files(disk, 2)
    pool = FilePool(disk.filesystem, max_open_files=1, max_mappings=1)
    first, second = open_all(pool, paths)
    part = first.view(100)[20:30]
    second.view(100)
    disk.filesystem.unlink(paths[0])
    first.close()
    pool.close()
    assert bytes(10) == bytes(part)


def test_rename_then_eviction_reopens_by_the_new_name(disk: Disk) -> None:
    """The new name is used to reopen, though another file has taken the old one."""
    paths = make_files(disk, 3)
    pool = FilePool(disk.filesystem, max_open_files=1, max_mappings=1)
    first, second, _ = files = open_all(pool, paths)
    assert 0 == first.read(1, 0)[0]
    deleted = disk.directory / "000.deleted"
    first.rename(deleted)
    disk.filesystem.rename(paths[2], paths[0])
    assert 0 == first.read(1, 0)[0]
    second.read(1, 0)
    assert 0 == first.read(1, 0)[0]
    assert 0 == first.view(5)[4]
    assert deleted == first.path
    assert ["000", "000.deleted", "001"] == disk.filesystem.list(disk.directory)
    assert all(not file.closed for file in files)


def test_rename_failed_keeps_the_old_name(disk: Disk) -> None:
    """Unlike in Kafka, a rename that raised has not happened."""
    (path,) = make_files(disk, 1)
    pool = FilePool(disk.filesystem)
    file = pool.open(path)
    with pytest.raises(FileNotFoundError):
        file.rename(disk.directory / "none" / "000")
    assert path == file.path
    assert 100 == file.size()


def test_record_rename_after_directory_rename_reopens_files(disk: Disk) -> None:
    """The directory was renamed by other code: the pool records the new names."""
    disk.filesystem.make_directory(disk.directory / "a-0")
    inner = Disk(disk.filesystem, disk.directory / "a-0")
    paths = make_files(inner, 2)
    pool = FilePool(disk.filesystem, max_open_files=1)
    files = open_all(pool, paths)
    disk.filesystem.rename(inner.directory, disk.directory / "b-0")
    for file in files:
        file.record_rename(disk.directory / "b-0" / file.path.name)
    assert [0, 1, 0] == [files[number].read(1, 0)[0] for number in (0, 1, 0)]


def test_lease_of_unlinked_file_stays_readable(disk: Disk) -> None:
    """The lease keeps the handle through eviction; without it the file is gone."""
    paths = make_files(disk, 2)
    pool = FilePool(disk.filesystem, max_open_files=1)
    first, second = open_all(pool, paths)
    lease = first.lease()
    disk.filesystem.unlink(paths[0])
    second.read(1, 0)
    assert bytes(4) == lease.pread(4, 0)
    with pytest.raises(FileNotFoundError):
        first.read(1, 0)
    assert 1 == second.read(1, 0)[0]


def test_pool_closed_file_or_pool_refuses(disk: Disk) -> None:
    """ValueError, as from a closed handle; closing twice is fine."""
    first, second = open_all(pool := FilePool(disk.filesystem), make_files(disk, 2))
    first.view(10)
    second.read(1, 0)
    first.close()
    first.close()
    assert (1, 0) == (pool.open_count, pool.mapping_count)
    for call in (first.size, lambda: first.read(1, 0), lambda: first.view(1), first.lease):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        first.view(0)
    with pytest.raises(ValueError, match="closed"):
        first.rename(disk.directory / "x")
    pool.close()
    pool.close()
    assert second.closed
    assert "closed" in repr(second)
    with pytest.raises(ValueError, match="closed"):
        second.read(1, 0)
    with pytest.raises(ValueError, match="closed"):
        pool.open(disk.directory / "000")


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_pool_limit_below_one_is_refused(disk: Disk, bounds: tuple[int, int]) -> None:
    """A pool has to keep the one file that is being read."""
    with pytest.raises(ValueError, match=r"must be >= 1, got"):
        FilePool(disk.filesystem, max_open_files=bounds[0], max_mappings=bounds[1])


def test_read_into_fills_memory_and_fileno_is_a_descriptor(disk: Disk, tmp_path: Path) -> None:
    """Caller's memory is filled; a real file has a descriptor."""
    (path,) = make_files(disk, 1)
    file = FilePool(disk.filesystem).open(path)
    target = bytearray(b"x" * 4)
    assert 3 == file.read_into(target, 97)
    assert b"\0\0\0x" == target
    if isinstance(disk.filesystem, PosixFileSystem):
        assert os.fstat(file.fileno()).st_size == 100
    else:
        with pytest.raises(OSError, match="no descriptor"):
            file.fileno()


def test_pool_without_descriptors_reclaims_half() -> None:
    """EMFILE on open or map: the pool reclaims some and continues; other errors are raised."""
    disk = SimulatedDisk()
    disk.make_durable("/d")
    pool = FilePool(disk, max_open_files=8, max_mappings=8)
    files = open_all(pool, make_files(Disk(disk, Path("/d")), 6))
    for file in files[:4]:
        file.read(1, 0)
        file.view(10)
    disk.fail_at(1, errno.EMFILE, only=frozenset({"open"}))
    assert 4 == files[4].read(1, 0)[0]
    assert (3, 2) == (pool.open_count, pool.mapping_count)
    disk.fail_at(1, errno.EMFILE, only=frozenset({"map"}))
    assert 4 == files[4].view(10)[0]
    assert 2 == pool.mapping_count
    disk.fail_at(1, errno.EIO, only=frozenset({"open"}))
    with pytest.raises(OSError, match="Input/output"):
        files[5].read(1, 0)
    assert 5 == files[5].read(1, 0)[0]


def test_pool_threads_read_the_right_bytes_during_renames(disk: Disk) -> None:
    """Readers, a renamer and a bound that is far too small: each byte is still its file's."""
    count = 12
    pool = FilePool(disk.filesystem, max_open_files=2, max_mappings=2)
    files = open_all(pool, make_files(disk, count))
    failures: list[object] = []
    stop = threading.Event()

    def read(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(600):
                number = chance.randrange(count)
                data = files[number].read(8, 3) if chance.random() < 0.5 else files[number].view(8)
                if bytes(data) != bytes([number]) * 8:
                    failures.append((number, bytes(data)))
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    def rename() -> None:
        turn = 0
        while not stop.is_set():
            number = turn % count
            files[number].rename(disk.directory / f"{number:03d}.{turn}")
            turn += 1

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    renamer = threading.Thread(target=rename)
    for thread in (*readers, renamer):
        thread.start()
    for thread in readers:
        thread.join(60)
    stop.set()
    renamer.join(60)
    assert [] == failures
    assert pool.open_count <= 2
    assert pool.mapping_count <= 2


class SlowToOpen:
    """A disk on which only the thread that made it opens files without a wait."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._fast = threading.current_thread()
        self.is_opening = threading.Event()
        self.may_open = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def open(self, path: Path) -> FileHandle:
        """Open a file; other threads first wait for `may_open`."""
        if threading.current_thread() is not self._fast:
            self.is_opening.set()
            assert self.may_open.wait(30)
        return self._filesystem.open(path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_pool_in_forked_child_reads_although_it_was_locked(tmp_path: Path) -> None:
    """A lock that another thread of the parent held at the fork must not stop the child."""
    disk = Disk(PosixFileSystem(), tmp_path)
    slow = SlowToOpen(disk.filesystem)
    pool = FilePool(cast("FileSystem", slow))
    first, second, third = open_all(pool, make_files(disk, 3))
    first.read(1, 0)
    opening = threading.Thread(target=lambda: third.read(1, 0))
    opening.start()
    try:
        # The pool opens files under its lock.
        assert slow.is_opening.wait(30)
        child = os.fork()
        if child == 0:
            status = 1
            signal.alarm(30)  # ends a child that waits for ever
            try:
                if (first.read(1, 0)[0], second.read(1, 0)[0]) == (0, 1):
                    status = 0
            finally:
                os._exit(status)
        assert (child, 0) == os.waitpid(child, 0)
    finally:
        slow.may_open.set()
        opening.join(30)


def test_view_without_read_keeps_no_handle(disk: Disk) -> None:
    """Neither of a part nor of the whole; a handle that is there is used, and stays."""
    pool = FilePool(disk.filesystem)
    first, second, empty = open_all(pool, make_files(disk, 3))
    handle = disk.filesystem.open(empty.path, write=True)
    handle.truncate(0)
    handle.close()
    size = first.view(10).nbytes
    assert 10 == size
    assert second.size() == len(second.whole()) == len(second.view(10)) + len(second.whole()[10:])
    assert b"" == bytes(empty.whole())
    assert (1, 2) == (pool.open_count, pool.mapping_count)
    assert bytes(first.whole())[:10] == bytes(first.read(10, 0))
    first.close()
    with pytest.raises(ValueError, match="closed"):
        first.whole()


def test_pool_file_without_references_is_released(disk: Disk) -> None:
    """With the last reference to a file its handle and its mapping are gone; DUR-6."""
    pool = FilePool(disk.filesystem)
    files = open_all(pool, make_files(disk, 3))
    slices = [file.view(100) for file in files]
    for file in files:
        file.read(1, 0)
    assert (3, 3) == (pool.open_count, pool.mapping_count)
    del files[0], file
    assert (2, 2) == (pool.open_count, pool.mapping_count)
    assert bytes(100) == slices[0]


def dead_references() -> int:
    """Return the number of weak references of this process whose object was collected."""
    gc.collect()
    return sum(type(each) is weakref.ref and each() is None for each in gc.get_objects())


def test_pool_of_many_collected_files_stays_bounded(disk: Disk) -> None:
    """Collected files are removed before files in use are reclaimed."""
    pool = FilePool(disk.filesystem, max_open_files=4, max_mappings=4)
    kept, *others = make_files(disk, 40)
    file = pool.open(kept)
    file.view(100)
    before = dead_references()
    for path in others:
        pool.open(path).view(10)
    assert 1 == pool.mapping_count
    if isinstance(disk.filesystem, PosixFileSystem):
        # Nothing is left of most files, not even the pool's weak references to them. (The
        # simulated disk has some, too.)
        assert dead_references() - before <= 4
