"""Unlinking the files of segments that left, after `file.delete.delay.ms`.

The files were renamed `.deleted` before; whoever still holds the segment has its bytes mapped, so
unlinking takes nothing from a reader. Crash points: before any unlink; what is left is removed at
the next start.
"""

from __future__ import annotations

import contextlib
import logging
import threading

from kafkalog.files.names import FileKind, FileState, SegmentFiles
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.scheduler import Scheduler

__all__ = ["Deleter"]

logger = logging.getLogger(__name__)


class Deleter:
    """Unlinks what left a log. Thread-safe."""

    def __init__(self, context: SegmentContext, scheduler: Scheduler) -> None:
        self._context = context
        self._scheduler = scheduler
        self._guard = threading.Lock()
        self._waiting: list[list[int]] = []

    def delete_later(self, segments: list[LogSegment]) -> None:
        """Unlink the files of `segments` after the configured delay."""
        if not segments:
            return
        group = [segment.base_offset for segment in segments]
        with self._guard:
            self._waiting.append(group)
        self._scheduler.schedule(
            "delete-file",
            lambda: self._delete(group),
            delay_ms=self._context.config.file_delete_delay_ms,
        )

    def delete_now(self) -> None:
        """Unlink everything that waits."""
        with self._guard:
            groups = list(self._waiting)
        for group in groups:
            self._delete(group)

    def _delete(self, group: list[int]) -> None:
        with self._guard:
            if group not in self._waiting:
                return
            self._waiting.remove(group)
        for base_offset in group:
            files = SegmentFiles(self._context.directory, base_offset, FileState.DELETED)
            for kind in FileKind:
                with contextlib.suppress(FileNotFoundError):
                    self._context.filesystem.unlink(files.path(kind))
