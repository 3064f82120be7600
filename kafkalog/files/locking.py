"""Locks of directories and partitions: one `.lock` file per directory, one writer per partition.

Three rules, kept by one registry for the whole process:

  * A directory is locked against other processes by its `.lock` file, with a lock that a Kafka
    broker honours. All partitions of one data directory that are open in this process share it;
    the last release unlocks it. The file stays: an unlocked `.lock` has no meaning, while deleting
    it would let two other processes lock two different files of that name.
  * A partition has one writer, in this process too: the second one gets `LogLockedError`, which
    names the first.
  * A manager owns a data directory exclusively: for that time, partitions in it are opened for
    writing through the manager only, including partitions that the manager has not opened yet.

Fork: a child has no lock of its parent. Its registry starts empty, `is_held` of an inherited lock
is False and `release` does nothing, so a child can neither write under the parent's lock nor
release it.

A lock that loses its last reference is released when the garbage collector finds it, so that a log
without a `close` does not keep its partition until the process ends.

Thread-safety: every function and method may be called from any thread. Releasing is idempotent.
This module never waits for a lock: a lock that is held elsewhere is refused at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kafkalog.errors import LogLockedError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileLock, FileSystem
from kafkalog.files.names import LOCK_FILE

__all__ = ["DirectoryLock", "PartitionLock", "acquire_directory_lock", "acquire_partition_lock"]


class _Key(NamedTuple):
    """A directory of one file system; all POSIX file systems are equal, so they share keys."""

    filesystem: FileSystem
    directory: Path


class _HeldLock:
    """
    One locked `.lock` file, and the number of its shares.

    Thread-safety: every call is made under the registry's guard.
    """

    __slots__ = ("_file_lock", "_share_count")

    def __init__(self, file_lock: FileLock) -> None:
        self._file_lock = file_lock
        self._share_count = 1

    def add_share(self) -> None:
        """Count one more share."""
        self._share_count += 1

    def remove_share(self) -> bool:
        """Count one share less; return whether it was the last one."""
        self._share_count -= 1
        return not self._share_count

    def release(self) -> None:
        """Release the `.lock` file for other processes."""
        self._file_lock.release()


class _Registry:
    """Locks of this process. No call waits while it has the guard."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.directories: dict[_Key, _HeldLock] = {}
        self.writers: dict[_Key, str] = {}
        # Directories with an exclusive owner -> description of the owner.
        self.owners: dict[_Key, str] = {}
        # Shares that were collected without a release: (directory, partition or None).
        self.abandoned: deque[tuple[_Key, _Key | None]] = deque()

    def acquire(
        self, key: _Key, writer_key: _Key | None, *, owns: bool = False, is_owners: bool = False
    ) -> None:
        """
        Acquire a share in a directory and, if a partition is given, the right to write it.

        With `owns` the directory must not have a share yet, and only the owner (`is_owners`)
        acquires more of them.
        """
        with self.guard:
            self._collect()
            if writer_key is not None:
                # First: this refusal names the thread that has the log open.
                self._ensure_no_writer(writer_key)
            if not is_owners:
                self._ensure_no_owner(key)
            held = self.directories.get(key)
            if owns and held is not None:
                raise LogLockedError(
                    f"{key.directory}: partitions of it are open in this process (pid"
                    f" {os.getpid()}); close them first",
                    path=key.directory,
                )
            if held is None:
                path = key.directory / LOCK_FILE
                with storage_errors(path, doing="locking"):
                    file_lock = key.filesystem.lock(path)
                if file_lock is None:
                    raise LogLockedError(_refusal(key.filesystem, path), path=path)
                self.directories[key] = _HeldLock(file_lock)
            else:
                held.add_share()
            if writer_key is not None:
                self.writers[writer_key] = _this_thread()
            if owns:
                self.owners[key] = _this_thread()

    def release(self, key: _Key, writer_key: _Key | None) -> None:
        with self.guard:
            self._release(key, writer_key)

    def abandon(self, key: _Key, writer_key: _Key | None) -> None:
        """Release without waiting: the collector may run in a thread that has the guard."""
        self.abandoned.append((key, writer_key))
        if self.guard.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self.guard.release()

    def _collect(self) -> None:
        while self.abandoned:
            self._release(*self.abandoned.popleft())

    def _release(self, key: _Key, writer_key: _Key | None) -> None:
        held = self.directories[key]
        if held.remove_share():
            del self.directories[key]
            self.owners.pop(key, None)
            held.release()
        if writer_key is not None:
            del self.writers[writer_key]

    def _ensure_no_writer(self, key: _Key) -> None:
        holder = self.writers.get(key)
        if holder is not None:
            raise LogLockedError(
                f"{key.directory}: already open for writing by {holder}; close that log first, "
                "or open this one with read_only=True",
                path=key.directory,
            )

    def _ensure_no_owner(self, key: _Key) -> None:
        owner = self.owners.get(key)
        if owner is not None:
            raise LogLockedError(
                f"{key.directory}: owned by a manager that {owner} opened; open the partition by "
                "that manager, or with read_only=True",
                path=key.directory,
            )

    def drop_in_child(self) -> None:
        self.guard = threading.Lock()
        self.owners.clear()
        self.directories.clear()
        self.writers.clear()
        self.abandoned.clear()


_REGISTRY = _Registry()

