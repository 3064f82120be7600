"""Deletion of segments that left a log: the observer is notified, files are unlinked after a delay.

Three steps: the segment leaves the log's list; its files are renamed `.deleted`; they are unlinked
after `file.delete.delay.ms`. A reader that still holds the segment has its bytes mapped, so
unlinking takes nothing from it. Crash points: before any unlink; the next start removes the files
that are left.

A failed unlink is tried again, with growing pauses; at the latest the next start does it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.files.names import FileKind, FileState, SegmentFiles
from kafkalog.log.retention import RetentionReason
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.model import TopicPartition
from kafkalog.scheduler import Scheduler, retry_pause_ms

__all__ = ["Deleter", "SegmentDeletion"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentDeletion:
    """
    Event: a segment left its log. Its files are renamed, and unlinked after `file.delete.delay.ms`.

    Attributes:
        topic_partition: the log.
        path: the `.log` file, under its former name.
        base_offset, end_offset: the offsets that it covered, the end exclusive.
        size_bytes: of the `.log` file.
        cause: a retention policy by name, "delete_records" or "truncation".
        reason: in words.
        log_start_offset: log start offset without it.
        at_ms: time of the deletion.
    """

    topic_partition: TopicPartition
    path: Path
    base_offset: int
    end_offset: int
    size_bytes: int
    cause: str
    reason: str
    log_start_offset: int
    at_ms: int


class Deleter:
    """
    Unlinks the files of segments that left a log, and notifies the observer.

    Args:
        context: what the log's segments share.
        scheduler: runs the unlinking.
        topic_partition: the log, for events.
        observer: called with each deletion; None for no calls.

    Thread-safety: every method may be called from any thread.
    """

    def __init__(
        self,
        context: SegmentContext,
        scheduler: Scheduler,
        topic_partition: TopicPartition,
        observer: Callable[[SegmentDeletion], object] | None = None,
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._topic_partition = topic_partition
        self._observer = observer
        self._guard = threading.Lock()
        # Base offsets of segments whose files are unlinked together.
        self._waiting: list[tuple[int, ...]] = []
        self._unreported: list[SegmentDeletion] = []
        # Number of times that the thread with the log's lock has entered `notify_after`; guarded by
        # the log's lock.
        self._depth = 0

    def delete_later(
        self,
        segments: Sequence[LogSegment],
        *,
        before: LogSnapshot,
        log_start_offset: int,
        why: RetentionReason | Mapping[int, RetentionReason],
    ) -> tuple[SegmentDeletion, ...]:
        """
        Unlink the files of `segments` after the configured delay.

        Args:
            segments: the segments that left the log; their files are renamed or about to be.
            before: the log as it was with them.
            log_start_offset: log start offset without them.
            why: the reason for all of them, or reasons by base offset.

        Returns:
            The events, which `notify_after` hands to the observer.
        """
        if not segments:
            return ()
        at_ms = self._context.clock.now_ms()
        events = []
        for segment in segments:
            reason = why if isinstance(why, RetentionReason) else why[segment.base_offset]
            slot = before.segments.floor_slot(segment.base_offset)
            event = SegmentDeletion(
                topic_partition=self._topic_partition,
                path=segment.path,
                base_offset=segment.base_offset,
                end_offset=before.read_bound(slot).following_offset,
                size_bytes=segment.size_bytes,
                cause=reason.policy,
                reason=reason.text,
                log_start_offset=log_start_offset,
                at_ms=at_ms,
            )
            events.append(event)
        size_bytes = sum(event.size_bytes for event in events)
        self._context.meters.counters.add_deletion(len(events), size_bytes)
        with self._guard:
            self._unreported += events
        self._unlink_later(tuple(segment.base_offset for segment in segments))
        return tuple(events)

    def delete_truncated(
        self, segments: Sequence[LogSegment], before: LogSnapshot, after: LogSnapshot
    ) -> None:
        """Unlink later the files of segments that a truncation took out of the log."""
        why = RetentionReason("truncation", f"truncated to offset {after.end_offset}")
        self.delete_later(segments, before=before, log_start_offset=after.start_offset, why=why)

    def delete_replaced(self, base_offsets: Sequence[int]) -> None:
        """
        Unlink later the files of replaced segments, and their producer snapshots.

        No event follows: their records are still in the log, or later records superseded them.
        """
        self._unlink_later(tuple(base_offsets))

    @contextmanager
    def notify_after(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        """
        Hold the log's lock, which may be held already, and notify the observer after its release.

        The observer may call the log, and may wait for other threads.
        """
        is_outermost = False
        try:
            with lock:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    is_outermost = self._depth == 0
        finally:
            if is_outermost:
                self._notify()

    def _notify(self) -> None:
        """Log the deletions since the last call, and hand them to the observer."""
        with self._guard:
            events, self._unreported = self._unreported, []
        for event in events:
            logger.info(
                "%s leaves the log (%s): %s",
                event.path,
                event.cause,
                event.reason,
                extra={
                    "event": "segment_deleted",
                    "topic_partition": str(event.topic_partition),
                    "base_offset": event.base_offset,
                    "end_offset": event.end_offset,
                    "size_bytes": event.size_bytes,
                    "cause": event.cause,
                    "log_start_offset": event.log_start_offset,
                },
            )
            if self._observer is None:
                continue
            try:
                self._observer(event)
            except Exception:
                # An exception of the observer changes nothing: the segment is gone.
                logger.exception("the observer of %s failed", self._topic_partition)

    def delete_now(self) -> None:
        """Unlink all files that wait for their delay; raise OSError if the disk refuses."""
        with self._guard:
            groups = list(self._waiting)
        for group in groups:
            self._delete(group)

    def waiting_bytes(self) -> int:
        """Return the size of all files that wait for their delay; 0 for what cannot be read."""
        with self._guard:
            bases = [base_offset for group in self._waiting for base_offset in group]
        size_bytes = 0
        for base_offset in bases:
            files = SegmentFiles(self._context.directory, base_offset, FileState.DELETED)
            for kind in FileKind:
                with contextlib.suppress(OSError):
                    facts = self._context.filesystem.stat(files.path(kind))
                    size_bytes += 0 if facts is None else facts.size_bytes
        return size_bytes

    def _unlink_later(self, group: tuple[int, ...]) -> None:
        with self._guard:
            self._waiting.append(group)
        self._schedule(group, self._context.config.file_delete_delay_ms)

    def _schedule(self, group: tuple[int, ...], delay_ms: int, failures: int = 0) -> None:
        self._scheduler.schedule(
            "delete-file", lambda: self._delete_or_retry(group, failures), delay_ms=delay_ms
        )

    def _delete_or_retry(self, group: tuple[int, ...], failures: int) -> None:
        try:
            self._delete(group)
        except OSError as error:
            self._context.report(error)
            self._schedule(group, retry_pause_ms(failures + 1), failures + 1)
            # The scheduler keeps the error, and reports it.
            raise

    def _delete(self, group: tuple[int, ...]) -> None:
        with self._guard:
            if group not in self._waiting:
                return
        for base_offset in group:
            files = SegmentFiles(self._context.directory, base_offset, FileState.DELETED)
            for kind in FileKind:
                with contextlib.suppress(FileNotFoundError):
                    self._context.filesystem.unlink(files.path(kind))
        with self._guard, contextlib.suppress(ValueError):
            self._waiting.remove(group)
