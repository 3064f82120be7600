"""Directories of deleted partitions: renamed at once, removed with their files a while later.

A partition that is deleted gets the name `orders-0.<32 hex>-delete`, on the disk too; from then on
nobody has it. Its files go after `file.delete.delay.ms`, for whoever reads beside us; a reader of
this process keeps what it holds.

Crash points: before the name is on the disk, nothing was deleted; after it, whatever is left goes
after the next start.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

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
    Removes directories later, and again where that fails.

    Args:
        filesystem: the disk.
        supervisor: runs the removing, and keeps what goes wrong.
        is_usable: says whether the data directory around may be changed.
        on_error: called with that directory and an error that its disk answered with.
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
        """The directories that are still to go."""
        with self._guard:
            return tuple(sorted(self._waiting))

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
            # One that is offline is looked through again when it comes back.
            if self._is_usable(directory.parent):
                with storage_errors(directory, doing="removing"):
                    remove_tree(self._filesystem, directory)
                logger.info("%s is removed", directory)
        except Exception as error:  # noqa: BLE001 - kept in the fault registry, told by health()
            before = faults.get(TASK, directory)
            pause_ms = retry_pause_ms(1 if before is None else before.failure_count + 1)
            faults.record_failure(TASK, directory, error, retry_after_ms=pause_ms)
            self._on_error(directory.parent, error)
            self._supervisor.once(TASK, lambda: self._remove(directory), pause_ms)
            return
        faults.clear_error(TASK, directory)
        with self._guard:
            self._waiting.discard(directory)
