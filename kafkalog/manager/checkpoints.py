"""The checkpoint files of one data directory, in memory, with their files behind them.

Ten thousand partitions would otherwise read, and replace, four files with ten thousand lines each.
A value is put in memory at once. It reaches the disk

  * at once, where the file would say too much otherwise: a recovery point that falls, a log start
    of whatever value, a partition that was deleted;
  * with the next `write`, where the file errs on the safe side meanwhile: a recovery point that
    rises costs scanning, a log start that a segment's base says as well costs a line.

Threads that put values at the same time share one replacement of the file.

Crash points: those of replacing a checkpoint (`kafkalog.state.checkpoints`), with the old or the
new content of all partitions.

Thread-safety: every method from any thread. The lock around the values is held for moments, the one
around the file while it is written.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Collection
from pathlib import Path

from kafkalog.errors import CorruptStateError, KafkaLogError, LogStorageError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint

__all__ = ["CachedCheckpoint", "DirectoryCheckpoints"]

logger = logging.getLogger(__name__)

# Answers where a name is that of a FIFO, a socket, a device, a directory or a link.
_NO_FILE = frozenset({errno.EINVAL, errno.EISDIR, errno.ELOOP})


class CachedCheckpoint:
    """
    One checkpoint file in memory.

    Args:
        filesystem: the disk.
        path: the file.
        is_vital: whether nothing may be served without what it says.

    Attributes:
        error: why the file could not be used when it was loaded, None where it could.
    """

    def __init__(self, filesystem: FileSystem, path: Path, *, is_vital: bool = False) -> None:
        self.path = path
        self.error: KafkaLogError | None = None
        self._is_vital = is_vital
        # A directory has its name, and no file can take its place.
        self._is_blocked = False
        self._filesystem = filesystem
        self._checkpoint = OffsetCheckpoint(filesystem, path)
        self._guard = threading.Lock()
        self._write_lock = threading.Lock()
        self._offsets: dict[TopicPartition, int] = {}
        # What the file says, as far as we wrote it.
        self._written: dict[TopicPartition, int] = {}
        # Numbers of the last change, and of the last one that the file has.
        self._changes = 0
        self._written_changes = 0
        # After a replacement that failed the file may say either.
        self._is_unsure = False

    def __repr__(self) -> str:
        return f"<CachedCheckpoint of {len(self._offsets)} partitions: {self.path}>"

    def load(self, present: Collection[TopicPartition]) -> None:
        """
        Take what the file says of the partitions that are there; create it where it is missing.

        What it says of others is forgotten: it must not speak of a partition that gets their name.

        A file that is damaged, or something else that has its name, is passed over, and replaced
        by the next writing; not one that is vital, which is left as it is.

        Raises:
            CorruptStateError: the file is vital and damaged.
            LogStorageError: the file can neither be read nor made.
        """
        self.error, self._is_blocked = None, False
        try:
            found = self._checkpoint.read()
        except (CorruptStateError, LogStorageError) as error:
            if self._is_vital or not _is_unusable(error):
                raise
            logger.warning("%s is passed over, and made anew: %s", self.path, error)
            self.error = error
            facts = self._filesystem.stat(self.path)
            self._is_blocked = facts is not None and facts.is_directory
            found = {}
            self._changes += 1
        kept = {partition: offset for partition, offset in found.items() if partition in present}
        self._offsets, self._written = kept, dict(found)
        if len(kept) < len(found):
            self._changes += 1
        if self._filesystem.stat(self.path) is None:
            self._checkpoint.write({})

    def get(self, partition: TopicPartition) -> int | None:
        """Return a partition's offset, None where there is none."""
        return self._offsets.get(partition)

    def set(self, partition: TopicPartition, offset: int | None) -> None:
        """Put an offset, or remove it, in memory; the file follows with the next `write`."""
        with self._guard:
            self._set(partition, offset)

    def write_through(self, partition: TopicPartition, offset: int) -> None:
        """
        Put an offset; on the disk when this returns.

        Raises:
            LogStorageError: the disk refused; the offset is what it was.
        """
        with self._guard:
            before = self._offsets.get(partition)
            if before == offset == self._written.get(partition):
                return
            self._set(partition, offset)
            wanted = self._changes
        try:
            self._write_up_to(wanted)
        except BaseException:
            with self._guard:
                if self._offsets.get(partition) == offset:
                    self._set(partition, before)
            raise

    def write_or_cache(self, partition: TopicPartition, offset: int) -> None:
        """Put an offset where it lies below the file's, else note it."""
        if self._is_unsure or offset < self._written.get(partition, 0):
            self.write_through(partition, offset)
        else:
            self.set(partition, offset)

    def remove(self, partition: TopicPartition) -> None:
        """
        Remove a partition, from the disk too when this returns.

        Raises:
            LogStorageError: the disk refused; the next `write` tries again.
        """
        with self._guard:
            self._set(partition, None)
            wanted = self._changes
        if self._is_unsure or partition in self._written:
            self._write_up_to(wanted)

    def write(self) -> bool:
        """Write what the file lacks; say whether that was anything."""
        with self._guard:
            wanted = self._changes
        return self._write_up_to(wanted)

    def _set(self, partition: TopicPartition, offset: int | None) -> None:
        """Change a value; the guard is held."""
        if self._offsets.get(partition) == offset:
            return
        if offset is None:
            del self._offsets[partition]
        else:
            self._offsets[partition] = offset
        self._changes += 1

    def _write_up_to(self, wanted: int) -> bool:
        if self._written_changes >= wanted:
            return False
        with self._write_lock:
            # Whoever held the lock may have written our change along with its own.
            if self._written_changes >= wanted:
                return True
            with self._guard:
                offsets, changes = dict(self._offsets), self._changes
            if not self._is_blocked:
                self._is_unsure = True
                self._checkpoint.write(offsets)
                self._is_unsure = False
            self._written = offsets
            self._written_changes = changes
        return True


def _is_unusable(error: KafkaLogError) -> bool:
    """Return whether a file is damaged, or no file at all: not where the disk has failed."""
    if isinstance(error, CorruptStateError):
        return True
    return isinstance(error, LogStorageError) and error.errno in _NO_FILE


class DirectoryCheckpoints:
    """
    The four checkpoint files of a data directory.

    Attributes:
        recovery_points: first offset not known to be on the disk.
        start_offsets: log starts above the base of the first segment.
        high_watermarks: as of the last `write`; a broker begins with them.
        cleaner_offsets: first offset not compacted.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.recovery_points = CachedCheckpoint(filesystem, directory / RECOVERY_POINT_CHECKPOINT)
        # Without the starts, records come back that were deleted.
        self.start_offsets = CachedCheckpoint(
            filesystem, directory / LOG_START_OFFSET_CHECKPOINT, is_vital=True
        )
        self.high_watermarks = CachedCheckpoint(filesystem, directory / HIGH_WATERMARK_CHECKPOINT)
        self.cleaner_offsets = CachedCheckpoint(filesystem, directory / CLEANER_OFFSET_CHECKPOINT)

    def load(self, present: Collection[TopicPartition]) -> None:
        """Load all files; see `CachedCheckpoint.load`."""
        for notes in self.all:
            notes.load(present)

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition from all files; see `CachedCheckpoint.remove`."""
        for notes in self.all:
            notes.remove(partition)

    def write(self) -> None:
        """Write what the files lack."""
        for notes in self.all:
            notes.write()

    @property
    def all(self) -> tuple[CachedCheckpoint, ...]:
        """The files."""
        return (
            self.recovery_points,
            self.start_offsets,
            self.high_watermarks,
            self.cleaner_offsets,
        )
