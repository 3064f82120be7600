"""Partitions of a data directory that were closed in order, and the shutdown marker for all.

The marker of a clean shutdown covers every partition of the directory. It is removed, on the disk
too, before the first partition is opened for writing. It is written again when the manager closes,
if every partition was closed in order or was not opened since the marker was found.

Crash points: before the removal, the directory is as its last owner left it. From the removal until
the marker is written again, the next start recovers every partition from its recovery point. The
marker is written last, after the checkpoints.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from kafkalog.files.filesystem import FileSystem
from kafkalog.state.session_note import write_session_note
from kafkalog.state.shutdown_marker import (
    read_shutdown_marker,
    remove_shutdown_marker,
    write_shutdown_marker,
)

__all__ = ["DirectorySessions"]


class DirectorySessions:
    """
    Open partitions of a data directory, by the names of their directories.

    Args:
        filesystem: the disk.
        directory: the data directory; its lock is held.

    Attributes:
        had_marker: whether the last owner closed the directory in order.

    Raises:
        LogStorageError: the disk refused.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.had_marker = read_shutdown_marker(filesystem, directory) is not None
        self._filesystem = filesystem
        self._directory = directory
        self._guard = threading.Lock()
        self._marker_is_gone = False
        self._touched: set[str] = set()
        self._in_order: set[str] = set()

    def add(self, name: str) -> None:
        """Add a partition directory that was created; an empty partition needs no recovery."""
        with self._guard:
            self._touched.add(name)
            self._in_order.add(name)

    def remove(self, name: str) -> None:
        """Remove a partition directory that was deleted or moved."""
        with self._guard:
            self._touched.discard(name)
            self._in_order.discard(name)

    def is_clean(self, name: str) -> bool:
        """Return whether a partition was closed in order by its last session."""
        with self._guard:
            return self._is_clean(name)

    def begin(self, name: str) -> bool:
        """
        Record that a partition is opened for writing; return whether it was closed in order.

        Raises:
            LogStorageError: the marker cannot be removed; the partition must not be changed.
        """
        with self._guard:
            self._remove_marker()
            clean = self._is_clean(name)
            self._touched.add(name)
            self._in_order.discard(name)
            return clean

    def end(self, name: str, *, in_order: bool) -> None:
        """Record that a partition was closed or released."""
        with self._guard:
            if in_order and name in self._touched:
                self._in_order.add(name)

    def close(self, present: Iterable[str]) -> bool:
        """
        Write the marker if every partition in `present` is in order; return whether it exists.

        Raises:
            LogStorageError: the disk refused.
        """
        with self._guard:
            if self.had_marker and not self._marker_is_gone:
                return True
            return self._put_back(present)

    def _is_clean(self, name: str) -> bool:
        """Return `is_clean`; the guard is held."""
        return name in self._in_order if name in self._touched else self.had_marker

    def _put_back(self, present: Iterable[str]) -> bool:
        """Write the marker if it is true; the guard is held."""
        if not all(map(self._is_clean, present)):
            return False
        write_shutdown_marker(self._filesystem, self._directory)
        return True

    def _remove_marker(self) -> None:
        """Remove the marker once; the guard is held."""
        if not self._marker_is_gone:
            had_marker = remove_shutdown_marker(self._filesystem, self._directory)
            if had_marker:
                write_session_note(self._filesystem, self._directory)
            self._marker_is_gone = True
