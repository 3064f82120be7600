"""A bounded pool of open files and mappings, for reading segments that are no longer written.

A log may have more segments than a process may have descriptors. A `PooledFile` represents one
file; it opens and maps the file on demand, and the pool reclaims handles and mappings of the files
that were least recently used.

Invariants:
  * Reclaiming drops references only: a read in progress and a slice that was returned keep the
    descriptor and the mapping alive by their references, and both are released with the last of
    them. No file is closed or unmapped under a reader.
  * A file that is renamed through its `PooledFile` is found again after it was reclaimed.
  * At most `max_open_files` handles and `max_mappings` mappings are kept. More may exist for a
    moment: those that a reader still refers to, and one for each thread that is opening a file.
  * The pool refers to files weakly: with the last other reference to a `PooledFile` its descriptor
    and its mapping are released, and so is the space of a file that was unlinked.
  * A mapping that has lost pages is not given to later readers; they get a new one.
  * Only a `PooledFile` assigns its attributes. The pool calls its methods, under the pool's lock.

Order of reclaiming: the clock rule. Each use of an open file sets a mark; the hand goes round,
clears marks and reclaims the first file without a mark. A use therefore costs one attribute
store and no lock; an exact order would cost a lock for each read. Opening alone sets no mark, so
that one pass over all files of a log does not evict files that are read again and again.

Thread-safety: every method may be called from any thread, with or without the GIL. Reads of an open
or mapped file take no lock; opening, mapping, renaming and closing take the pool's lock
(`FilePool._lock`), which also guards the handle, the mapping and the name of each `PooledFile`.
After a fork the child continues to read with the descriptors that it inherited. The pool never
writes.
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
from kafkalog._engine.counters import PoolCounters
from kafkalog.files.filesystem import FileHandle, FileSystem

__all__ = ["FilePool", "PooledFile"]

_T = TypeVar("_T")

# A process gets 1,024 descriptors on most systems; half of them are left for everything else.
DEFAULT_MAX_OPEN_FILES: Final = 256
DEFAULT_MAX_MAPPINGS: Final = 256

# Weak references: the pool keeps no file alive.
_Reference: TypeAlias = "weakref.ref[PooledFile]"

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


class PooledFile:
    """
    One file of a pool; made by `FilePool.open`.

    Thread-safety: reads from any thread, without a lock. Attributes change under the pool's lock,
    but for the two marks of use, which a reader sets without it.
    """

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
        "reference",
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
        self.reference: Final = weakref.ref(self)

    def __repr__(self) -> str:
        return f"<PooledFile {self._path}{' closed' if self._closed else ''}>"

    @property
    def path(self) -> Path:
        """The file's current name."""
        return self._path

    @property
    def closed(self) -> bool:
        """True once the file or its pool was closed."""
        return self._closed

    @property
    def handle(self) -> FileHandle | None:
        """The handle that is kept, None if the file is not open."""
        return self._handle

    @property
    def mapping(self) -> memoryview | None:
        """The mapping that is kept, None if the file is not mapped."""
        return self._mapping

    def _use(self) -> FileHandle:
        handle = self._handle
        if handle is None:
            return self._pool._open_handle(self)
        self._pool.counters.hit_file()
        self._handle_used = True
        return handle

    def size(self) -> int:
        """Return the file's current size in bytes."""
        return self._use().size()

    def read(self, size: int, position: int) -> memoryview:
        """Return a copy of up to `size` bytes; fewer only at the end of the file."""
        return memoryview(self._use().pread(size, position))

    def read_into(self, target: Buffer, position: int) -> int:
        """Fill `target` up to the end of the file; return the number of bytes read."""
        return self._use().pread_into(target, position)

    def fileno(self) -> int:
        """Return a descriptor for `sendfile`. It is valid while the caller has a `lease`."""
        return self._use().fileno()

    def lease(self) -> FileHandle:
        """Return the open handle; it stays open for as long as the caller refers to it."""
        return self._use()

    def view(self, size: int) -> memoryview:
        """
        Return the first `size` bytes, mapped read-only; later bytes of the file are not in it.

        The file must be at least that long, and never be truncated below it.
        """
        mapping = self._mapping
        if mapping is None or len(mapping) < size:
            if size == 0 and not self._closed:
                return memoryview(b"")
            mapping = self._pool._map(self, size)
        else:
            self._pool.counters.hit_mapping()
            self._mapping_used = True
        return mapping if len(mapping) == size else mapping[:size]

    def whole(self) -> memoryview:
        """Return the whole file in its current size, mapped read-only; no handle is kept for it."""
        return self._pool._map(self, None)

    def rename(self, target: Path) -> None:
        """Rename the file on the disk, replacing `target`; later reads use the new name."""
        self._pool._rename(self, target)

    def record_rename(self, path: Path) -> None:
        """Record that the file has the name `path` now: its directory was renamed, for example."""
        self._pool._record_path(self, path)

    def drop_mapping(self, mapping: FileMapping) -> None:
        """Drop a mapping that has lost pages; the next reader gets a new one."""
        self._pool._drop(self, mapping)

    def close(self) -> None:
        """Release the file. Slices and reads in progress stay valid; later calls raise
        ValueError."""
        self._pool._remove(self)

    # The pool calls the following methods, under its lock.

    def keep_handle(self, handle: FileHandle) -> None:
        """Keep an open handle for later reads, without a mark of use."""
        self._handle_used = False
        self._handle = handle

    def keep_mapping(self, mapping: memoryview) -> None:
        """Keep a mapping for later views, without a mark of use."""
        self._mapping_used = False
        self._mapping = mapping
        # A simulated disk, or a disk that returns copies, has no mappings that can lose pages.
        if isinstance(mapping.obj, FileMapping):
            mapping.obj.origin.set_keeper(self.reference)

    def clear_handle_mark(self) -> bool:
        """Clear the handle's mark of use; return whether it was set."""
        was_used, self._handle_used = self._handle_used, False
        return was_used

    def clear_mapping_mark(self) -> bool:
        """Clear the mapping's mark of use; return whether it was set."""
        was_used, self._mapping_used = self._mapping_used, False
        return was_used

    def release_handle(self) -> None:
        """Drop the handle; the next read opens the file again."""
        self._handle = None

    def release_mapping(self) -> None:
        """Drop the mapping; the next view maps the file again."""
        self._mapping = None

    def notify_unmapped(self) -> None:
        """Call `on_unmap`: the pool has dropped the mapping."""
        if self._on_unmap is not None:
            self._on_unmap()

    def set_path(self, path: Path) -> None:
        """Use `path` the next time that the file is opened."""
        self._path = path

    def mark_closed(self) -> None:
        """Drop handle and mapping, and refuse every later use."""
        self._handle = self._mapping = None
        self._closed = True


