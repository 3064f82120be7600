"""A bounded pool of open files and mappings, for reading segments that are no longer written.

A log may have more segments than a process may have descriptors. A `PooledFile` stands for one
file; it opens and maps it when asked, and the pool takes that back from the files that were not
used for the longest time.

Invariants:
  * Taking back means forgetting: a read under way and a slice handed out keep the descriptor and
    the mapping alive by their references, and both go with the last of them. Nothing is ever
    closed or unmapped under a reader.
  * A file that is renamed through its `PooledFile` is found again after it was taken back.
  * At most `max_open_files` handles and `max_mappings` mappings are remembered. More may live for
    a moment: those that a reader still holds, and one for each thread that is opening one.
  * The pool keeps nothing alive that nobody else refers to: with the last reference to a
    `PooledFile` its descriptor and its mapping go, and the space of a file that was unlinked.
  * A mapping that has lost pages is not given to later readers, who get another.

Order of taking back: the clock rule. Each use of what is open sets a mark; the hand goes round,
clears marks and takes the first file it finds without one. A use therefore costs one attribute
store and no lock; an exact order would cost a lock for each read. Opening alone sets no mark, so
that one pass over all files of a log does not drive out those that are read again and again.

Thread-safety: everything may be called from any thread, with or without the GIL. Reads of what is
open or mapped take no lock; opening, mapping, renaming and closing take the pool's. After a fork
the child reads on with the descriptors it inherited. The pool never writes.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from typing_extensions import Buffer

from kafkalog._core.mapping import FileMapping
from kafkalog.files.filesystem import FileHandle, FileSystem

__all__ = ["FilePool", "PooledFile"]

_T = TypeVar("_T")

# A process gets 1,024 descriptors on most systems; half of them is for everything else.
DEFAULT_MAX_OPEN_FILES: Final = 256
DEFAULT_MAX_MAPPINGS: Final = 256

# Files are held weakly: what nobody else refers to is not kept from going.
_Reference: TypeAlias = "weakref.ref[PooledFile]"

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


class PooledFile:
    """One file of a pool; made by `FilePool.open`."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_handle",
        "_handle_used",
        "_mapping",
        "_mapping_used",
        "_on_unmap",
        "_path",
        "_pool",
        "_reference",
    )

    def __init__(
        self, pool: FilePool, path: Path, on_unmap: Callable[[], object] | None = None
    ) -> None:
        self._pool = pool
        self._path = path
        self._on_unmap = on_unmap
        self._handle: FileHandle | None = None
        self._mapping: memoryview | None = None
        self._handle_used = False
        self._mapping_used = False
        self._closed = False
        self._reference = weakref.ref(self)

    def __repr__(self) -> str:
        return f"<PooledFile {self._path}{' closed' if self._closed else ''}>"

    @property
    def path(self) -> Path:
        """The file's present name."""
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    def _use(self) -> FileHandle:
        handle = self._handle
        if handle is None:
            return self._pool._open_handle(self)
        self._handle_used = True
        return handle

    def size(self) -> int:
        """Return the file's present size in bytes."""
        return self._use().size()

    def read(self, size: int, position: int) -> memoryview:
        """Return a copy of up to `size` bytes; fewer only at the end of the file."""
        return memoryview(self._use().pread(size, position))

    def read_into(self, target: Buffer, position: int) -> int:
        """Fill `target` as far as the file goes; return the number of bytes read."""
        return self._use().pread_into(target, position)

    def fileno(self) -> int:
        """Return a descriptor for `sendfile`. It is valid while the caller holds a `lease`."""
        return self._use().fileno()

    def lease(self) -> FileHandle:
        """Return the open handle; it stays open for as long as the caller refers to it."""
        return self._use()

    def view(self, size: int) -> memoryview:
        """
        Return the first `size` bytes, mapped read-only; later bytes of the file are not in it.

        The file must be at least that long, and never be cut below it.
        """
        mapping = self._mapping
        if mapping is None or len(mapping) < size:
            if size == 0 and not self._closed:
                return memoryview(b"")
            mapping = self._pool._map(self, size)
        else:
            self._mapping_used = True
        return mapping if len(mapping) == size else mapping[:size]

    def whole(self) -> memoryview:
        """Return all of the file as it is now, mapped read-only; no handle is kept for that."""
        return self._pool._map(self, None)

    def rename(self, target: Path) -> None:
        """Rename the file on the disk, replacing `target`; reading goes on under the new name."""
        self._pool._rename(self, target)

    def record_rename(self, path: Path) -> None:
        """Take note that the file is called `path` now: its directory was renamed, for example."""
        self._pool._record_path(self, path)

    def drop_mapping(self, mapping: FileMapping) -> None:
        """Forget a mapping that has lost pages; the next reader gets another."""
        self._pool._drop(self, mapping)

    def close(self) -> None:
        """Forget the file. Slices and reads under way stay good; later calls raise ValueError."""
        self._pool._remove(self)


