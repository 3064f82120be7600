"""Cached checkpoint files of one data directory.

Without the cache, ten thousand partitions would read and replace four files with ten thousand lines
each. A value is changed in memory at once. It is written to the disk

  * at once, if the old value is not safe: a recovery point that decreases, any log start offset, a
    deleted partition;
  * with the next `write`, if the old value is safe: an old recovery point that is lower costs a
    scan, a log start offset equal to a segment's base costs a line.

Threads that change values at the same time share one replacement of the file.

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

# Errors of a name that is a FIFO, a socket, a device, a directory or a link.
_NO_FILE = frozenset({errno.EINVAL, errno.EISDIR, errno.ELOOP})


class CachedCheckpoint:
    """
    One checkpoint file in memory.

    Args:
        filesystem: the disk.
        path: the file.
        is_vital: whether the directory must not be used without the file's values.

    Attributes:
        error: reason that the file could not be used when it was loaded; None otherwise.
    """

    def __init__(self, filesystem: FileSystem, path: Path, *, is_vital: bool = False) -> None:
        self.path = path
        self.error: KafkaLogError | None = None
        self._is_vital = is_vital
        # A directory has the name, so the file cannot be written.
        self._is_blocked = False
        self._filesystem = filesystem
        self._checkpoint = OffsetCheckpoint(filesystem, path)
        self._guard = threading.Lock()
        self._write_lock = threading.Lock()
        self._offsets: dict[TopicPartition, int] = {}
        # Values of the file at its last read or write.
        self._written: dict[TopicPartition, int] = {}
        # Numbers of the last change, and of the last written change.
        self._changes = 0
        self._written_changes = 0
        # After a failed replacement, the file may have the old or the new values.
        self._is_unsure = False

    def __repr__(self) -> str:
        return f"<CachedCheckpoint of {len(self._offsets)} partitions: {self.path}>"

    def load(self, present: Collection[TopicPartition]) -> None:
        """
        Read the values of the present partitions; create the file if it is missing.

        Values of other partitions are dropped, because they must not apply to a later partition of
        the same name.

        A damaged file, or another kind of file of this name, is ignored and replaced by the next
        write, unless the file is vital.

        Raises:
            CorruptStateError: the file is vital and damaged.
            LogStorageError: the file can be neither read nor created.
        """
        self.error, self._is_blocked = None, False
        try:
            found = self._checkpoint.read()
        except (CorruptStateError, LogStorageError) as error:
            if self._is_vital or not _is_unusable(error):
                raise
            logger.warning("%s is ignored and will be replaced: %s", self.path, error)
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
        """Return a partition's offset, None if it has no entry."""
        return self._offsets.get(partition)

    def set(self, partition: TopicPartition, offset: int | None) -> None:
        """Set an offset in memory, or remove the entry; the next `write` writes it."""
        with self._guard:
            self._set(partition, offset)

    def write_through(self, partition: TopicPartition, offset: int) -> None:
        """
        Set an offset; it is on the disk when this returns.

        Raises:
            LogStorageError: the disk refused; the offset is unchanged.
        """
        with self._guard:
            before = self._offsets.get(partition)
            if before == offset == self._written.get(partition):
                return
            self._set(partition, offset)
            change_count = self._changes
        try:
            self._write_up_to(change_count)
        except BaseException:
            with self._guard:
                if self._offsets.get(partition) == offset:
                    self._set(partition, before)
            raise

    def write_or_cache(self, partition: TopicPartition, offset: int) -> None:
        """Set an offset; write it at once only if it is below the value in the file."""
        if self._is_unsure or offset < self._written.get(partition, 0):
            self.write_through(partition, offset)
        else:
            self.set(partition, offset)

    def remove(self, partition: TopicPartition) -> None:
        """
        Remove a partition; its entry is not on the disk when this returns.

        Raises:
            LogStorageError: the disk refused; the next `write` tries again.
        """
        with self._guard:
            self._set(partition, None)
            change_count = self._changes
        if self._is_unsure or partition in self._written:
            self._write_up_to(change_count)

    def write(self) -> bool:
        """Write changes that the file lacks; return whether it lacked any."""
        with self._guard:
            change_count = self._changes
        return self._write_up_to(change_count)

    def _set(self, partition: TopicPartition, offset: int | None) -> None:
        """Change a value; the guard is held."""
        if self._offsets.get(partition) == offset:
            return
        if offset is None:
            del self._offsets[partition]
        else:
            self._offsets[partition] = offset
        self._changes += 1

    def _write_up_to(self, change_count: int) -> bool:
        if self._written_changes >= change_count:
            return False
        with self._write_lock:
            # The thread that held the lock may have written this change, too.
            if self._written_changes >= change_count:
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
    """Return whether a file is damaged or not a regular file; False if the disk failed."""
    if isinstance(error, CorruptStateError):
        return True
    return isinstance(error, LogStorageError) and error.errno in _NO_FILE


class DirectoryCheckpoints:
    """
    The four checkpoint files of a data directory.

    Attributes:
        recovery_points: first offset that may not be on the disk.
        start_offsets: log starts above the base of the first segment.
        high_watermarks: values of the last `write`; a broker starts with them.
        cleaner_offsets: first offset that was not compacted.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.recovery_points = CachedCheckpoint(filesystem, directory / RECOVERY_POINT_CHECKPOINT)
        # Without the start offsets, deleted records would be readable again.
        self.start_offsets = CachedCheckpoint(
            filesystem, directory / LOG_START_OFFSET_CHECKPOINT, is_vital=True
        )
        self.high_watermarks = CachedCheckpoint(filesystem, directory / HIGH_WATERMARK_CHECKPOINT)
        self.cleaner_offsets = CachedCheckpoint(filesystem, directory / CLEANER_OFFSET_CHECKPOINT)

    def load(self, present: Collection[TopicPartition]) -> None:
        """Load all files; see `CachedCheckpoint.load`."""
        for checkpoint in self.all:
            checkpoint.load(present)

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition from all files; see `CachedCheckpoint.remove`."""
        for checkpoint in self.all:
            checkpoint.remove(partition)

    def write(self) -> None:
        """Write changes that the files lack."""
        for checkpoint in self.all:
            checkpoint.write()

    @property
    def all(self) -> tuple[CachedCheckpoint, ...]:
        """The files."""
        return (
            self.recovery_points,
            self.start_offsets,
            self.high_watermarks,
            self.cleaner_offsets,
        )
