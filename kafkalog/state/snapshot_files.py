"""Producer snapshots of one log: their list, the newest valid one, and removal of outdated ones.

The snapshot with the name N has the state of the records below N. It saves time: a log without a
snapshot is replayed from its start. So a damaged one is removed and the next older one used.

A snapshot must not survive the records that it describes: after a truncation the log may write
other records at the same offsets. So the removal of snapshots above a truncation is on the disk
when the call returns, before a batch can be appended there. All other removals may be undone by a
crash, without harm.

Crash points: while a snapshot is written, those of `kafkalog.state.producer_snapshot`; between the
removal of several, any of them may be left, and the next start examines them again.

Thread-safety: called under the log's lock.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import sync_directory_names
from kafkalog.files.directories import live_offsets
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, FileState, segment_file_name
from kafkalog.state.producer_snapshot import ProducerSnapshotEntry, read_snapshot, write_snapshot

__all__ = ["SnapshotFiles"]

logger = logging.getLogger(__name__)


class SnapshotFiles:
    """
    The `.snapshot` files of a partition directory.

    Args:
        filesystem: the disk.
        directory: the partition directory.
        read_only: True to leave the disk unchanged: removals change the list only, and writes do
            nothing.

    Raises:
        LogStorageError: the directory cannot be listed.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, *, read_only: bool = False) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._read_only = read_only
        self._on_remove_last: Callable[[], None] | None = None
        with storage_errors(directory, doing="listing"):
            self._offsets = live_offsets(filesystem, directory, FileKind.SNAPSHOT)

    def __repr__(self) -> str:
        return f"<SnapshotFiles {self._directory}: {self._offsets}>"

    @contextmanager
    def last_removal_announced(self, callback: Callable[[], None] | None) -> Iterator[None]:
        """Call `callback`, within the block, before a removal that leaves no snapshot."""
        self._on_remove_last = callback
        try:
            yield
        finally:
            self._on_remove_last = None

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets of all snapshots, ascending."""
        return tuple(self._offsets)

    @property
    def latest_offset(self) -> int | None:
        """Offset of the newest snapshot."""
        return self._offsets[-1] if self._offsets else None

    def write(
        self, offset: int, entries: Iterable[ProducerSnapshotEntry], *, durable: bool = True
    ) -> None:
        """
        Write the snapshot of the state below `offset`.

        Args:
            offset: name of the snapshot.
            entries: the producers.
            durable: True if it must be on the disk when this returns; otherwise a power cut may
                remove it.

        Raises:
            LogStorageError: the disk reported an error.
        """
        if self._read_only:
            return
        write_snapshot(self._filesystem, self._path(offset), entries, durable=durable)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def sync(self, offsets: Iterable[int]) -> None:
        """
        Sync snapshots that were written without a sync; missing ones are ignored.

        Raises:
            LogStorageError: the disk reported an error.
        """
        for offset in offsets:
            path = self._path(offset)
            with storage_errors(path, doing="syncing"):
                if self._filesystem.stat(path) is None:
                    continue
                handle = self._filesystem.open(path, write=True)
                try:
                    handle.sync()
                finally:
                    handle.close()
        with storage_errors(self._directory, doing="syncing"):
            sync_directory_names(self._filesystem, self._directory)

    def load_latest(self) -> tuple[int, list[ProducerSnapshotEntry]] | None:
        """
        Return offset and entries of the newest valid snapshot; remove damaged ones.

        Raises:
            LogStorageError: the disk reported an error.
        """
        while self._offsets:
            offset = self._offsets[-1]
            path = self._path(offset)
            try:
                entries = read_snapshot(self._filesystem, path, end_offset=offset)
            except CorruptStateError as error:
                logger.warning("%s; an older snapshot is used", error)
                self._remove([offset])
                continue
            if entries is not None:
                return offset, entries
            self._offsets.pop()
        return None

    def truncate(self, log_start_offset: int, log_end_offset: int) -> None:
        """
        Remove the snapshots above the end of the log, and those below its start.

        A broker removes that at the start, too, and with it producers whose batches were deleted.

        Raises:
            LogStorageError: the disk reported an error; the caller must not append.
        """
        above = [offset for offset in self._offsets if offset > log_end_offset]
        below = [offset for offset in self._offsets if offset < log_start_offset]
        self._remove(sorted({*above, *below}))
        if above and not self._read_only:
            with storage_errors(self._directory, doing="syncing"):
                self._filesystem.sync_directory(self._directory)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """
        Remove the snapshots that belong to no segment, such as those of earlier closings.

        The newest of them stays if it is above every segment's base offset: it is the snapshot of
        the last closing, and the next start needs it.
        """
        bases = set(base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        self._remove(strays)

    def mark_deleted(self, offset: int) -> Path | None:
        """
        Rename a snapshot to its `.deleted` name, because its segment is being deleted.

        Returns the new path, which the caller removes together with the segment's files; None if
        there is no such snapshot.
        """
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        source = self._path(offset)
        target = self._directory / segment_file_name(offset, FileKind.SNAPSHOT, FileState.DELETED)
        if self._read_only:
            return None
        with storage_errors(source, doing="renaming"):
            try:
                self._filesystem.rename(source, target)
            except FileNotFoundError:
                return None
        return target

    def remove_all(self) -> None:
        """Remove every snapshot; the removal is on the disk when this returns."""
        self.truncate(-1, -1)

    def _remove(self, offsets: Iterable[int]) -> None:
        going = list(offsets)
        if going and len(going) == len(self._offsets) and self._on_remove_last is not None:
            with storage_errors(self._directory, doing="syncing"):
                self._on_remove_last()
        for offset in going:
            self._offsets.remove(offset)
            if self._read_only:
                continue
            path = self._path(offset)
            with storage_errors(path, doing="removing"):
                try:
                    self._filesystem.unlink(path)
                except FileNotFoundError:
                    logger.info("%s was removed before", path)

    def _path(self, offset: int) -> Path:
        return self._directory / segment_file_name(offset, FileKind.SNAPSHOT)
