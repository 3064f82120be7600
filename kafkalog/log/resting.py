"""A log at rest: open, readable, and without a file held for writing.

An active segment holds its `.log`, two index files and the sync journal open, with memory for
entries to come. A process with thousands of logs cannot afford that for those that nobody appends
to. At rest everything appended is on the disk, the active segment reads like a sealed one, and the
next
write wakes the log: the same files are opened again.

Who opens many logs gives each an `on_reopen`; logs without one never rest. One that was closed in
order is opened at rest, and nothing of it is written until it wakes; if it never does, closing it
writes nothing either.

Crash points of `try_release`: those of a flush, then those of sealing a segment; recovery makes the
indexes of what lies above the recovery point anew. Of waking: the index files may be missing, or
cut; they too are made anew.

Thread-safety: under the log's lock. `try_release` never waits for it, so that a log which wakes may
put others to rest while it holds its own; it does wait for a sync.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkalog.errors import LogStorageError
from kafkalog.log.committer import Committer
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.surroundings import LogEnvironment
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.transacting import TransactionalLog
from kafkalog.scheduler import Scheduler
from kafkalog.state.producer_state_manager import ProducerStateManager

__all__ = ["FILES_OF_OPEN_LOG", "RestingLog"]

logger = logging.getLogger(__name__)

# Held open for writing: the `.log`, two indexes, the sync journal.
FILES_OF_OPEN_LOG: Final = 4


class RestingLog(TransactionalLog):
    """
    A log that may rest.

    Args:
        paths, local, tail, epochs, producers, scheduler: as for `TransactionalLog`.
        environment: the same; with an `on_reopen` it may rest.
    """

    _committer: Committer

    def __init__(
        self,
        paths: PartitionPaths,
        local: LocalLog,
        tail: ReadOnlyTail | None,
        epochs: LogEpochs,
        producers: ProducerStateManager | None,
        scheduler: Scheduler,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(paths, local, tail, epochs, producers, scheduler, environment)
        self._on_reopen = environment.on_reopen
        self._is_released = tail is None and local.snapshot.segments.active.is_released
        # Nothing of it was written since it was found closed in order.
        self._is_unmodified = self._is_released

    @property
    def is_released(self) -> bool:
        """Whether no file is held open for writing."""
        return self._is_released

    def try_release(self) -> bool:
        """
        Put everything on the disk and let the files go, unless the log is in use; say whether.

        The next write opens them again. A sync that fails latches the log, as everywhere.
        """
        if self._on_reopen is None or not self._write_lock.acquire(blocking=False):
            return False
        try:
            if self._closed or not self._may_write():
                return False
            if self._is_released:
                return True
            if self._local.snapshot.end_offset > self._committer.durable_offset:
                self._committer.flush()
            self._local.release_files()
            self._is_released = True
        except (OSError, LogStorageError) as error:
            # The log is awake as before, or latched; whoever writes to it next is told.
            self._local.context.report(error)
            logger.warning("%s does not come to rest: %s", self.directory, error)
            return False
        finally:
            self._write_lock.release()
        return True

    def _ensure_writable(self) -> None:
        super()._ensure_writable()
        if self._is_released:
            self._reopen()

    def _ensure_in_charge(self) -> None:
        """Raise as `_ensure_writable` does, and let a log at rest have its rest."""
        super()._ensure_writable()

    def _reopen(self) -> None:
        """Take writes again; LogStorageError where the disk refuses, and the log rests on."""
        with self._write_lock:
            super()._ensure_writable()
            if not self._is_released:
                return
            with self._local.context.errors("opening the active segment"):
                self._local.reopen_files(self._committer.durable_offset)
            self._is_released = self._is_unmodified = False
            # Under the lock, so that nobody finds it awake and in nobody's charge.
            if self._on_reopen is not None:
                self._on_reopen(self)
