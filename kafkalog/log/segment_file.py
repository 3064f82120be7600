"""The bytes of one `.log` file: appended at the end, read anywhere, never changed between.

Reads are slices of a mapping of the file where it covers them, else `pread`. A log file only
grows while anybody may have it mapped: truncation makes a new file (see `truncation.py`), and only
bytes that were never published (a failed append, a torn tail at open) are cut in place.

On a disk on which nothing is mapped (`kafkalog.files.unmapped_filesystem`) each read returns a new
copy; a walk over a whole file reads it window by window. Bytes above the end of a file that was cut
during a read are returned as zeros.

Zeros written ahead of the end are not bytes of the log. Crash points: before, within and after that
write; its result is a tail of zeros, equal to a hole, which the next start cuts.

Thread-safety: `read` from any thread, without a lock; the rest under the log's lock. A descriptor
that readers may be using is not closed but dropped; it closes when the last reader releases it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafkalog._engine.append_file import AppendFile
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.pool import FilePool, PooledFile
from kafkalog.files.unmapped_filesystem import maps_files
from kafkalog.files.zeros import (
    HOLE_BYTES,
    Holes,
    end_of_data,
    find_holes,
    is_zero,
    is_zero_between,
)
from kafkalog.log.byte_source import ByteSource, MappedSource, PreadSource
from kafkalog.log.lazy_attribute import LazyAttribute

__all__ = ["SegmentFile"]

logger = logging.getLogger(__name__)

# A growing file is mapped again if this much is after the mapping; `pread` reads less than that.
REMAP_BYTES = 4 * 1024 * 1024

# Smaller files are gone through as fast as the system is asked about holes.
HOLE_BYTES_MIN: Final = 1024 * 1024

_ALL: Final = 2**63 - 1
_ZEROS: Final = bytes(256 * 1024)


class SegmentFile:
    """
    One `.log` file.

    Args:
        pool: opens and maps it.
        filesystem: the disk.
        path: the file, or directory and name, from which the path is made at its first use.
        size_bytes: bytes that belong to the log; later bytes of the file are ignored.
        handle: open descriptor where the file takes appends, or is followed read-only.

    Attributes:
        excluded_bytes: bytes after them that `exclude_hole` has excluded.
        is_closed: whether it was closed.
        maps: whether `whole` is a mapping, and not a copy of all the bytes.
        is_trimmed: whether a preallocated tail was cut off, and no sync has covered that.
        on_error: called with each error of the disk that is not raised.
    """

    path: LazyAttribute[Path] = LazyAttribute(lambda file: _path_of(file._given_path))
    _pooled: LazyAttribute[PooledFile] = LazyAttribute(lambda file: file._open_pooled())

    def __init__(
        self,
        pool: FilePool,
        filesystem: FileSystem,
        path: Path | tuple[Path, str],
        size_bytes: int,
        handle: FileHandle | None = None,
    ) -> None:
        self._given_path = path
        # Target of appends; it refers to nothing that refers to this object.
        self.end = AppendFile(size_bytes)
        if handle is not None:
            self._attach(handle)
        self._pool = pool
        self.is_closed = False
        self.excluded_bytes = 0
        self._filesystem = filesystem
        self._handle: FileHandle | None = handle
        self.on_error: Callable[[OSError], object] | None = None
        self._mapped_bytes = 0
        self._pinned: memoryview | None = None
        self.maps = maps_files(filesystem)
        self._kept: FileHandle | None = None
        self.is_trimmed = False

    def _attach(self, handle: FileHandle) -> None:
        """Let the file take appends; a disk of tests has no descriptors."""
        self.end.attach(handle.pwrite, getattr(handle, "descriptor", None))

    @property
    def size_bytes(self) -> int:
        """Bytes that belong to the log."""
        return self.end.size_bytes

    def set_size(self, size_bytes: int) -> None:
        """Set how many bytes belong to the log."""
        self.end.set_size(size_bytes)

    def set_on_error(self, on_error: Callable[[OSError], object]) -> None:
        """Set the function that is called with each error of the disk that is not raised."""
        self.on_error = on_error

    def _open_pooled(self) -> PooledFile:
        if self.is_closed:
            raise ValueError(f"{self.path} is closed")
        return self._pool.open(self.path)

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes from `position`, fewer only where the file ends."""
        end = position + size
        if not self.maps:
            return self._copy(position, min(end, self.size_bytes) - position)
        # Once: another thread that maps fewer bytes may lower it at any moment.
        mapped_bytes = self._mapped_bytes
        if end <= mapped_bytes:
            return self._map(mapped_bytes)[position:end]
        handle = self._handle
        if handle is None or self.size_bytes - mapped_bytes >= REMAP_BYTES:
            mapped = self.whole()
            if handle is None or end <= len(mapped):
                return mapped[position:end]
        return memoryview(handle.pread(size, position))

    def source(self, end: int) -> ByteSource:
        """Return the bytes before `end`: the mapping, or windows that are copied one by one."""
        return MappedSource(self.whole()[:end]) if self.maps else _CopiedSource(self._copy, end)

    def whole(self) -> memoryview:
        """Return all bytes of the log in this file, mapped where that may be."""
        size = self.size_bytes
        if not self.maps:
            return self._copy(0, size)
        mapped = self._map(size)
        self._mapped_bytes = size
        return mapped

    def lease(self) -> FileHandle | None:
        """
        Return an open handle on this very file, good for as long as the caller refers to it.

        None where the file has lost its name: what the name opens may be another, and the bytes of
        this one are mapped.

        Raises:
            OSError, ValueError: it cannot be opened, or was closed.
        """
        if not self._is_pinned:
            try:
                handle = self._pooled.lease()
            except (OSError, ValueError):
                if not self._is_pinned:
                    raise
            else:
                # Pinning comes before the name goes: not pinned yet, the handle is this file's.
                if not self._is_pinned:
                    return handle
        return self._kept

    @property
    def _is_pinned(self) -> bool:
        return self._pinned is not None or self._kept is not None

    def exclude_hole(self) -> None:
        """Take a hole at the end of the file, but for its first bytes, out of the account."""
        size = self.size_bytes
        if size <= HOLE_BYTES_MIN:
            return
        handle = self._filesystem.open(self.path)
        try:
            self.end.set_size(end_of_data(handle, size))
        finally:
            handle.close()
        self.excluded_bytes = size - self.size_bytes

    def include_excluded(self) -> None:
        """Forget what `exclude_hole` has excluded: it was cut, or does not matter."""
        self.excluded_bytes = 0

    def holes(self) -> Holes:
        """
        Return large holes of the file, for a search that leaves them out; none where none is known.

        Raises:
            OSError: the system refuses.
        """
        size = self.size_bytes
        handle = None if size < HOLE_BYTES else self._handle or self.lease()
        return () if handle is None else find_holes(handle, size)

    def is_zero_from(self, position: int) -> bool:
        """Return whether all bytes from a position on are zero; holes are skipped."""
        holes, size = self.holes(), self.size_bytes
        if holes and self.maps:
            return is_zero_between(self.whole(), holes, position, size)
        return is_zero(self.read(position, size - position))

    def open_for_append(self) -> None:
        """Accept appends after the present bytes."""
        if self._handle is None:
            self._handle = self._filesystem.open(self.path, write=True)
            self._attach(self._handle)

    @property
    def is_followed(self) -> bool:
        """True if the file is open for bytes that another process appends."""
        return self._handle is not None

    def open_for_following(self) -> None:
        """Hold the file open, to read what another process appends to it."""
        if self._handle is None:
            self._handle = self._filesystem.open(self.path)

    def read_unpublished(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes of a file that is followed, also after its known end."""
        return memoryview(self._require_handle().pread(size, position))

    def unpublished_source(self, size: int) -> ByteSource:
        """Return the first bytes of a file that is followed, in windows that are read."""
        return PreadSource(self._require_handle(), size)

    def map_unpublished(self, size: int) -> memoryview:
        """
        Return the first bytes of a file that is followed, without a hole at their end.

        Mapped where that may be, by no mapping that later readers get.

        Raises:
            ShortFileError: it was cut.
        """
        handle = self._require_handle()
        return handle.map(max(end_of_data(handle, size), 1))

    def unpublished_holes(self, size: int) -> Holes:
        """As `holes`, of the first bytes of a file that is followed."""
        return find_holes(self._require_handle(), size) if size >= HOLE_BYTES else ()

    def _hide(self, error: OSError) -> None:
        """Report an error that is not raised."""
        if self.on_error is not None:
            self.on_error(error)

    def cut_unpublished(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, on the disk too; no reader has seen the bytes after it."""
        handle = self._require_handle()
        handle.truncate(size_bytes)
        handle.sync()
        self.end.cut(size_bytes)

    def preallocate(self, size_bytes: int, zero_bytes: int = 0) -> None:
        """
        Extend the file with a hole, so that syncs need not commit its length each time.

        Args:
            size_bytes: what it is to have.
            zero_bytes: how many zeros appends write ahead of the end, whenever it has caught up
                with them, so that most syncs need not commit new blocks either; 0 for none.
        """
        handle = self._require_handle()
        handle.truncate(max(size_bytes, self.size_bytes))
        writer = _ZeroWriter(handle, self.path, size_bytes, zero_bytes, self.on_error)
        self.end.write_ahead(writer if zero_bytes else None)

    @property
    def unsynced_bytes(self) -> int:
        """Number of bytes that a sync would cover; 0 if the bytes are about to be removed."""
        if self._is_pinned:
            return 0
        return max(self.size_bytes - self.end.synced_bytes, 0)

    def mark_synced(self) -> None:
        """Take note that all bytes are on the disk by other means."""
        self.end.mark_synced_below(self.size_bytes)

    def mark_synced_below(self, position: int) -> None:
        """Take note that the bytes before a position, all published, are on the disk."""
        self.end.mark_synced_below(position)

    def sync(self, published_end: int | None = None) -> None:
        """
        Put everything written so far on the disk; nothing to do where that was done.

        Args:
            published_end: bytes after it may be cut again during the sync, as those of an append
                that fails: they do not count as synced. None if there are none.
        """
        if self.unsynced_bytes:
            self._sync(published_end)

    def _sync(self, published_end: int | None = None) -> None:
        end = self.size_bytes if published_end is None else published_end
        handle = self._handle
        if handle is not None:
            handle.sync()
        else:
            try:
                opened = self._filesystem.open(self.path, write=True)
            except FileNotFoundError:
                # It was removed from the log during this call: pinned first, then renamed.
                if self._is_pinned:
                    return
                raise
            try:
                opened.sync()
            finally:
                opened.close()
        self.mark_synced_below(end)

    def seal(self, *, trim: bool) -> None:
        """Take no more appends; `trim` cuts a preallocated tail off."""
        handle = self._handle
        if handle is None:
            return
        if trim:
            try:
                self.trim()
            except OSError as error:
                # Appended bytes are safe and published; zeros after them are handled at startup.
                logger.warning("%s keeps its preallocated tail: %s", self.path, error)
                self._hide(error)
        self.end.detach()
        self._handle = None

    def trim(self) -> bool:
        """Cut off a preallocated tail; return whether there was one. Appends stay possible."""
        handle = self._require_handle()
        if handle.size() <= self.size_bytes:
            return False
        handle.truncate(self.size_bytes)
        self.is_trimmed = True
        return True

    def sync_trimmed(self) -> None:
        """Put the end on the disk where a preallocated tail was cut off."""
        # Also with no unsynced bytes: an empty file has an end, too, and a concurrent sync may
        # have begun before the cut.
        if self.is_trimmed and not self._is_pinned:
            self._sync()
            self.is_trimmed = False

    def mark_trimmed_synced(self) -> None:
        """Take note that the end is on the disk where a preallocated tail was cut off."""
        self.is_trimmed = False

    def drop_mapping(self) -> None:
        """Drop the mapping; the next read makes another. Slices given out keep the old one."""
        self._mapped_bytes = 0
        self._pooled.close()
        self._pooled = self._pool.open(self.path)

    def pin(self) -> None:
        """
        Keep the bytes readable from here on, although the file loses its name.

        They stay as long as a reader refers to this object; the pool forgets the file.
        """
        if self._is_pinned:
            return
        if self.maps:
            self._pinned = self.whole()
        else:
            self._kept = self._handle or self._pooled.lease()
        self._pool.record_retired(self)
        self._pooled.close()

    def close(self) -> None:
        """Let descriptor and mapping go; slices given out stay valid."""
        self.end.detach()
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()
        self.is_closed = True
        pooled = SegmentFile._pooled.peek(self)
        if pooled is not None:
            pooled.close()

    def _copy(self, position: int, size: int) -> memoryview:
        """Return a copy of bytes of the file, zeros where it has become shorter."""
        memory = memoryview(bytearray(max(size, 0)))
        handle = self._handle or self.lease()
        if len(memory) and handle is not None:
            handle.pread_into(memory, position)
        return memory.toreadonly()

    def _map(self, size: int) -> memoryview:
        if self._pinned is None:
            try:
                mapped = self._pooled.view(size)
            except (OSError, ValueError):
                if self._pinned is None:
                    raise
            else:
                # Pinning comes before the name goes: not pinned yet, these bytes are this file's.
                if self._pinned is None:
                    return mapped
        assert self._pinned is not None
        return self._pinned[:size]

    def _require_handle(self) -> FileHandle:
        if self._handle is None:
            raise AssertionError(f"{self.path} is sealed")
        return self._handle


class _ZeroWriter:
    """Writes zeros ahead of the end of a preallocated file; an error ends that, and no more."""

    def __init__(
        self,
        handle: FileHandle,
        path: Path,
        preallocated_bytes: int,
        zero_bytes: int,
        on_error: Callable[[OSError], object] | None,
    ) -> None:
        self._handle = handle
        self._path = path
        self._preallocated_bytes = preallocated_bytes
        self._zero_bytes = zero_bytes
        self._on_error = on_error

    def __call__(self, end: int) -> int:
        """Write zeros from the end on; return up to where there are some, _ALL for no more."""
        missing = min(self._zero_bytes, self._preallocated_bytes - end)
        if missing <= 0:
            return _ALL
        count, rest = divmod(missing, len(_ZEROS))
        try:
            self._handle.pwritev([*[_ZEROS] * count, memoryview(_ZEROS)[:rest]], end)
        except OSError as error:
            logger.warning("%s: no zeros are written ahead of its end: %s", self._path, error)
            if self._on_error is not None:
                self._on_error(error)
            return _ALL
        return end + missing


class _CopiedSource:
    """Bytes of a file that is not mapped: each window is new memory."""

    __slots__ = ("_copy", "size_bytes")

    whole_is_free: Final = False

    def __init__(self, copy: Callable[[int, int], memoryview], size_bytes: int) -> None:
        self._copy = copy
        self.size_bytes = size_bytes

    def window(self, position: int, size: int) -> memoryview:
        """Return a copy; zeros where the file has become shorter."""
        return self._copy(position, min(size, self.size_bytes - position))

    def close(self) -> None:
        """Nothing is held."""


def _path_of(location: Path | tuple[Path, str]) -> Path:
    return location if isinstance(location, Path) else location[0] / location[1]
