"""One index of one segment: growing (active segment), or loaded on first use (sealed segment).

A sealed index is checked once for order and range when it is loaded. It is rebuilt from the log if
it is missing, short, out of order or zero-padded, or if a look-up found another batch than the
entry promised (`distrust`). A rebuild replaces the file by a temporary one. It stays in memory if
the log is read-only or the disk reports an error; in the latter case the old file is removed, and a
clean close also removes the other index of the segment: a broker rebuilds both if one is missing,
and uses without a check the indexes that it finds with a clean-shutdown marker.

Crash points of a rebuild: while the temporary file is written (removed at the next open); before
or after the rename (old or new file, either is checked at its next load). Nothing is synced: the
check detects an index that a power cut left zeroed, and it is rebuilt again.

Thread-safety: `view` may be called by any thread; if two threads load at once, the last one wins.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from typing_extensions import Buffer

from kafkalog.files.atomic_files import replace_file
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.pool import FilePool, PooledFile
from kafkalog.files.zeros import is_zero, is_zero_after
from kafkalog.indexes.entry_file import EntryFile
from kafkalog.indexes.kinds import IndexKind
from kafkalog.layout import MESSAGE_OVERHEAD_V0

__all__ = ["IndexStorage", "SegmentIndex"]

logger = logging.getLogger(__name__)

# A read-only log reloads the index once another process has appended this number of bytes.
RELOAD_BYTES = 1024 * 1024
CHUNK_ENTRIES = 8192
# One past the largest position that an entry can have: positions are 31 bits.
POSITION_END = 2**31


class _Sized(Protocol):
    def __len__(self) -> int: ...


View = TypeVar("View", bound=_Sized)


@dataclass(frozen=True, slots=True)
class IndexStorage:
    """
    The storage that all indexes of one log share.

    Attributes:
        filesystem: the disk.
        pool: maps the files of sealed segments, and reclaims the mappings.
        read_only: True if rebuilt entries stay in memory.
        on_error: called with each error of the disk that an index does not raise.
    """

    filesystem: FileSystem
    pool: FilePool
    read_only: bool = False
    on_error: Callable[[OSError], object] | None = None


class SegmentIndex(Generic[View]):
    """
    An index of a segment.

    Args:
        kind: offset index or time index.
        storage: the disk, the pool, and permission to write.
        path: the index file.
        base_offset: base offset of the segment.
        rebuild: returns the entries, as bytes, built from the segment's batches.
        segment_size: returns the segment's size in bytes, for the range check.
    """

    def __init__(
        self,
        kind: IndexKind[View],
        storage: IndexStorage,
        path: Path,
        base_offset: int,
        *,
        rebuild: Callable[[], bytes],
        segment_size: Callable[[], int],
    ) -> None:
        self.path = path
        self.kind = kind
        self.was_rebuilt = False
        self.is_unsynced = False
        # True if the file, if there is one, is not the index.
        self._is_lost = False
        self._filesystem = storage.filesystem
        self._base_offset = base_offset
        self._rebuild = rebuild
        self._segment_size = segment_size
        self._pool = storage.pool
        self._pooled = self._refresh_pooled()
        self._read_only = storage.read_only
        self._on_error = storage.on_error
        self._growing: EntryFile[View] | None = None
        self._view: View | None = None
        self._entries: Buffer = b""
        self._loaded_at = 0

    @property
    def growing(self) -> EntryFile[View] | None:
        """The file that takes appends, None once sealed."""
        return self._growing

    @property
    def view(self) -> View:
        """The look-up view; loads, checks and if necessary rebuilds the index."""
        growing = self._growing
        if growing is not None:
            return growing.view
        view = self._view
        if view is None or (self._read_only and self._has_outgrown()):
            return self._load()
        return view

    def start_growing(self, max_bytes: int, entries: bytes = b"") -> EntryFile[View]:
        """Begin to accept appends, after `entries`; return the preallocated file."""
        self._renew_pooled()
        self.is_unsynced = True
        self._is_lost = False
        self._growing = EntryFile(
            self._filesystem,
            self.path,
            entry_size=self.kind.entry_size,
            max_bytes=max_bytes,
            make_view=lambda memory, count: self.kind.make_view(memory, self._base_offset, count),
            entries=entries,
            on_error=self._on_error,
        )
        return self._growing

    def seal(self) -> None:
        """Write and trim the file; later calls only look up, at first in memory."""
        growing = self._growing
        if growing is None:
            return
        if not growing.trim():
            self._lose_file()
        self._adopt(growing.entries())
        self._growing = None

    def detach(self) -> None:
        """Look up in memory only: the file's name belongs to another writer from now on."""
        self._read_only = True
        growing = self._growing
        if growing is not None:
            self._adopt(growing.entries())
            self.was_rebuilt = True
            growing.close()
            self._growing = None

    def distrust(self, *, is_expected: bool = False) -> None:
        """
        Rebuild the index: a look-up found another batch than the entry promised.

        It is logged as a warning, unless a broker without a defect may have written the entry.
        """
        level = logging.INFO if is_expected else logging.WARNING
        logger.log(level, "%s %s is wrong: rebuilt from its log", self.kind.name, self.path)
        self._install(self._rebuild())

    def entries(self) -> bytes:
        """Return the used entries, as the file of a sealed segment has them."""
        view = self.view
        size = len(view) * self.kind.entry_size
        return bytes(memoryview(self._entries)[:size])

    def reads_as(self, entries: bytes) -> bool:
        """
        Return whether the file has these entries.

        Zeros after them, as in a preallocated file, are ignored.
        """
        handle = self._open()
        if handle is None:
            return False
        size = len(entries)
        try:
            return handle.pread(size, 0) == entries and is_zero_after(handle, size)
        except OSError as error:
            self._record_unreadable(error)
            return False
        finally:
            handle.close()

    def replace(self, entries: bytes) -> bool:
        """
        Replace the entries by those of a scan of the segment; return whether they differed.

        The file is written in any case: correct reads do not prove that the disk has the bytes.
        """
        if self.reads_as(entries):
            if not self._read_only:
                self._replace_file(entries)
            self._adopt(entries)
            return False
        self._install(entries)
        return True

    def invalidate_view(self) -> None:
        """Drop the view; the next look-up loads the index again."""
        # Rebuilt entries without a file could only be restored by another rebuild.
        if not (self.was_rebuilt and self._read_only):
            self._view, self._entries = None, b""

    def sync(self) -> bool:
        """Sync the file, but not its name; return whether it exists and is complete."""
        if self._is_lost or not self.is_unsynced:
            return not self._is_lost
        try:
            handle = self._filesystem.open(self.path, write=True)
        except (FileNotFoundError, IsADirectoryError):
            return False
        try:
            handle.sync()
        finally:
            handle.close()
        self.is_unsynced = False
        return True

    def remove(self) -> None:
        """Remove the file; the next opening of the log rebuilds it."""
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            self._filesystem.unlink(self.path)

    def retire(self) -> None:
        """Write no file from now on: the segment was removed, and only readers still use it."""
        self._read_only = True
        # Readers keep loaded entries; the pool releases its part.
        self._pooled.close()

    def close(self) -> None:
        """Release files and mappings."""
        if self._growing is not None:
            self._growing.close()
        self._pooled.close()
        self._view, self._entries = None, b""

    def _has_outgrown(self) -> bool:
        """Return whether another process has appended RELOAD_BYTES since the index was loaded."""
        return not self.was_rebuilt and self._segment_size() - self._loaded_at > RELOAD_BYTES

    def _load(self) -> View:
        self._loaded_at = self._segment_size()
        entries = self._read() if self._read_only else self._map()
        level, found = logging.INFO, "is missing"
        if entries is not None:
            count, in_order = self.kind.check(entries, self._segment_size())
            used = count * self.kind.entry_size
            # A live writer's file has zeros after the entries; a sealed file must not.
            if not in_order and self._read_only:
                # A live writer is ahead: its last entries may be of batches not yet read here.
                in_order = self.kind.check(entries, POSITION_END)[1]
            if in_order and (used == len(entries) or self._read_only):
                return self._adopt(entries[:used])
            # A zero tail is left by a crash; other damage may be a fault of the disk: a warning.
            found = "ends in zeros"
            if not in_order:
                level, found = logging.WARNING, "is damaged"
        logger.log(level, "%s %s %s: rebuilt from its log", self.kind.name, self.path, found)
        return self._install(self._rebuild())

    def _refresh_pooled(self) -> PooledFile:
        # A weak reference: a pooled file that kept its index alive would keep whole segments.
        myself = weakref.ref(self)
        return self._pool.open(self.path, on_unmap=lambda: _invalidate_view(myself))

    def _renew_pooled(self) -> None:
        """Release the descriptor of a file that is replaced by another."""
        self._pooled.close()
        self._pooled = self._refresh_pooled()

    def _adopt(self, entries: Buffer) -> View:
        count = memoryview(entries).nbytes // self.kind.entry_size
        view = self.kind.make_view(entries, self._base_offset, count)
        self._entries = entries
        self._view = view
        return view

    @property
    def _bytes_max(self) -> int:
        """Largest size of an index for a segment of this size: each entry has a batch."""
        return (self._segment_size() // MESSAGE_OVERHEAD_V0 + 2) * self.kind.entry_size

    def _map(self) -> memoryview | None:
        """Map the whole file; None if it is missing, or too large for the index."""
        try:
            facts = self._filesystem.stat(self.path)
            if facts is not None and facts.size_bytes > self._bytes_max:
                logger.info("%s %s is too large for its segment", self.kind.name, self.path)
                return None
            return self._map_pooled()
        except OSError as error:
            self._record_unreadable(error)
            return None

    def _map_pooled(self) -> memoryview | None:
        """
        Map the file by the pool.

        Raises:
            ValueError: the index was closed, and neither retired nor assigned a new file.
        """
        while True:
            pooled = self._pooled
            try:
                return pooled.whole()
            except ValueError:
                if self._read_only:
                    # The index was retired since this look-up began.
                    return self._read()
                if self._pooled is pooled:
                    raise

    def _read(self) -> memoryview | None:
        """
        Copy the file up to its zero tail; None if it is missing, or has more entries than its
        segment can have.

        A mapping is not possible: the writing process trims the file when it seals the segment, and
        an access to a page after the new end kills the reader.
        """
        handle = self._open()
        if handle is None:
            return None
        data, bytes_max = bytearray(), self._bytes_max
        chunk_size = CHUNK_ENTRIES * self.kind.entry_size
        try:
            while True:
                chunk = handle.pread(chunk_size, len(data))
                data += chunk
                if len(chunk) < chunk_size or is_zero(chunk[-self.kind.entry_size :]):
                    return memoryview(bytes(data))
                if len(data) > bytes_max:
                    logger.warning("%s %s is too large for its segment", self.kind.name, self.path)
                    return None
        finally:
            handle.close()

    def _open(self) -> FileHandle | None:
        try:
            return self._filesystem.open(self.path)
        except OSError as error:
            self._record_unreadable(error)
            return None

    def _record_unreadable(self, error: OSError) -> None:
        """Report a file that cannot be opened; raise if the disk fails, which is not damage."""
        if error.errno == errno.EIO:
            raise error
        if not isinstance(error, FileNotFoundError):
            self._report_error(error, "cannot be read")

    def _install(self, entries: bytes) -> View:
        view = self._adopt(entries)
        self.was_rebuilt = True
        if not self._read_only:
            self._replace_file(entries)
        return view

    def _replace_file(self, entries: bytes) -> None:
        try:
            replace_file(self._filesystem, self.path, entries, durable=False)
            self.is_unsynced = True
            self._is_lost = False
            self._renew_pooled()
        except OSError as error:
            self._report_error(error, "stays in memory")
            self._lose_file()

    def _report_error(self, error: OSError, outcome: str) -> None:
        """Log an error that is not raised, and pass it to `on_error`."""
        logger.warning("%s %s %s: %s", self.kind.name, self.path, outcome, error)
        if self._on_error is not None:
            self._on_error(error)

    def _lose_file(self) -> None:
        """Remove a file that is not the index; the close calls `sync`, which reports it."""
        self._is_lost = self.is_unsynced = True
        with contextlib.suppress(OSError):
            self._filesystem.unlink(self.path)
            self._renew_pooled()


def _invalidate_view(index: weakref.ref[SegmentIndex[View]]) -> None:
    """Drop the view that an index built on a mapping that the pool has reclaimed."""
    alive = index()
    if alive is not None:
        alive.invalidate_view()
