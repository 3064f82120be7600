"""Write permission of a log: its lock, its state, and the errors of a refusal.

Writes are refused if the log is closed, read-only, opened by another process, or offline. A log
goes offline after a failed sync, or a change of several steps that broke off: the disk then holds
something unknown. An offline log can be read, and refuses every write until it is opened again.

The gate does not write anything, and does not know which files an idle log has.

Thread-safety: every method from any thread. `lock` is the log's lock; whatever changes the log
holds it. `pause_cleaning` is entered before `lock` is taken.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import PublishedSnapshot
from kafkalog.errors import (
    ForkedLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    ReadOnlyLogError,
)
from kafkalog.files.atomic_files import DirectorySyncError
from kafkalog.files.errors import storage_errors
from kafkalog.log.local_log import UndoFailedError
from kafkalog.log.segment_types import SegmentContext

__all__ = ["WriteGate"]

logger = logging.getLogger(__name__)


class WriteGate:
    """
    Write permission of one log.

    Args:
        context: directory and error reporter of the log.
        published: the segments of the log; shows whether a failed change had begun.
        state: closed, read-only, idle, offline.
        reopen: opens the files of an idle log; called under the lock.
        append_delayed: appends the delayed records of the log, before anything else is written.
        on_offline: called once with the error that ended all writes, by the thread that got it.
        pause_cleaning: returns a context that keeps the log from being compacted.

    Attributes:
        lock: the log's lock.
        state: as given; compiled code reads it.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        context: SegmentContext,
        published: PublishedSnapshot,
        state: GateState,
        *,
        reopen: Callable[[], object],
        append_delayed: Callable[[], object],
        on_offline: Callable[[BaseException], object] | None,
        pause_cleaning: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.lock = threading.RLock()
        self.state = state
        self._context = context
        self._published = published
        self._reopen = reopen
        self._append_delayed = append_delayed
        self._on_offline = on_offline
        self._pause_cleaning = pause_cleaning

    def can_write(self) -> bool:
        """Return whether this process may change the files; a log that was closed is not asked."""
        state = self.state
        return state.is_own_process() and not state.is_read_only and state.offline_error is None

    def ensure_owner(self) -> None:
        """
        Raise if the log may not be written; an idle log stays idle.

        Raises:
            LogClosedError, ReadOnlyLogError, ForkedLogError, LogOfflineError: it may not.
        """
        state, directory = self.state, self._context.directory
        if state.is_closed:
            raise LogClosedError(f"{directory} is closed", path=directory)
        if state.is_read_only:
            raise ReadOnlyLogError(f"{directory} is open read-only", path=directory)
        if not state.is_own_process():
            raise ForkedLogError(
                f"{directory} was opened by process {state.process_id}, not by this process"
                f" ({os.getpid()}); reopen it here",
                path=directory,
            )
        error = state.offline_error
        if error is not None:
            raise LogOfflineError(
                f"{directory} refuses writes after an earlier failure: {error}; reopen it to"
                " recover",
                path=directory,
            ) from error

    def ensure_open(self) -> None:
        """
        Raise as `ensure_owner` does; reopen the files of an idle log.

        For changes that leave the log end as it is: they need no space for delayed records.

        Raises:
            LogStorageError: the files of an idle log could not be opened.
        """
        self.ensure_owner()
        if self.state.is_idle:
            self._reopen()

    def ensure_writable(self) -> None:
        """
        Raise as `ensure_open` does; append delayed records.

        Raises:
            LogStorageError: the files of an idle log could not be opened, or the disk refused the
                delayed records.
        """
        self.ensure_open()
        if self.state.has_delayed:
            self._append_delayed()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """
        Hold the lock of a log that may be written; an idle log stays idle.

        Raises:
            LogClosedError, ReadOnlyLogError, ForkedLogError, LogOfflineError: as `ensure_owner`.
        """
        self._refuse_in_child()
        with self.lock:
            self.ensure_owner()
            yield

    @contextmanager
    def writable(self) -> Iterator[None]:
        """Hold the lock of a log that is about to be written; raise as `ensure_writable` does."""
        self._refuse_in_child()
        with self.lock:
            self.ensure_writable()
            yield

    def _refuse_in_child(self) -> None:
        """Raise in a forked child, where a thread of the parent may have the lock for ever."""
        if not self.state.is_own_process():
            self.ensure_owner()

    def pause_cleaning(self) -> AbstractContextManager[object]:
        """
        Return a context that keeps the threads that compact a manager's logs off this one.

        Entering waits for them, so the caller must not hold the lock. Raises as `ensure_owner`.
        """
        # Checked before the wait: in a forked child the wait would never end.
        self.ensure_owner()
        return self._pause_cleaning()

    def mark_offline(self, error: BaseException, *, notify: bool = True) -> None:
        """
        Refuse all writes from now on; the first error counts.

        Args:
            error: the reason.
            notify: whether to log it and call `on_offline`; not where the caller knows already.
        """
        if self.state.mark_offline(error) and notify:
            logger.error("%s goes offline: %s", self._context.directory, error)
            if self._on_offline is not None:
                self._on_offline(error)

    def mark_offline_on_error(self, doing: str) -> _OfflineOnError:
        """
        Return a context for a change of several steps: a disk error between them ends all writes.

        Args:
            doing: the change, for messages.
        """
        return _OfflineOnError(self._context, self._published, doing, self.mark_offline)


class _OfflineOnError(storage_errors):
    """Marks the log offline for a disk error in the middle of a change. It undoes nothing."""

    __slots__ = ("_context", "_mark_offline", "_published")

    def __init__(
        self,
        context: SegmentContext,
        published: PublishedSnapshot,
        doing: str,
        mark_offline: Callable[[BaseException], object],
    ) -> None:
        super().__init__(context.directory, doing=doing)
        self._context = context
        self._published = published
        self._mark_offline = mark_offline

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, (OSError, LogStorageError)):
            self._context.report(error)
            # The active segment still takes appends: nothing had changed yet. But after a failed
            # sync of the directory no later sync is believed.
            is_unchanged = self._published.snapshot.segments.active.is_active
            cause = error.__cause__ if isinstance(error, LogStorageError) else error
            if not is_unchanged or isinstance(cause, (DirectorySyncError, UndoFailedError)):
                self._mark_offline(error)
        super().__exit__(kind, error, traceback)
