"""Files of an idle log: released while nothing is appended, opened again by the next write.

An active segment holds its `.log`, two index files and the sync journal open, with memory for
entries to come. A process with thousands of logs cannot afford that for logs without appends. An
idle log has everything appended on the disk, its active segment reads like a sealed one, and the
next write opens the same files again.

Only a log with an `on_reopen` becomes idle: the opener of many logs counts those with open files.
Such a log that was closed in order is opened idle, and nothing of it is written until the next
write; without one, closing it writes nothing either.

Crash points of `try_release`: those of a flush, then those of sealing a segment; recovery rebuilds
the indexes above the recovery point. Of `reopen`: the index files may be missing, or short; they
are rebuilt, too.

Thread-safety: under the log's lock. `try_release` never waits for it, so that `on_reopen` may
release other logs while it holds the lock of one log; it does wait for a sync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kafkalog.errors import LogStorageError
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.local_log import LocalLog
from kafkalog.log.write_gate import WriteGate

__all__ = ["FILES_OF_OPEN_LOG", "IdleFiles", "ReleasableFiles"]

logger = logging.getLogger(__name__)

# Held open for writing: the `.log`, two indexes, the sync journal.
FILES_OF_OPEN_LOG: Final = 4


class ReleasableFiles(Protocol):
    """Open files of one log, which can be closed while the log is not in use."""

    @property
    def is_released(self) -> bool:
        """True if no file is open."""

    @property
    def is_closed(self) -> bool:
        """True if the log was closed."""

    @property
    def end_offset(self) -> int:
        """The log end offset; another one shows that the log is in use."""

    def try_release(self) -> bool:
        """Close the files if the log is not in use; return whether they are closed."""


class IdleFiles:
    """
    Releases and reopens the files of one log.

    Args:
        gate: the log's lock and state.
        local: the segments.
        flusher: flushes before a release.
        on_reopen: called with this object when the files were opened again; without it they are
            never released.

    Attributes:
        is_unmodified: whether the log was opened idle, and nothing was written since.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        flusher: LogFlusher,
        on_reopen: Callable[[ReleasableFiles], object] | None,
    ) -> None:
        self._gate = gate
        self._local = local
        self._flusher = flusher
        self._on_reopen = on_reopen
        self.is_unmodified = gate.state.is_idle

    @property
    def is_released(self) -> bool:
        """True if no file is open for writing."""
        return self._gate.state.is_idle

    @property
    def is_closed(self) -> bool:
        """True if the log was closed."""
        return self._gate.state.is_closed

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self._local.snapshot.end_offset

    def try_release(self) -> bool:
        """
        Flush and close the files of a log that is not in use; return whether they are closed.

        The next write opens them again. A sync that fails marks the log offline.
        """
        gate = self._gate
        if self._on_reopen is None or not gate.lock.acquire(blocking=False):
            return False
        try:
            if gate.state.is_closed or not gate.can_write() or gate.state.has_delayed:
                return False
            if gate.state.is_idle:
                return True
            if self._local.snapshot.end_offset > self._flusher.synced_offset:
                self._flusher.sync_all()
            self._local.release_files()
            gate.state.set_idle(True)
        except (OSError, LogStorageError) as error:
            # The files stay open, or the log is offline; the next write raises.
            self._local.context.report(error)
            logger.warning(
                "%s: its files are not released: %s", self._local.context.directory, error
            )
            return False
        finally:
            gate.lock.release()
        return True

    def reopen(self) -> None:
        """
        Open the files of an idle log.

        Raises:
            LogStorageError: the disk refused; the log stays idle.
            KafkaLogError: the log may not be written.
        """
        gate = self._gate
        with gate.owned():
            if not gate.state.is_idle:
                return
            with self._local.context.errors("opening the active segment"):
                self._local.reopen_files(self._flusher.synced_offset)
            gate.state.set_idle(False)
            self.is_unmodified = False
            # Under the lock, so that no thread sees an open log that is not counted.
            if self._on_reopen is not None:
                self._on_reopen(self)
