"""The disk of a POSIX system: descriptors, positional reads and writes, syncs, mappings, locks.

Invariants:
  * A call uses the descriptor that was open when the call began, or raises; never a number that
    the system has since given to another file. The number is owned by a small object that closes
    it when its last reference is dropped; every call has a reference, so `close` in one thread
    cannot close the descriptor during a read in another. This needs no lock, with or without the
    GIL.
  * Short reads and writes are continued; `EINTR` is retried by Python itself.
  * A mapping exists as long as a view of it. This module never closes a mapping: a `munmap` under
    a reader kills the process. Bytes that cannot be read are zeros in the mapping, and an error
    for all code that interprets them (`kafkalog._core.mapping`).
  * One `.lock` file is opened at most once in a process: POSIX locks vanish when the process
    closes *any* descriptor of that file.

Thread-safety: every method may be called from any thread. It never truncates a file on open, never
follows a glob, never follows a symbolic link in the last part of a path that it writes to, never
waits for a FIFO, never writes through a mapping and never retries a failed sync.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat as stat_bits
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

from typing_extensions import Buffer

from kafkalog._core.mapping import check_bytes, lost_mapping_count
from kafkalog._engine.file_writer import Descriptor, FileWriter
from kafkalog.clock import Clock, SystemClock
from kafkalog.errors import LogStorageError
from kafkalog.files import mappings
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import (
    FileExtent,
    FileFacts,
    FileHandle,
    FileLock,
    FileNotifications,
    FilesystemSync,
)
from kafkalog.files.mounts import cache_id, keeps_errors

__all__ = ["PosixFileHandle", "PosixFileSystem"]

# Darwin has no fdatasync. (Its fsync leaves the bytes in the drive's cache as well; only Linux is
# supported for data that must survive a power cut.)
sync_descriptor: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

# A system without the name does not support its number either: EINVAL.
_SEEK_DATA: Final[int] = getattr(os, "SEEK_DATA", 3)

# Longer than a tick of the clock of any file system: changes within one tick look the same.
_TICK_MS: Final = 2_500

_IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
_IOV_MAX = _IOV_MAX if _IOV_MAX > 0 else 1024
# The unit of st_blocks, whatever the blocks of the file system are.
_STAT_BLOCK_BYTES = 512


class PosixFileHandle:
    """
    One open regular file.

    Dropping the last reference closes the file as well; `close` does it at a known time.

    Thread-safety: reads and writes at different positions may run at the same time.
    """

    __slots__ = ("_path", "_writer", "descriptor", "pwrite")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._writer = FileWriter(descriptor, path, _finish_write, _check_sources)
        # Bound once: neither an append nor a read has another Python frame for it.
        self.pwrite: _Pwrite = self._writer.pwrite
        self.descriptor: Callable[[], Descriptor] = self._writer.descriptor

    def __repr__(self) -> str:
        return f"<PosixFileHandle {self._path}{' closed' if self.closed else ''}>"

    @property
    def path(self) -> Path:
        """The name under which the file was opened; it may have been renamed since."""
        return self._path

    @property
    def closed(self) -> bool:
        return self._writer.is_closed

    def fileno(self) -> int:
        """Return the descriptor; the number is valid only while the handle stays open."""
        return self.descriptor().number

    def size(self) -> int:
        descriptor = self.descriptor()
        return os.fstat(descriptor.number).st_size

    def pread(self, size: int, position: int) -> bytes:
        descriptor = self.descriptor()
        data = os.pread(descriptor.number, size, position)
        if len(data) == size:
            return data
        # A short read is nearly always the end of the file; only an empty one proves it.
        parts = [data]
        done = len(data)
        while data and done < size:
            data = os.pread(descriptor.number, size - done, position + done)
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pread_into(self, target: Buffer, position: int) -> int:
        descriptor = self.descriptor()
        view = memoryview(target)
        size = view.nbytes
        if size == 0:
            return 0
        view = view.cast("B")
        done = 0
        while done < size:
            count = os.preadv(descriptor.number, [view[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def next_data(self, position: int) -> int | None:
        descriptor = self.descriptor()
        try:
            return os.lseek(descriptor.number, position, _SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None  # only a hole, or after the end
            if error.errno != errno.EINVAL:
                raise
        # The system, or this file system, does not report holes.
        return position if position < os.fstat(descriptor.number).st_size else None

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        descriptor = self.descriptor()
        views = [view for view in (memoryview(part) for part in parts) if view.nbytes]
        try:
            for first in range(0, len(views), _IOV_MAX):
                group = views[first : first + _IOV_MAX]
                size = sum(view.nbytes for view in group)
                done = os.pwritev(descriptor.number, group, position)
                if done < size:
                    _finish_group(descriptor, group, done, position, self._path)
                position += size
        except OSError as error:
            if error.errno == errno.EFAULT:
                _check_sources(views)
            raise
        if lost_mapping_count():
            _check_sources(views)

    def truncate(self, size: int) -> None:
        descriptor = self.descriptor()
        os.ftruncate(descriptor.number, size)

    def sync(self) -> None:
        descriptor = self.descriptor()
        sync_descriptor(descriptor.number)

    def begin_write_back(self, position: int, size: int) -> None:
        descriptor = self.descriptor()
        _write_behind().begin(descriptor.number, position, size)

    def drop_cache(self, position: int, size: int) -> None:
        descriptor = self.descriptor()
        _write_behind().drop_cache(descriptor.number, position, size)

    def map(self, size: int) -> memoryview:
        descriptor = self.descriptor()
        if size <= 0:
            raise ValueError(f"{self._path}: bytes to map must be at least 1, got {size}")
        facts = os.fstat(descriptor.number)
        if facts.st_size < size:
            raise ShortFileError(self._path, facts.st_size, size)
        identity = facts.st_dev, facts.st_ino
        return mappings.map_file(descriptor.number, size, self._path, identity)

    def close(self) -> None:
        """Close the file; calls still running in other threads finish first. Idempotent."""
        self._writer.close()


class _Pwrite(Protocol):
    def __call__(self, data: Buffer, position: int) -> None: ...


def _check_sources(views: Sequence[Buffer]) -> None:
    """Raise OSError where the data of a write could not be read from its own file."""
    try:
        for view in views:
            check_bytes(view, touch=True)
    except LogStorageError as error:
        raise OSError(f"the data of a write could not be read: {error}") from error


def _finish_group(
    descriptor: Descriptor, group: Sequence[memoryview], done: int, position: int, path: Path
) -> None:
    """Finish a vectored write of which the system took only `done` bytes."""
    for view in group:
        size = view.nbytes
        if done < size:
            _finish_write(descriptor, view, done, position, path)
        done = max(0, done - size)
        position += size


def _finish_write(
    descriptor: Descriptor, data: Buffer, done: int, position: int, path: Path
) -> None:
    """Finish a write of which the system took only `done` bytes."""
    view = memoryview(data).cast("B")
    size = view.nbytes
    while done < size:
        count = os.pwrite(descriptor.number, view[done:], position + done)
        if count == 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no error", path)
        done += count


def _write_behind() -> ModuleType:
    """Return the module, loaded when it is first asked for: few programs write that much."""
    from kafkalog.files import write_behind

    return write_behind


def _open_regular(path: Path, flags: int) -> int:
    """
    Return a descriptor of a regular file.

    Raises:
        OSError: the file cannot be opened; ELOOP, with a separate message, if it is a link and
            `flags` forbid to follow it; EISDIR or EINVAL if it is not a regular file.
    """
    # O_NONBLOCK has no effect on a regular file; without it, a FIFO with the name of a segment
    # would block the open for ever.
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            reason = "a symbolic link, which is not followed for writing"
            raise OSError(errno.ELOOP, reason, str(path)) from error
        # For a socket the system returns the same error as for a disk that was removed.
        if error.errno == errno.ENXIO and stat_bits.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat_bits.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat_bits.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _extent_of(facts: os.stat_result) -> FileExtent:
    size, mode = facts.st_size, facts.st_mode
    if stat_bits.S_ISREG(mode):
        # Not every system has st_blocks; without it holes are unknown.
        stored = getattr(facts, "st_blocks", size) * _STAT_BLOCK_BYTES
        return FileExtent(size, has_hole=stored < size)
    if stat_bits.S_ISLNK(mode):
        return FileExtent(size, refusal="a symbolic link, which is not followed")
    refusal = "a directory" if stat_bits.S_ISDIR(mode) else "not a regular file"
    return FileExtent(size, refusal=refusal)


class PosixFileSystem:
    """
    The disks of this machine.

    All instances are the same disk and compare equal.

    Args:
        clock: clock for the age of changes; the machine's clock if None.
    """

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PosixFileSystem)

    def __hash__(self) -> int:
        return hash(PosixFileSystem)

    def __repr__(self) -> str:
        return "PosixFileSystem()"

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        flags = os.O_RDONLY
        if create or write:
            # A link in a directory that others may write to must not lead this process, with its
            # rights, to a file outside.
            flags = os.O_RDWR | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT
        descriptor = _open_regular(path, flags)
        return PosixFileHandle(path, descriptor)

    def create_new(self, path: Path) -> FileHandle:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return PosixFileHandle(path, _open_regular(path, flags))

    def stat(self, path: Path) -> FileFacts | None:
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileFacts(
            size_bytes=facts.st_size,
            modified_ms=facts.st_mtime_ns // 1_000_000,
            is_directory=stat_bits.S_ISDIR(facts.st_mode),
            file_id=facts.st_ino,
        )

    def is_link(self, path: Path) -> bool:
        try:
            return stat_bits.S_ISLNK(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def change_mark(self, path: Path) -> tuple[int, ...] | None:
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        # A time in the future shows that clocks differ.
        modified_ns, changed_ns = facts.st_mtime_ns, facts.st_ctime_ns
        last_ns = modified_ns if modified_ns > changed_ns else changed_ns
        if self._clock.now_ms() - last_ns // 1_000_000 < _TICK_MS:
            return None
        return facts.st_dev, facts.st_ino, facts.st_size, modified_ns, changed_ns

    def list(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def extents(self, directory: Path, suffix: str) -> dict[str, FileExtent]:
        found = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(suffix):
                    try:
                        found[name] = _extent_of(entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue
        return found

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path) -> None:
        os.mkdir(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems have no such operation on directories: they decide when a
            # name is durable. Every other error is a failed sync.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)

    def open_filesystem_sync(self, directory: Path) -> FilesystemSync | None:
        # Imported on first use: few programs commit so many logs together.
        from kafkalog.files.filesystem_sync import open_filesystem_sync

        return open_filesystem_sync(directory)

    def open_notifications(self) -> FileNotifications | None:
        # Imported here: ctypes is slow to import, and few programs watch a directory.
        from kafkalog.files.inotify import open_inotify

        return open_inotify()

    def keeps_errors(self, directory: Path) -> bool:
        return keeps_errors(directory)

    def cache_id(self, directory: Path) -> bytes:
        return cache_id(directory)

    def is_stored(self, path: Path, position: int) -> bool:
        # Imported on first use: only a recovery calls it.
        from kafkalog.files.stored import is_stored

        return is_stored(path, position)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        moment_ns = modified_ms * 1_000_000
        os.utime(path, ns=(moment_ns, moment_ns), follow_symlinks=False)

    def lock(self, path: Path) -> FileLock | None:
        return _HELD_LOCKS.acquire(path)

    def lock_holder(self, path: Path) -> int | None:
        return _HELD_LOCKS.holder(path)


class _PosixFileLock:
    """A POSIX record lock over one whole file, owned by this process."""

    __slots__ = ("_process", "descriptor", "identity")

    def __init__(self, identity: tuple[int, int], descriptor: int) -> None:
        self.identity = identity
        self.descriptor = descriptor
        self._process = os.getpid()

    def release(self) -> None:
        """Release the lock. Idempotent; does nothing in a forked child, which has no lock."""
        if os.getpid() == self._process:
            _HELD_LOCKS.release(self)


class _HeldLocks:
    """
    The lock files that this process holds, by device and inode.

    Locks are `fcntl` record locks, as Java's `FileChannel.tryLock` takes them: a broker and
    kafkalog exclude each other. Such a lock belongs to the process, so a second request from the
    same process would succeed, and closing its descriptor would then free the first lock as well.
    This table refuses the second request before anything is opened.

    The file is never deleted on release. A broker does delete it, so a lock may be won on a name
    that no longer exists while a third process locks its successor; `acquire` therefore compares
    the name with the file that it locked, and starts over if they differ. An unlocked `.lock` has
    no meaning.

    Fork: the child has none of the locks. Its copies of the descriptors are closed at once, since
    closing one later would free a lock that the child may have acquired in the meantime.
    """

    # struct flock of the C library: type, whence, start, length, process id.
    _FLOCK = struct.Struct("hhqqi4x")

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self._held: dict[tuple[int, int], _PosixFileLock] = {}

    def acquire(self, path: Path) -> _PosixFileLock | None:
        with self.guard:
            while True:
                if self._identity(path) in self._held:
                    return None
                descriptor = _open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    os.close(descriptor)
                    if error.errno in (errno.EACCES, errno.EAGAIN):
                        return None
                    raise
                facts = os.fstat(descriptor)
                identity = (facts.st_dev, facts.st_ino)
                if self._identity(path) == identity:
                    lock = self._held[identity] = _PosixFileLock(identity, descriptor)
                    return lock
                os.close(descriptor)

    def holder(self, path: Path) -> int | None:
        with self.guard:
            if self._identity(path) in self._held:
                return os.getpid()
            if sys.platform != "linux":
                return None  # struct flock is laid out differently elsewhere
            try:
                descriptor = _open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                return None
            try:
                question = self._FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                answer = self._FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
            except OSError:
                return None
            finally:
                os.close(descriptor)
            return answer[4] if answer[0] != fcntl.F_UNLCK and answer[4] > 0 else None

    def release(self, lock: _PosixFileLock) -> None:
        with self.guard:
            # Compared as an object: a lock released twice may find its numbers in use again.
            if self._held.get(lock.identity) is lock:
                del self._held[lock.identity]
                os.close(lock.descriptor)

    def drop_in_child(self) -> None:
        """Start empty in a forked child."""
        inherited = list(self._held.values())
        self._held.clear()
        self.guard = threading.Lock()
        for lock in inherited:
            os.close(lock.descriptor)

    @staticmethod
    def _identity(path: Path) -> tuple[int, int] | None:
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            return None
        return (facts.st_dev, facts.st_ino)


_HELD_LOCKS = _HeldLocks()

os.register_at_fork(
    before=lambda: _HELD_LOCKS.guard.acquire(),
    after_in_parent=lambda: _HELD_LOCKS.guard.release(),
    after_in_child=_HELD_LOCKS.drop_in_child,
)