os.register_at_fork(
    before=lambda: _REGISTRY.guard.acquire(),
    after_in_parent=lambda: _REGISTRY.guard.release(),
    after_in_child=_REGISTRY.drop_in_child,
)


def _this_thread() -> str:
    return f"thread {threading.current_thread().name!r} of this process (pid {os.getpid()})"


def _refusal(filesystem: FileSystem, path: Path) -> str:
    holder = filesystem.lock_holder(path)
    if holder is None:
        who = "another process (a Kafka broker, or another writer)"
    elif holder == os.getpid():
        who = f"this process (pid {holder}), under another path or file system object"
    else:
        who = f"process {holder}"
    return f"{path}: held by {who}; close it first, or open with read_only=True"


class DirectoryLock:
    """A share in the lock of one directory."""

    __slots__ = ("_guard", "_held", "_key", "_process", "_writer_key")

    def __init__(
        self,
        key: _Key,
        writer_key: _Key | None = None,
        *,
        owns: bool = False,
        is_owners: bool = False,
    ) -> None:
        self._held = False
        self._key = key
        self._writer_key = writer_key
        self._process = os.getpid()
        self._guard = threading.Lock()
        _REGISTRY.acquire(key, writer_key, owns=owns, is_owners=is_owners)
        self._held = True

    def __repr__(self) -> str:
        return f"<DirectoryLock {self._key.directory}{'' if self.is_held else ' released'}>"

    def __del__(self) -> None:
        if self.is_held:
            self._held = False
            _REGISTRY.abandon(self._key, self._writer_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def directory(self) -> Path:
        """The locked directory, symbolic links resolved."""
        return self._key.directory

    @property
    def tenure(self) -> object:
        """An object that stays the same until the last share in the lock is released."""
        return _REGISTRY.directories[self._key]

    @property
    def is_held(self) -> bool:
        """True if this process acquired the lock and has not released it: False after a fork."""
        return self._held and os.getpid() == self._process

    def release(self) -> None:
        """Release the share. Idempotent; without effect in a forked child."""
        if os.getpid() != self._process:
            return
        with self._guard:
            held, self._held = self._held, False
        if held:
            _REGISTRY.release(self._key, self._writer_key)


class PartitionLock:
    """The right to write one partition, with a share in the lock of its parent directory."""

    __slots__ = ("_partition_directory", "_share")

    def __init__(self, key: _Key, writer_key: _Key, *, is_owners: bool) -> None:
        self._partition_directory = writer_key.directory
        self._share = DirectoryLock(key, writer_key, is_owners=is_owners)

    def __repr__(self) -> str:
        state = "" if self.is_held else " released"
        return f"<PartitionLock {self._partition_directory}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def directory(self) -> Path:
        """The directory that has the lock file, symbolic links resolved."""
        return self._share.directory

    @property
    def partition_directory(self) -> Path:
        """The partition's directory, symbolic links resolved."""
        return self._partition_directory

    @property
    def tenure(self) -> object:
        """See `DirectoryLock.tenure`."""
        return self._share.tenure

    @property
    def is_held(self) -> bool:
        """See `DirectoryLock.is_held`."""
        return self._share.is_held

    def release(self) -> None:
        """Release the right and the share. Idempotent; without effect in a forked child."""
        self._share.release()


def acquire_directory_lock(
    filesystem: FileSystem, directory: Path, *, exclusive: bool = False
) -> DirectoryLock:
    """
    Lock a directory against other processes; all its locks in this process share one file.

    Args:
        filesystem: the disk; its identity is part of the lock's.
        directory: an existing directory; its `.lock` is created if absent.
        exclusive: True to exclude the rest of this process, too: only with this lock may
            partitions of the directory be opened for writing.

    Raises:
        LogLockedError: another process has the lock; or this process has a share in it and
            `exclusive` is True; or a manager of this process owns the directory.
        LogStorageError: the lock file cannot be created (LogPermissionError: no permission).
    """
    return DirectoryLock(_key(filesystem, directory), owns=exclusive)


def acquire_partition_lock(
    filesystem: FileSystem,
    partition_directory: Path,
    *,
    lock_directory: Path,
    owner: DirectoryLock | None = None,
) -> PartitionLock:
    """
    Acquire the right to write a partition.

    Args:
        filesystem: the disk.
        partition_directory: existing directory of the partition.
        lock_directory: directory whose `.lock` keeps other processes out: the data directory, or
            the partition's own directory if it is standalone.
        owner: the exclusive lock of `lock_directory`, if the caller has it.

    Raises:
        LogLockedError: this process has the partition open for writing already (the message
            names the thread), or another process holds `lock_directory`.
        LogStorageError: the lock file cannot be created.
    """
    if owner is not None:
        # The directory was resolved before: its entries are not resolved link by link again.
        partition_key = _Key(filesystem, owner.directory / partition_directory.name)
        return PartitionLock(owner._key, partition_key, is_owners=owner.is_held)
    key = _key(filesystem, lock_directory)
    is_standalone = partition_directory == lock_directory
    partition_key = key if is_standalone else _key(filesystem, partition_directory)
    return PartitionLock(key, partition_key, is_owners=False)


def _key(filesystem: FileSystem, directory: Path) -> _Key:
    return _Key(filesystem, Path(os.path.realpath(directory)))
