"""Commit of many logs by one sync of their file system, for a group commit.

One `syncfs` replaces a sync of each log. It covers what the logs had when it began. Its error names
no file: all logs of the commit go offline. It may also concern a file of another log, and `syncfs`
does not report it a second time; so after an error no commit of the directory uses it any more.
Syncs of single files report the errors of these files still.

Crash points: those of `LocalLog.sync`, of all logs in any order; then between the sync and the
record of each log that it is durable: the next start finds more on the disk than was promised. The
sync journal of each log has "trying" on the disk before the sync of the file system begins.

Thread-safety: `use` before the first commit; the rest by one thread at a time. During the sync a
log takes appends, truncations and reads; its other flushes, and its close, wait for the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakSet

from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FilesystemSync
from kafkalog.log.flusher import PendingFlush
from kafkalog.log.log import Log, partition_of

__all__ = ["FilesystemCommit", "end_of", "error_of"]

logger = logging.getLogger(__name__)

# Calls a function for each item, in any threads, and returns when all calls have ended.
Run = Callable[[Callable[[Log], object], Sequence[Log]], object]


def end_of(log: Log) -> int:
    """Return the log end offset, of a closed log, too."""
    return partition_of(log).local.snapshot.end_offset


def error_of(log: Log, end_offset: int, call: Callable[[], object]) -> BaseException | None:
    """Return the error of a call that syncs a log; None if the log is durable up to an offset."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the caller raises it, in its own thread
        if not isinstance(error, KafkaLogError) or log.durable_offset < end_offset:
            return error
    return None


class FilesystemCommit:
    """
    Commits the logs of one data directory by syncs of its file system.

    Args:
        run: calls a function for several logs at the same time.
        reached_by: returns the offset below which nothing of a log is to be synced.
    """

    def __init__(
        self, run: Run, reached_by: Callable[[Log], int] = lambda log: log.durable_offset
    ) -> None:
        self._run = run
        self._reached_by = reached_by
        self._filesystem_sync: FilesystemSync | None = None
        self._logs_min = 0
        self._has_failed = False
        # Logs that are known to be in the file system.
        self._covered: WeakSet[Log] = WeakSet()

    def use(self, filesystem_sync: FilesystemSync, logs_min: int) -> None:
        """Sync the file system from now on, for commits of that many logs; close it at the end."""
        self._filesystem_sync = filesystem_sync
        self._logs_min = logs_min

    def select(self, logs: Iterable[Log]) -> list[Log]:
        """Return the logs that `commit` is for: those that are to be synced, if they are many."""
        if self._filesystem_sync is None or self._has_failed:
            return []
        dirty = [log for log in logs if self._reached_by(log) < end_of(log) and self._covers(log)]
        return dirty if len(dirty) >= self._logs_min else []

    def commit(self, logs: Sequence[Log]) -> dict[Log, BaseException | None]:
        """Put the selected logs on the disk; return the error of each, None for success."""
        results: dict[Log, BaseException | None] = {}
        if not logs:
            return results
        ends = {log: end_of(log) for log in logs}
        begun: dict[Log, PendingFlush] = {}

        def begin(log: Log) -> None:
            def begin_flush() -> None:
                pending = partition_of(log).flusher.begin()
                if pending is not None:
                    begun[log] = pending

            results[log] = error_of(log, ends[log], begin_flush)

        # Side by side: the first sync of a log syncs its journal.
        self._run(begin, logs)
        failure = self._sync() if begun else None
        for log, pending in begun.items():
            results[log] = _end(log, ends[log], pending, failure)
        return results

    def close(self) -> None:
        """Close the file system. Idempotent."""
        if self._filesystem_sync is not None:
            self._filesystem_sync.close()
            self._filesystem_sync = None

    def _sync(self) -> BaseException | None:
        assert self._filesystem_sync is not None
        try:
            self._filesystem_sync.sync()
        except BaseException as error:  # noqa: BLE001 - every log of the commit gets it
            self._has_failed = True
            logger.warning("a sync of a file system failed, no more are tried: %s", error)
            return error
        return None

    def _covers(self, log: Log) -> bool:
        """Return whether a log is in the file system, and not in another one, by a link."""
        if log in self._covered:
            return True
        assert self._filesystem_sync is not None
        try:
            is_here = self._filesystem_sync.covers(log.directory)
        except OSError:
            # Its own sync reports what is wrong with the directory.
            return False
        if is_here:
            self._covered.add(log)
        return is_here


def _end(
    log: Log, end_offset: int, pending: PendingFlush, failure: BaseException | None
) -> BaseException | None:
    """End the flush of a log after the sync, and return its error; it raises nothing."""
    flusher = partition_of(log).flusher
    if failure is None:
        return error_of(log, end_offset, lambda: flusher.finish(pending))
    try:
        return flusher.fail(pending, failure)
    except BaseException as error:  # noqa: BLE001 - the caller raises it, in its own thread
        return error
