"""Removal of directories of deleted partitions (Kafka's logsToBeDeleted).

The directory of a deleted partition is renamed to `orders-0.<32 hex>-delete`, on the disk too; the
partition no longer exists then. Its files are removed after `file.delete.delay.ms`, for readers of
other processes; a reader of this process keeps its open files.

Crash points: before the name is on the disk, nothing was deleted; after it, the next start removes
the remaining files.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from kafkalog.files.directories import remove_tree
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.manager.supervision import Supervisor
from kafkalog.scheduler import retry_pause_ms

__all__ = ["DeletedDirectories"]

logger = logging.getLogger(__name__)

TASK = "delete-logs"


class DeletedDirectories:
    """
    Removes directories after a delay, with retries.

    Args:
        filesystem: the disk.
        supervisor: runs the removal and records failures.
        is_usable: returns whether a data directory may be changed.
        on_error: called with a data directory and an error of its disk.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        supervisor: Supervisor,
        is_usable: Callable[[Path], bool],
        on_error: Callable[[Path, BaseException], object],
    ) -> None:
        self._filesystem = filesystem
        self._supervisor = supervisor
        self._is_usable = is_usable
        self._on_error = on_error
        self._guard = threading.Lock()
        self._waiting: set[Path] = set()

    @property
    def waiting(self) -> tuple[Path, ...]:
        """The directories that are not removed yet."""
        with self._guard:
            return tuple(sorted(self._waiting))

    def waiting_bytes(self) -> dict[Path, int]:
        """Return the size of the files in them, by data directory; unreadable ones count as 0."""
        sizes: dict[Path, int] = {}
        for directory in self.waiting:
            with contextlib.suppress(OSError):
                extents = self._filesystem.extents(directory, "")
                size_bytes = sum(each.size_bytes for each in extents.values())
                sizes[directory.parent] = sizes.get(directory.parent, 0) + size_bytes
        return sizes

    def add(self, directory: Path, *, delay_ms: int) -> None:
        """Remove a directory after a delay."""
        with self._guard:
            if directory in self._waiting:
                return
            self._waiting.add(directory)
        self._supervisor.once(TASK, lambda: self._remove(directory), delay_ms)

    def _remove(self, directory: Path) -> None:
        faults = self._supervisor.faults
        try:
            # An offline data directory lists its deleted directories when it returns.
            if self._is_usable(directory.parent):
                with storage_errors(directory, doing="removing"):
                    remove_tree(self._filesystem, directory)
                logger.info("%s is removed", directory)
        except Exception as error:  # noqa: BLE001 - recorded as a fault
            before = faults.get(TASK, directory)
            pause_ms = retry_pause_ms(1 if before is None else before.failure_count + 1)
            faults.record_failure(TASK, directory, error, retry_after_ms=pause_ms)
            self._on_error(directory.parent, error)
            self._supervisor.once(TASK, lambda: self._remove(directory), pause_ms)
            return
        faults.clear_error(TASK, directory)
        with self._guard:
            self._waiting.discard(directory)
