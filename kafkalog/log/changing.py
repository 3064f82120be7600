"""What an error of the disk means in the middle of a change of many steps.

Thread-safety: used under the log's lock. It never undoes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from kafkalog.errors import LogStorageError
from kafkalog.files.atomic_files import DirectorySyncError
from kafkalog.files.errors import storage_errors
from kafkalog.log.local_log import LocalLog, UndoFailedError

__all__ = ["Changing"]


class Changing(storage_errors):
    """Around a change of many steps: an error of the disk half way latches the log."""

    __slots__ = ("_local", "_mark_offline")

    def __init__(
        self, local: LocalLog, doing: str, mark_offline: Callable[[BaseException], None]
    ) -> None:
        super().__init__(local.context.directory, doing=doing)
        self._local = local
        self._mark_offline = mark_offline

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, (OSError, LogStorageError)):
            self._local.context.report(error)
            # Where the active segment still takes appends, nothing had changed yet. But after a
            # failed sync of the directory no later one is believed.
            untouched = self._local.snapshot.segments.active.is_active
            cause = error.__cause__ if isinstance(error, LogStorageError) else error
            if not untouched or isinstance(cause, (DirectorySyncError, UndoFailedError)):
                self._mark_offline(error)
        super().__exit__(kind, error, traceback)
