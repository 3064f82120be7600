"""Directories for the new segments of a cleaning: the partition directory, or a staging directory.

Thread-safety: immutable; a target belongs to one cleaning.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import Log
from kafkalog.log.segment_writer import cleaned_context

__all__ = ["LogDirectoryTarget", "StagingTarget"]


class LogDirectoryTarget:
    """The directory of a log that is open for writing."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.context = cleaned_context(cleaner_access(log).context)

    @property
    def is_given_up(self) -> bool:
        return self._log.is_closed

    def ensure_owner(self) -> AbstractContextManager[None]:
        # Excludes the close of the log, after which the directory may have another owner.
        return cleaner_access(self._log).ensure_owner()


class StagingTarget:
    """A separate directory of the caller, for new segments of a log that is only read."""

    is_given_up = False

    def __init__(self, log: Log, directory: Path) -> None:
        context = replace(cleaner_access(log).context, directory=directory, read_only=False)
        self.context = cleaned_context(context)

    def ensure_owner(self) -> AbstractContextManager[None]:
        return nullcontext()
