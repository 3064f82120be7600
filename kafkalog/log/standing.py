"""Whether a log may be written: not once it is closed, read-only, of another process, or latched.

After a failed sync, or a change of many steps that broke off, what the disk holds is unknown. The
log is latched: it is read on, and refuses every write until it is opened again.

Thread-safety: `_write_lock` is the log's lock; everything that changes the log holds it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from kafkalog._engine.append_lane import AppendEntrance
from kafkalog.errors import ForkedLogError, LogClosedError, LogOfflineError, ReadOnlyLogError
from kafkalog.log.changing import Changing
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog
from kafkalog.log.lookups import LookupLog
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.tail import ReadOnlyTail

__all__ = ["LogStanding"]

logger = logging.getLogger(__name__)


class LogStanding(LookupLog, AppendEntrance):
    """
    What a log knows of its own right to be written.

    Args:
        paths, local, tail, epochs: as for `LogReader`.
    """

    def __init__(
        self, paths: PartitionPaths, local: LocalLog, tail: ReadOnlyTail | None, epochs: LogEpochs
    ) -> None:
        super().__init__(paths, local, tail, epochs)
        self._write_lock = threading.RLock()
        self._clock = local.context.clock
        self._process = os.getpid()
        self._offline: BaseException | None = None
        self._on_offline: Callable[[BaseException], object] | None = None
        self._not_compacted: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def is_read_only(self) -> bool:
        """Whether the log was opened with `read_only=True`."""
        return self._tail is not None

    @property
    def offline_error(self) -> BaseException | None:
        """What latched the log: it takes no more writes since; None while it takes them."""
        return self._offline

    def mark_offline(self, error: BaseException) -> None:
        """Take no more writes, as after a failure of its own; whoever asks for it knows why."""
        if self._offline is None:
            self._offline = error

    def drop_log_start_checkpoint(self) -> bool:
        """
        Take the log start out of its checkpoint where a segment's base says it; say whether.

        Crash points: before the names of what was deleted are synced, the checkpoint says it;
        after that, the first segment's name does.

        Raises:
            LogStorageError: the disk refused.
        """
        with self._write_lock:
            if self._closed or not self._may_write():
                return False
            snapshot = self._local.snapshot
            base = snapshot.segments.segments[0].base_offset
            if snapshot.start_offset > base or self._local.has_unrenamed_files:
                return False
            with self._changing("settling the log start"):
                self._local.context.filesystem.sync_directory(self.directory)
                self._paths.write_start_offset(None)
        return True

    def pause_cleaning(self) -> AbstractContextManager[object]:
        """
        Return what keeps the threads that compact a manager's logs off this one while entered.

        Entering waits for them, so not under the log's lock. Raises as for a write.
        """
        # Before anything is waited for: in a forked child nobody would end it.
        LogStanding._ensure_writable(self)
        return self._not_compacted()

    def _may_write(self) -> bool:
        ours = os.getpid() == self._process
        return ours and not self.is_read_only and self._offline is None

    def _mark_offline(self, error: BaseException) -> None:
        if self._offline is None:
            self._offline = error
            logger.error("%s takes no more writes: %s", self.directory, error)
            if self._on_offline is not None:
                self._on_offline(error)

    def _changing(self, doing: str) -> Changing:
        return Changing(self._local, doing, self._mark_offline)

    def _ensure_writable(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self.directory} is closed", path=self.directory)
        if self._tail is not None:
            raise ReadOnlyLogError(f"{self.directory} is open read-only", path=self.directory)
        if os.getpid() != self._process:
            raise ForkedLogError(
                f"{self.directory} was opened by process {self._process}, not by this one"
                f" ({os.getpid()}): open it here anew",
                path=self.directory,
            )
        if self._offline is not None:
            raise LogOfflineError(
                f"{self.directory} takes no more writes since an earlier failure: "
                f"{self._offline}; open it again to recover",
                path=self.directory,
            ) from self._offline
