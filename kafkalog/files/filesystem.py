"""Interface of the disk: every effect on a disk goes through these protocols.

Errors pass as OSError; `log`, `state` and `manager` convert them into the typed errors of
`kafkalog.errors` by `kafkalog.files.errors.storage_errors`. `posix.py` implements the protocols,
and `tests/support/simulated_disk.py` simulates a disk that crashes, fails and runs full.

Contract:
  * `pwrite` writes everything or raises; after an error any part may have been written.
  * Written bytes, lengths and names survive a power cut only after `sync` of the file
    (bytes, length) and `sync_directory` of its directory (creation, rename, unlink).
  * A mapping is read-only. A file that may be mapped is never truncated below the mapped size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

__all__ = [
    "FileEvent",
    "FileExtent",
    "FileFacts",
    "FileHandle",
    "FileLock",
    "FileNotifications",
    "FileSystem",
    "FilesystemSync",
]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Result of `stat`: size in bytes, last modification in ms since 1970, the kind, and a number
    that differs from that of another file with the same name, earlier or later (the inode)."""

    size_bytes: int
    modified_ms: int
    is_directory: bool
    file_id: int = 0


class FileExtent(NamedTuple):
    """
    One entry of a directory listing.

    Attributes:
        size_bytes: size of the file.
        has_hole: True if the file may have holes: its blocks have fewer bytes than its size.
        refusal: the reason why it is not a regular file; empty for a regular file.
    """

    size_bytes: int
    has_hole: bool = False
    refusal: str = ""


class FileHandle(Protocol):
    """
    One open file. Positional calls only, so readers and a writer may share it.

    After `close` every call but `close` raises ValueError; a call that is running in another
    thread finishes first. A handle without references closes itself.
    """

    @property
    def path(self) -> Path: ...
    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int:
        """Return the descriptor, for `sendfile`; raises OSError if there is none."""
        ...

    def size(self) -> int: ...
    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def pread_into(self, target: Buffer, position: int) -> int:
        """Fill `target` up to the end of the file; return the number of bytes read."""
        ...

    def next_data(self, position: int) -> int | None:
        """Return the first position from `position` on that may have bytes other than zero, or
        None; the bytes before it are a hole. A system without holes returns `position`."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...
    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        """Write the parts in sequence, in as few system calls as the system allows."""
        ...

    def truncate(self, size: int) -> None:
        """Set the length; longer leaves a hole that reads as zeros."""
        ...

    def sync(self) -> None:
        """Make bytes and length durable (`fdatasync`)."""
        ...

    def begin_write_back(self, position: int, size: int) -> None:
        """Start the write-back of written bytes. Only `sync` makes them durable."""
        ...

    def drop_cache(self, position: int, size: int) -> None:
        """Wait for the write-back of written bytes, and drop them from the page cache. This makes
        nothing durable. An error is raised here, and the next `sync` need not report it again."""
        ...

    def map(self, size: int) -> memoryview:
        """Map the first `size` bytes read-only; at least 1, else ValueError. ShortFileError if the
        file has fewer. The mapping exists as long as a view of it, also after `close` and
        unlink."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    """An exclusive lock between processes, held until `release`."""

    def release(self) -> None: ...


class FileEvent(NamedTuple):
    """
    Change of a file in a watched directory.

    Attributes:
        watch: number of the watch; -1 if events were lost, in any directory.
        name: name of the file; empty if the directory was removed, which ends the watch.
        is_written: True if bytes or the length changed, and not a name.
        is_removed: True if the name was removed, or renamed to another.
    """

    watch: int
    name: str
    is_written: bool = False
    is_removed: bool = False


class FileNotifications(Protocol):
    """Events of watched directories: changes by this process and by others of this machine."""

    def fileno(self) -> int:
        """Return a descriptor that is readable if there are events."""
        ...

    def add(self, directory: Path, *, with_writes: bool) -> int:
        """Watch the names in a directory, and with `with_writes` also the bytes of its files, also
        after it is renamed; return the number of the watch. OSError if the directory does not
        exist, or the system has too many watches."""
        ...

    def remove(self, watch: int) -> None:
        """End a watch. Idempotent."""
        ...

    def read(self) -> list[FileEvent]:
        """Return the events since the last call, in order; does not wait."""
        ...

    def close(self) -> None: ...


class FilesystemSync(Protocol):
    """
    Syncs of a whole mounted file system: all bytes, lengths and names, of every program.

    It is to be made before the first write that it has to cover, and kept: `sync` raises the
    errors of all writes since `open_filesystem_sync`, and each error once.
    """

    def covers(self, directory: Path) -> bool:
        """Return whether a directory is in this file system; OSError if it cannot be read."""
        ...

    def sync(self) -> None:
        """Make everything durable that was written, created, renamed or removed before the call.
        OSError if any of it may be missing on the disk; the error does not name a file, and may
        concern a file that was written before the last `sync`."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The disk. Paths are absolute or relative to the process; no method follows a glob."""

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a regular file, never truncate it; `create` (which implies write) creates it if
        absent. IsADirectoryError for a directory. No symbolic link is followed for writing."""
        ...

    def create_new(self, path: Path) -> FileHandle:
        """Create an empty file and open it for writing. An entry of that name is removed first and
        not written to: neither the target of a link nor a file that is mapped. Crash points:
        between the removal and the creation the name does not exist. IsADirectoryError for a
        directory, FileExistsError if another process creates the name at the same time."""
        ...

    def stat(self, path: Path) -> FileFacts | None:
        """Return the facts, or None if the name does not exist."""
        ...

    def is_link(self, path: Path) -> bool:
        """Return whether the name itself is a symbolic link."""
        ...

    def change_mark(self, path: Path) -> tuple[int, ...] | None:
        """Return a value that changes with the file, or with the names in the directory; None if
        the last change is so recent that the next one may give the same value."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def extents(self, directory: Path, suffix: str) -> dict[str, FileExtent]:
        """Return the entries of a directory whose names end with `suffix`, by name; links are not
        followed."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing `target` atomically."""
        ...

    def unlink(self, path: Path) -> None: ...
    def make_directory(self, path: Path) -> None:
        """Create one directory; FileExistsError if it exists."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, directory: Path) -> None: ...
    def open_filesystem_sync(self, directory: Path) -> FilesystemSync | None:
        """Return syncs of the file system that has a directory; None if the system has none that
        reports every failed write."""
        ...

    def open_notifications(self) -> FileNotifications | None:
        """Return an object that watches directories; None if the system has none. OSError if the
        process or the user has too many of them."""
        ...

    def keeps_errors(self, directory: Path) -> bool:
        """Return whether the next sync on any descriptor of a file reports a failed write-back that
        no process has seen, for as long as reads return bytes that the disk lacks."""
        ...

    def cache_id(self, directory: Path) -> bytes:
        """Return the id of the cache that has written bytes until the disk has them. It changes
        with each boot and each mount, and is empty if unknown. As long as the id is the same, no
        written byte is lost, even if the process was killed."""
        ...

    def is_stored(self, path: Path, position: int) -> bool:
        """Return whether the disk itself has the bytes that reads of a file return, from `position`
        to its end; False if they differ, or if the system cannot read past its cache. The file
        was synced after its last write."""
        ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def lock(self, path: Path) -> FileLock | None:
        """Acquire the exclusive lock on `path` (created if absent); None if it is held already, by
        this process or another. Use it through `kafkalog.files.locking`."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the id of the process that holds the lock on `path`, None if unknown."""
        ...
