"""Following a log that another process writes: lock-free, never a torn batch.

A refresh looks at the directory and at the end of the last segment, checks the CRC of every batch
that is new, and publishes up to the last whole one. Bytes that make no whole batch yet are left
for the next refresh; a batch is seen only once all of it is.

The writer never changes bytes that were published, so what was seen stays true. Where it truncated,
the file has another identity, and the segment is opened anew.

Thread-safety: refreshes exclude each other; readers take the published snapshot without a lock.
"""

from __future__ import annotations

import threading

from kafkalog._core.batch import scan_batches
from kafkalog.files.names import SegmentFiles
from kafkalog.log.leftovers import live_bases
from kafkalog.log.local_log import LocalLog, Snapshot
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segments import LogSegments

__all__ = ["ReadOnlyTail"]

# Bytes examined at a time: how far behind a reader may be does not show in its memory.
WINDOW_BYTES = 8 * 1024 * 1024


class ReadOnlyTail:
    """Keeps the snapshot of a read-only log in step with its writer."""

    def __init__(self, local: LocalLog) -> None:
        self._local = local
        self._guard = threading.Lock()
        self._ids = {
            segment.base_offset: self._file_id(segment.base_offset)
            for segment in local.snapshot.segments.segments
        }

    def refresh(self) -> None:
        """Publish what the writer has completed since the last time."""
        with self._guard:
            context, snapshot = self._local.context, self._local.snapshot
            bases = live_bases(context.filesystem, context.directory)
            if not bases:
                # Between two steps of a truncation, or deleted altogether: keep what was seen.
                return
            known = {segment.base_offset: segment for segment in snapshot.segments.segments}
            segments = [self._current(base, known) for base in bases]
            changed = any(known.get(segment.base_offset) is not segment for segment in segments)
            active = snapshot.segments.active
            if active in segments and segments[-1] is not active:
                # The writer rolled: what was the tail is complete now.
                self._extend(active, snapshot.end_position, snapshot.end_offset)
            if changed or len(segments) != len(known):
                self._publish(segments, snapshot)
            else:
                self._follow(segments[-1], snapshot)

    def _follow(self, active: LogSegment, snapshot: Snapshot) -> None:
        end_offset = self._extend(active, snapshot.end_position, snapshot.end_offset)
        if active.size_bytes > snapshot.end_position:
            self._local.replace_all(
                Snapshot(snapshot.segments, end_offset, active.size_bytes, snapshot.start_offset)
            )

    def _publish(self, segments: list[LogSegment], snapshot: Snapshot) -> None:
        last = segments[-1]
        if last is snapshot.segments.active:
            position, offset = snapshot.end_position, snapshot.end_offset
        else:
            position, offset = 0, last.base_offset
        for segment in segments[:-1]:
            if segment is not snapshot.segments.active and segment.size_bytes == 0:
                segment.file.size_bytes = self._size(segment.base_offset)
        offset = self._extend(last, position, offset)
        start = max(snapshot.start_offset, segments[0].base_offset)
        self._local.replace_all(
            Snapshot(LogSegments(segments), offset, last.size_bytes, min(start, offset))
        )

    def _current(self, base_offset: int, known: dict[int, LogSegment]) -> LogSegment:
        """Return the segment object for a file, a new one where it is another file now."""
        file_id = self._file_id(base_offset)
        segment = known.get(base_offset)
        if segment is not None and self._ids.get(base_offset) == file_id:
            return segment
        context = self._local.context
        path = SegmentFiles(context.directory, base_offset).log
        handle = context.filesystem.open(path)
        self._ids[base_offset] = file_id
        file = SegmentFile(context.pool, context.filesystem, path, 0, handle)
        return LogSegment(context, base_offset, file)

    def _extend(self, segment: LogSegment, position: int, next_offset: int) -> int:
        """Take in whole batches behind `position`; return the offset that follows them."""
        remaining = self._size(segment.base_offset) - position
        if remaining <= 0:
            return next_offset
        segment.forget_max_timestamp()
        handle = self._local.context.filesystem.open(segment.path)
        window_bytes = WINDOW_BYTES
        try:
            while remaining > 0:
                data = memoryview(handle.pread(min(window_bytes, remaining), position))
                result = scan_batches(data, next_offset=next_offset)
                if result.count == 0:
                    if len(data) >= remaining:
                        break
                    window_bytes = remaining
                    continue
                position += result.position
                remaining -= result.position
                next_offset = result.next_offset
                segment.file.size_bytes = position
        finally:
            handle.close()
        return next_offset

    def _file_id(self, base_offset: int) -> int:
        facts = self._local.context.filesystem.stat(
            SegmentFiles(self._local.context.directory, base_offset).log
        )
        return 0 if facts is None else facts.file_id

    def _size(self, base_offset: int) -> int:
        facts = self._local.context.filesystem.stat(
            SegmentFiles(self._local.context.directory, base_offset).log
        )
        return 0 if facts is None else facts.size_bytes
