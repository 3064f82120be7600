"""The disk seam: every effect on a disk goes through these two protocols.

Errors pass as OSError; `kafkalog.files.errors.storage_errors` turns them into the typed errors of
`kafkalog.errors` at the rim of `log`, `state` and `manager`. The POSIX body is in `posix.py`, a
simulated disk that crashes, fails and runs full in `tests/support/simulated_disk.py`.

What callers rely on:
  * `pwrite` writes everything or raises; after an error any part may have been written.
  * Written bytes, lengths and names survive a power cut only after `sync` of the file
    (bytes, length) and `sync_directory` of its directory (creation, rename, unlink).
  * A mapping is read-only. A file that may be mapped is never truncated below what is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

__all__ = ["FileExtent", "FileFacts", "FileHandle", "FileLock", "FileSystem"]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What `stat` says: size in bytes, last modification in ms since 1970, the kind, and a number
    that tells this file from another that had or will have its name (the inode)."""

    size_bytes: int
    modified_ms: int
    is_directory: bool
    file_id: int = 0


class FileExtent(NamedTuple):
    """
    What a listing tells of one entry.

    Attributes:
        size_bytes: its size.
        has_hole: whether it may have holes: it takes less room on the disk than it is long.
        refusal: why it is no regular file, empty where it is one.
    """

    size_bytes: int
    has_hole: bool = False
    refusal: str = ""


class FileHandle(Protocol):
    """One open file. Positional calls only, so readers and a writer may share it.

    After `close` every call but `close` raises ValueError; a call that is running in another
    thread finishes first. A handle that is forgotten closes itself."""

    @property
    def path(self) -> Path: ...
    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int:
        """Return the descriptor, for `sendfile`; raises OSError where there is none."""
        ...

    def size(self) -> int: ...
    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def pread_into(self, target: Buffer, position: int) -> int:
        """Fill `target` as far as the file goes; return the number of bytes read."""
        ...

    def next_data(self, position: int) -> int | None:
        """Return the first position from there on that may have other bytes than zeros, None where
        there is none: what lies between is a hole. A system that knows no holes says `position`."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...
    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        """Write the parts one behind the other, in as few system calls as the system allows."""
        ...

    def truncate(self, size: int) -> None:
        """Set the length; longer leaves a hole that reads as zeros."""
        ...

    def sync(self) -> None:
        """Put bytes and length on the disk (`fdatasync`)."""
        ...

    def begin_write_back(self, position: int, size: int) -> None:
        """Have the system begin to put written bytes on the disk. Promises nothing: `sync` does."""
        ...

    def drop_cache(self, position: int, size: int) -> None:
        """Wait for the write-back of written bytes, and let the system forget them: nobody reads
        them soon. Promises nothing; an error that it raises the next `sync` need not tell."""
        ...

    def map(self, size: int) -> memoryview:
        """Map the first `size` bytes read-only; at least 1, else ValueError. ShortFileError where
        the file has fewer. The mapping goes when the last view of it does, also after `close` and
        unlink."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    """An exclusive lock between processes, held until `release`."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """The disk. Paths are absolute or relative to the process; no method follows a glob."""

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a regular file; `create` (which implies write) makes it if absent, never truncates.
        IsADirectoryError for a directory. No symbolic link is followed for writing."""
        ...

    def create_new(self, path: Path) -> FileHandle:
        """Create an empty file and open it for writing. Whatever has the name is removed first,
        and not written to: neither what a link leads to nor what others have mapped. Crash points:
        between the removal and the creation nothing has the name. IsADirectoryError for a
        directory, FileExistsError where somebody else makes the name at the same time."""
        ...

    def stat(self, path: Path) -> FileFacts | None:
        """Return the facts, or None where nothing has that name."""
        ...

    def is_link(self, path: Path) -> bool:
        """Return whether the name itself is that of a symbolic link."""
        ...

    def change_mark(self, path: Path) -> tuple[int, ...] | None:
        """Return what differs once the file, or the names in the directory, were changed; None
        where that cannot be told, as of a change so recent that the next may not show."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def extents(self, directory: Path, suffix: str) -> dict[str, FileExtent]:
        """Return the entries of a directory whose names end so, by name; no link is followed."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing `target` atomically."""
        ...

    def unlink(self, path: Path) -> None: ...
    def make_directory(self, path: Path) -> None:
        """Create one directory; FileExistsError where there is one."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, directory: Path) -> None: ...
    def keeps_errors(self, directory: Path) -> bool:
        """Say whether a write-back that failed, and was told to nobody, is told by the next sync
        of the file, whoever opens it, for as long as reads show what the disk did not get."""
        ...

    def cache_id(self, directory: Path) -> bytes:
        """Return what names the cache that holds written bytes until the disk has them: another
        after each boot and each mount, empty where that cannot be told. As long as it is the same
        nothing that was written is lost, whatever became of the process."""
        ...

    def is_stored(self, path: Path, position: int) -> bool:
        """Return whether the disk itself has what reads of a file show, from `position` to its
        end; False where they differ, and where the system cannot read past its cache. The file
        was synced after its last write."""
        ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def lock(self, path: Path) -> FileLock | None:
        """Take the exclusive lock on `path` (created if absent); None where another holds it,
        in this process or another. Use it through `kafkalog.files.locking`."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the id of the process that holds the lock on `path`, None where not known."""
        ...