class FilePool:
    """
    Keeper of the descriptors and mappings of many files.

    Args:
        filesystem: the disk.
        max_open_files: handles remembered at most (1 and more).
        max_mappings: mappings remembered at most (1 and more).
    """

    def __init__(
        self,
        filesystem: FileSystem,
        *,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        max_mappings: int = DEFAULT_MAX_MAPPINGS,
    ) -> None:
        if max_open_files < 1 or max_mappings < 1:
            raise ValueError("a pool keeps at least one open file and one mapping")
        self._filesystem = filesystem
        self._max_open_files = max_open_files
        self._max_mappings = max_mappings
        self._guard = threading.Lock()
        self._opened: deque[_Reference] = deque()
        self._mapped: deque[_Reference] = deque()
        self._closed = False
        self._retired: weakref.WeakSet[_Sized] = weakref.WeakSet()
        _POOLS.add(self)

    @property
    def open_count(self) -> int:
        """How many handles the pool remembers."""
        files = (reference() for reference in tuple(self._opened))
        return sum(file is not None and file._handle is not None for file in files)

    @property
    def mapping_count(self) -> int:
        """How many mappings the pool remembers."""
        files = (reference() for reference in tuple(self._mapped))
        return sum(file is not None and file._mapping is not None for file in files)

    @property
    def retired_bytes(self) -> int:
        """Bytes of files that are deleted, or about to be, and that readers hold yet."""
        return sum(file.size_bytes for file in tuple(self._retired))

    def record_retired(self, file: _Sized) -> None:
        """Count a file, which has left its log, among the `retired_bytes` while somebody has it."""
        self._retired.add(file)

    def open(self, path: Path, *, on_unmap: Callable[[], object] | None = None) -> PooledFile:
        """
        Return a pooled file. Nothing is opened before it is read.

        `on_unmap` is called when the pool takes the mapping back, so that whoever built something
        on it can let that go too; it must neither wait nor call the pool.
        """
        if self._closed:
            raise ValueError("the file pool is closed")
        return PooledFile(self, path, on_unmap)

    def close(self) -> None:
        """Forget everything; every pooled file that is still open is closed. Idempotent."""
        with self._guard:
            self._closed = True
            for ring in (self._opened, self._mapped):
                for reference in ring:
                    file = reference()
                    if file is not None:
                        file._handle = file._mapping = None
                        file._closed = True
                ring.clear()

    # What follows is called by PooledFile.

    def _open_handle(self, file: PooledFile) -> FileHandle:
        with self._guard:
            return self._open_handle_locked(file)

    def _open_handle_locked(self, file: PooledFile) -> FileHandle:
        """Return the handle of a file, opening it where it is not open. The guard is held."""
        self._ensure_open(file)
        handle = file._handle
        if handle is not None:
            return handle
        self._reclaim_handles(self._max_open_files - 1)
        handle = self._with_descriptors(partial(self._filesystem.open, file._path))
        file._handle_used = False
        file._handle = handle
        self._opened.append(file._reference)
        return handle

    def _map(self, file: PooledFile, size: int | None) -> memoryview:
        """Map the first `size` bytes of a file; None for all that there are."""
        with self._guard:
            self._ensure_open(file)
            kept = file._handle
            # What is mapped is seldom read otherwise: a handle for the mapping alone is not kept.
            handle = kept or self._with_descriptors(partial(self._filesystem.open, file._path))
            try:
                size = handle.size() if size is None else size
                mapping = file._mapping
                if size == 0 or (mapping is not None and len(mapping) >= size):
                    # Perhaps another thread was faster.
                    return memoryview(b"") if mapping is None else mapping[:size]
                if mapping is None:
                    self._reclaim_mappings(self._max_mappings - 1)
                larger = self._with_descriptors(partial(handle.map, size))
            finally:
                if kept is None:
                    handle.close()
            if file._mapping is None:
                self._mapped.append(file._reference)
            file._mapping_used = False
            file._mapping = larger
            # A disk that is simulated, or gives copies, has no mappings that can be lost.
            if isinstance(larger.obj, FileMapping):
                larger.obj.origin.keeper = file._reference
            return larger

    def _with_descriptors(self, action: Callable[[], _T]) -> _T:
        """Do what takes a descriptor; where the process has none left, give up half of ours."""
        try:
            return action()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not (self._opened or self._mapped):
                raise
            self._reclaim_mappings(len(self._mapped) // 2)
            self._reclaim_handles(len(self._opened) // 2)
            return action()

    def _rename(self, file: PooledFile, target: Path) -> None:
        with self._guard:
            self._ensure_open(file)
            self._filesystem.rename(file._path, target)
            file._path = target

    def _record_path(self, file: PooledFile, path: Path) -> None:
        with self._guard:
            file._path = path

    def _remove(self, file: PooledFile) -> None:
        with self._guard:
            if file._handle is not None:
                self._opened.remove(file._reference)
            if file._mapping is not None:
                self._mapped.remove(file._reference)
            file._handle = file._mapping = None
            file._closed = True

    def _drop(self, file: PooledFile, mapping: FileMapping) -> None:
        with self._guard:
            known = file._mapping
            if known is None or known.obj is not mapping:
                return
            self._mapped.remove(file._reference)
            file._mapping = None
        if file._on_unmap is not None:
            file._on_unmap()

    def _ensure_open(self, file: PooledFile) -> None:
        if file._closed or self._closed:
            file._closed = True
            raise ValueError(f"{file._path}: the file is closed")

    # Each file gets one more chance in a call, so that busy readers cannot keep the hand going.

    def _reclaim_handles(self, count: int) -> None:
        """Forget handles until at most `count` are left. The guard is held."""
        ring = self._opened
        _drop_collected(ring, count)
        chances = len(ring)
        while len(ring) > count:
            reference = ring.popleft()
            file = reference()
            if file is None:
                continue
            if file._handle_used and chances:
                chances -= 1
                file._handle_used = False
                ring.append(reference)
            else:
                file._handle = None

    def _reclaim_mappings(self, count: int) -> None:
        """Forget mappings until at most `count` are left. The guard is held."""
        ring = self._mapped
        _drop_collected(ring, count)
        chances = len(ring)
        while len(ring) > count:
            reference = ring.popleft()
            file = reference()
            if file is None:
                continue
            if file._mapping_used and chances:
                chances -= 1
                file._mapping_used = False
                ring.append(reference)
            else:
                file._mapping = None
                if file._on_unmap is not None:
                    file._on_unmap()


def _drop_collected(ring: deque[_Reference], count: int) -> None:
    """Where a ring is over `count`, leave out files that nobody refers to any more."""
    if len(ring) > count:
        present = [reference for reference in ring if reference() is not None]
        ring.clear()
        ring.extend(present)


# A child of fork may have been cut from the parent while another thread held a guard.
_POOLS: weakref.WeakSet[FilePool] = weakref.WeakSet()


def _replace_guards() -> None:
    for pool in list(_POOLS):
        pool._guard = threading.Lock()


os.register_at_fork(after_in_child=_replace_guards)