class FilePool:
    """
    Owner of the descriptors and mappings of many files.

    Args:
        filesystem: the disk.
        max_open_files: largest number of handles kept (at least 1).
        max_mappings: largest number of mappings kept (at least 1).

    Attributes:
        counters: reads that found a file open or mapped, and reads that did not.

    Raises:
        ValueError: a limit is below 1.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        *,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        max_mappings: int = DEFAULT_MAX_MAPPINGS,
    ) -> None:
        if max_open_files < 1 or max_mappings < 1:
            raise ValueError(
                "max_open_files and max_mappings must be >= 1,"
                f" got {max_open_files} and {max_mappings}"
            )
        self._filesystem = filesystem
        self._max_open_files = max_open_files
        self._max_mappings = max_mappings
        self.counters = PoolCounters()
        self._lock = threading.Lock()
        self._opened: deque[_Reference] = deque()
        self._mapped: deque[_Reference] = deque()
        self._closed = False
        self._retired: weakref.WeakSet[_Sized] = weakref.WeakSet()
        _POOLS.add(self)

    @property
    def open_count(self) -> int:
        """Number of handles that the pool keeps."""
        files = (reference() for reference in tuple(self._opened))
        return sum(file is not None and file.handle is not None for file in files)

    @property
    def mapping_count(self) -> int:
        """Number of mappings that the pool keeps."""
        files = (reference() for reference in tuple(self._mapped))
        return sum(file is not None and file.mapping is not None for file in files)

    @property
    def retired_bytes(self) -> int:
        """Bytes of files that are deleted, or about to be, and that readers still refer to."""
        return sum(file.size_bytes for file in tuple(self._retired))

    def record_retired(self, file: _Sized) -> None:
        """Count a file that has left its log in `retired_bytes` for as long as it is referred
        to."""
        self._retired.add(file)

    def open(self, path: Path, *, on_unmap: Callable[[], object] | None = None) -> PooledFile:
        """
        Return a pooled file. It is opened by its first read.

        `on_unmap` is called when the pool reclaims the mapping, so that objects built on the
        mapping can be released, too; it must neither wait nor call the pool.
        """
        if self._closed:
            raise ValueError("the file pool is closed")
        return PooledFile(self, path, on_unmap)

    def close(self) -> None:
        """Release everything; every pooled file that is still open is closed. Idempotent."""
        with self._lock:
            self._closed = True
            for ring in (self._opened, self._mapped):
                for reference in ring:
                    file = reference()
                    if file is not None:
                        file.mark_closed()
                ring.clear()

    def replace_lock(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have had it."""
        self._lock = threading.Lock()

    # PooledFile calls the following methods.

    def _open_handle(self, file: PooledFile) -> FileHandle:
        """Return the handle of a file, and open the file if it has none."""
        with self._lock:
            self._ensure_open(file)
            handle = file.handle
            if handle is not None:
                return handle
            self.counters.miss_file()
            self._reclaim_handles(self._max_open_files - 1)
            handle = self._with_descriptors(partial(self._filesystem.open, file.path))
            file.keep_handle(handle)
            self._opened.append(file.reference)
            return handle

    def _map(self, file: PooledFile, size: int | None) -> memoryview:
        """Map the first `size` bytes of a file; all of them if `size` is None."""
        with self._lock:
            self._ensure_open(file)
            kept = file.handle
            # A mapped file is seldom read by a handle: a handle for the mapping alone is not kept.
            handle = kept or self._with_descriptors(partial(self._filesystem.open, file.path))
            try:
                size = handle.size() if size is None else size
                mapping = file.mapping
                if size == 0 or (mapping is not None and len(mapping) >= size):
                    # Another thread may have mapped the file first.
                    return memoryview(b"") if mapping is None else mapping[:size]
                self.counters.miss_mapping()
                if mapping is None:
                    self._reclaim_mappings(self._max_mappings - 1)
                larger = self._with_descriptors(partial(handle.map, size))
            finally:
                if kept is None:
                    handle.close()
            if file.mapping is None:
                self._mapped.append(file.reference)
            file.keep_mapping(larger)
            return larger

    def _with_descriptors(self, action: Callable[[], _T]) -> _T:
        """Call what needs a descriptor; if the process has none left, reclaim half of the pool."""
        try:
            return action()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not (self._opened or self._mapped):
                raise
            self._reclaim_mappings(len(self._mapped) // 2)
            self._reclaim_handles(len(self._opened) // 2)
            return action()

    def _rename(self, file: PooledFile, target: Path) -> None:
        with self._lock:
            self._ensure_open(file)
            self._filesystem.rename(file.path, target)
            file.set_path(target)

    def _record_path(self, file: PooledFile, path: Path) -> None:
        with self._lock:
            file.set_path(path)

    def _remove(self, file: PooledFile) -> None:
        with self._lock:
            if file.handle is not None:
                self._opened.remove(file.reference)
            if file.mapping is not None:
                self._mapped.remove(file.reference)
            file.mark_closed()

    def _drop(self, file: PooledFile, mapping: FileMapping) -> None:
        with self._lock:
            current = file.mapping
            if current is None or current.obj is not mapping:
                return
            self._mapped.remove(file.reference)
            file.release_mapping()
        file.notify_unmapped()

    def _ensure_open(self, file: PooledFile) -> None:
        if file.closed or self._closed:
            file.mark_closed()
            raise ValueError(f"{file.path}: the file is closed")

    # Each file gets one second chance in a call, so that busy readers cannot keep the hand going.

    def _reclaim_handles(self, count: int) -> None:
        """Drop handles until at most `count` are left. The caller has the lock."""
        ring = self._opened
        _drop_collected(ring, count)
        chances = len(ring)
        while len(ring) > count:
            reference = ring.popleft()
            file = reference()
            if file is None:
                continue
            if chances and file.clear_handle_mark():
                chances -= 1
                ring.append(reference)
            else:
                file.release_handle()

    def _reclaim_mappings(self, count: int) -> None:
        """Drop mappings until at most `count` are left. The caller has the lock."""
        ring = self._mapped
        _drop_collected(ring, count)
        chances = len(ring)
        while len(ring) > count:
            reference = ring.popleft()
            file = reference()
            if file is None:
                continue
            if chances and file.clear_mapping_mark():
                chances -= 1
                ring.append(reference)
            else:
                file.release_mapping()
                file.notify_unmapped()


def _drop_collected(ring: deque[_Reference], count: int) -> None:
    """If a ring has more than `count` files, remove those that were garbage-collected."""
    if len(ring) > count:
        present = [reference for reference in ring if reference() is not None]
        ring.clear()
        ring.extend(present)


# A process may be forked while another thread of the parent has a pool's lock.
_POOLS: weakref.WeakSet[FilePool] = weakref.WeakSet()


def _replace_locks() -> None:
    for pool in list(_POOLS):
        pool.replace_lock()


os.register_at_fork(after_in_child=_replace_locks)
