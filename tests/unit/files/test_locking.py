"""Locks of directories and partitions: shared, exclusive, refused by name, void after fork."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkalog.errors import LogLockedError, LogStorageError
from kafkalog.files.locking import acquire_directory_lock, acquire_partition_lock
from kafkalog.files.posix import PosixFileSystem
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.files.conftest import Disk

OTHER_PROCESS = """
import sys
from pathlib import Path
from kafkalog.errors import LogLockedError
from kafkalog.files.locking import acquire_directory_lock
from kafkalog.files.posix import PosixFileSystem
try:
    acquire_directory_lock(PosixFileSystem(), Path(sys.argv[1]))
    print("held")
except LogLockedError as error:
    print(error)
"""


def ask_from_another_process(directory: Path) -> str:
    """Return 'held', or the refusal that another process gets."""
    return subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(directory)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.strip()


def make_partitions(disk: Disk) -> tuple[Path, Path]:
    """Make two partition directories and return them."""
    paths = disk.directory / "orders-0", disk.directory / "orders-1"
    for path in paths:
        disk.filesystem.make_directory(path)
    return paths


def test_locks_of_partitions_in_one_directory_share_its_lock(disk: Disk) -> None:
    """The file is locked until the last one releases it; it stays, unheld."""
    first, second = make_partitions(disk)
    one = acquire_partition_lock(disk.filesystem, first, lock_directory=disk.directory)
    two = acquire_partition_lock(disk.filesystem, second, lock_directory=disk.directory)
    path = disk.directory / ".lock"
    one.release()
    assert disk.filesystem.lock(path) is None
    assert (False, True) == (one.is_held, two.is_held)
    two.release()
    lock = disk.filesystem.lock(path)
    assert lock is not None
    lock.release()
    assert [".lock", "orders-0", "orders-1"] == disk.filesystem.list(disk.directory)


def test_partition_lock_second_writer_is_refused_with_the_first_named(disk: Disk) -> None:
    """Also through a symbolic link's name, and until the first one releases it."""
    partition, _ = make_partitions(disk)
    locks = []
    thread = threading.Thread(
        target=lambda: locks.append(
            acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory)
        ),
        name="the first writer",
    )
    thread.start()
    thread.join(30)
    for _ in range(2):
        with pytest.raises(
            LogLockedError, match=f"'the first writer'.*pid {os.getpid()}"
        ) as caught:
            acquire_partition_lock(
                disk.filesystem, partition / ".." / partition.name, lock_directory=disk.directory
            )
        assert str(partition) == caught.value.path
        assert caught.value.retriable
    assert partition == locks[0].partition_directory
    locks[0].release()
    with acquire_partition_lock(disk.filesystem, partition, lock_directory=partition) as again:
        assert again.is_held
        assert partition == again.directory
    assert not again.is_held


def test_partition_lock_refused_leaves_no_share(disk: Disk) -> None:
    """A writer that could not lock the directory is not registered for the partition."""
    partition, _ = make_partitions(disk)
    foreign = disk.filesystem.lock(disk.directory / ".lock")
    assert foreign is not None
    with pytest.raises(LogLockedError, match=r"\.lock: held by"):
        acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory)
    foreign.release()
    acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory).release()


def test_release_twice_releases_one_share(disk: Disk) -> None:
    """The second release must not take the share of another."""
    one = acquire_directory_lock(disk.filesystem, disk.directory)
    two = acquire_directory_lock(disk.filesystem, disk.directory)
    one.release()
    one.release()
    assert disk.filesystem.lock(disk.directory / ".lock") is None
    two.release()
    assert "released" in repr(two)


def test_lock_collected_without_release_is_released(disk: Disk) -> None:
    """A log without a close does not keep its partition until the process ends."""
    partition, _ = make_partitions(disk)
    lock = acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory)
    del lock
    gc.collect()
    acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory).release()


def test_directory_lock_missing_directory_is_a_storage_error(disk: Disk) -> None:
    """The error names the lock file and what was being done."""
    with pytest.raises(LogStorageError, match=r"none/\.lock: locking failed") as caught:
        acquire_directory_lock(disk.filesystem, disk.directory / "none")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_partition_lock_racing_threads_have_one_winner(disk: Disk) -> None:
    """Eight threads at once: one writes, seven are refused."""
    partition, _ = make_partitions(disk)
    barrier = threading.Barrier(8)
    locks, refusals = [], []

    def compete() -> None:
        barrier.wait(30)
        try:
            locks.append(
                acquire_partition_lock(disk.filesystem, partition, lock_directory=disk.directory)
            )
        except LogLockedError as error:
            refusals.append(error)

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (1, 7) == (len(locks), len(refusals))
    locks[0].release()


def test_directory_lock_other_process_is_refused_with_process_id(tmp_path: Path) -> None:
    """The error names the process to close; after the release the other process gets the lock."""
    with acquire_directory_lock(PosixFileSystem(), tmp_path):
        assert f"held by process {os.getpid()}" in ask_from_another_process(tmp_path)
    assert ask_from_another_process(tmp_path) == "held"


def test_lock_through_symbolic_link_is_the_same_lock(tmp_path: Path) -> None:
    """Two names of one directory share the lock; the error has the link's target."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with (
        acquire_directory_lock(PosixFileSystem(), tmp_path / "data") as one,
        acquire_directory_lock(PosixFileSystem(), tmp_path / "link") as two,
    ):
        assert one.directory == two.directory == (tmp_path / "data").resolve()


def test_lock_in_forked_child_is_not_held(tmp_path: Path) -> None:
    """The child holds nothing, can release nothing, and is refused as long as the parent holds."""
    filesystem = PosixFileSystem()
    lock = acquire_partition_lock(filesystem, tmp_path / "p-0", lock_directory=tmp_path)
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(30)  # ends a child that waits for ever
        try:
            lock.release()
            try:
                acquire_directory_lock(filesystem, tmp_path)
            except LogLockedError as error:
                status = 0 if not lock.is_held and f"process {os.getppid()}" in str(error) else 2
        finally:
            os._exit(status)
    assert (child, 0) == os.waitpid(child, 0)
    assert lock.is_held
    assert f"held by process {os.getpid()}" in ask_from_another_process(tmp_path)
    lock.release()


def test_locks_of_two_simulated_disks_are_independent() -> None:
    """The disk after a crash is another one: what was locked before does not count there."""
    disk = SimulatedDisk()
    disk.make_durable("/data")
    lock = acquire_directory_lock(disk, Path("/data"))
    acquire_directory_lock(disk.crash(), Path("/data")).release()
    lock.release()
