"""The cleaning of one log: first pass, second pass, and replacement of the segments.

    1. Everything up to the log end is synced. A record may only be removed once the later record
       that supersedes it is safe, aborted data once its abort marker is safe, and a record
       superseded by a transaction once the commit marker of that transaction is safe.
    2. The keys of the dirty part are added to the offset map (`keys`). If the map gets full, the
       cleaning ends after the last key in it. If not even the first dirty segment fits, that
       segment is cleaned in several passes, each over the keys of one range of their hashes. The
       map marks each offset whose record is the latest of its key, so that the second pass need
       not look up the dirty part again.
    3. All segments from the start of the log to that end are filtered (`record_filter`), group by
       group (`grouping`), the oldest first. Each group becomes one new segment
       (`kafkalog.log.segment_writer`), which replaces it at once (`kafkalog.log.replacement`). A
       segment that loses nothing stays unchanged.

Crash points: within a group those of the replacement; between two groups, the older ones are clean.
The next cleaning starts at the same offset, finds the same keys, and continues. A record is removed
only after or together with all older records of its key, so that no removed record becomes the
latest again.

Damage, a full disk, or an abort end a cleaning. Groups that were replaced before stay, since each
group is correct alone; the files of the current group are removed.

Thread-safety: a `Cleaner` belongs to one thread and takes no lock but the cleaning lock of the log.
Other threads may use the log during a cleaning.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalog._core.offset_map import OffsetMap
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.cleaner.cleaning_result import CleaningCounters, CleaningProgress, CleaningResult
from kafkalog.cleaner.group_output import GroupOutput
from kafkalog.cleaner.grouping import map_bytes_for, parts_for
from kafkalog.cleaner.key_reader import KeyReader
from kafkalog.cleaner.keys import HaveKeys, KeyCollector
from kafkalog.cleaner.offset_map_buffer import OffsetMapBuffer
from kafkalog.cleaner.output_targets import LogDirectoryTarget
from kafkalog.cleaner.record_filter import CleaningRules, RecordFilter
from kafkalog.cleaner.segment_runs import boundary_of, grouped, read_runs, segments_between
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.clock import Clock
from kafkalog.errors import LogCleaningAbortedError, LogClosedError
from kafkalog.files.errors import storage_errors
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.cleaning_facts import segment_facts
from kafkalog.log.conversion.source import SegmentSource
from kafkalog.log.log import Log
from kafkalog.manager_config import CleanerConfig
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["Cleaner", "CleaningProgress", "CleaningResult"]

logger = logging.getLogger(__name__)

# A run has a fixed cost of some thousand records, so small runs are slow.
_RUN_BYTES_MIN: Final = 1 << 20

Check = Callable[[], None]
OnProgress = Callable[[CleaningProgress], object]


class Cleaner:
    """
    Cleaner of one log after the other. Its offset map buffer is allocated once.

    Args:
        config: settings of compaction.
        memory_bytes: size of the offset map; by default the share of one thread by the settings.
        clock: source of time.
        throttle: called with the bytes of each run that was read or written; it may wait.

    Thread-safety: belongs to one thread.

    Raises:
        ValueError: the memory does not hold a single key.
    """

    def __init__(
        self,
        config: CleanerConfig,
        *,
        memory_bytes: int | None = None,
        clock: Clock,
        throttle: Callable[[int], object] | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.throttle = throttle or _no_limit
        self.map_buffer = OffsetMapBuffer(config, memory_bytes)
        self.map_buffer.new_map()
        self.run_bytes = max(config.io_buffer_size // max(1, config.threads), _RUN_BYTES_MIN)

    def clean(
        self,
        log: Log,
        span: CleanableRange,
        *,
        check: Check | None = None,
        on_progress: OnProgress | None = None,
    ) -> CleaningResult:
        """
        Clean a log.

        Args:
            log: open for writing; its cleaning lock is held during the cleaning.
            span: the cleanable range, as of now or some time ago.
            check: called for each run and each segment; it raises LogCleaningAbortedError to end
                the cleaning.
            on_progress: called for each run.

        Returns:
            Counts and offsets. The caller checkpoints `end_offset` for the next cleaning.

        Raises:
            LogCleaningAbortedError: `check` raised it, the log was closed, another caller cleans
                it, or required segments left it: by truncation, or by retention.
            CorruptRecordError: a batch is damaged; the error names file and position. The damaged
                batch is not touched.
            DiskFullError, LogStorageError: the disk failed; nothing is lost.
        """
        try:
            with (
                cleaner_access(log).cleaning_lock(),
                storage_errors(log.directory, doing="cleaning"),
            ):
                return _Work(self, log, span, check or _never_stop, on_progress).clean()
        except (LogClosedError, ValueError) as error:
            if not log.is_closed:
                raise
            raise LogCleaningAbortedError(
                f"{log.directory} was closed while it was cleaned", path=log.directory
            ) from error


@dataclass(slots=True)
class _Collected:
    """The keys of a pass: all of them if `is_whole`."""

    offset_map: OffsetMap
    is_whole: bool


class _Work:
    """One cleaning: its bounds, taken once, and its counters. It belongs to one thread."""

    def __init__(
        self,
        cleaner: Cleaner,
        log: Log,
        span: CleanableRange,
        check: Check,
        on_progress: OnProgress | None,
    ) -> None:
        self._cleaner = cleaner
        self._map_buffer = cleaner.map_buffer
        self._log = log
        self._access = cleaner_access(log)
        self._check = check
        self._on_progress = on_progress
        self._started_ms = cleaner.clock.monotonic_ms()
        self._limit_bytes = log.config.decompressed_max_bytes
        # Read before the snapshot, so that everything below it is decided in the snapshot, unless
        # the log was truncated.
        limit = min(span.first_uncleanable, log.last_stable_offset)
        self._last_batches = self._access.last_batches()
        snapshot = self._access.snapshot()
        self._start = snapshot.segments.segments[0].base_offset
        self._first_dirty = max(span.first_dirty, self._start)
        self._boundary = boundary_of(snapshot, limit)
        self._now_ms = cleaner.clock.now_ms()
        clean = segments_between(snapshot, self._start, self._first_dirty)
        self._old_horizon_ms = (
            self._modified_ms(clean[-1]) - log.config.delete_retention_ms if clean else 0
        )
        self._counters = CleaningCounters(len(self._map_buffer.memory))

    def clean(self) -> CleaningResult:
        """Clean the log."""
        self._ensure_not_stopped()
        end, key_count = self._first_dirty, 0
        if self._first_dirty < self._boundary:
            # Markers that decided transactions below may be anywhere up to the log end.
            self._access.sync()
            end, key_count = self._clean_in_one_pass()
        config = self._map_buffer.config
        cleaning = self._counters.result(
            self._log.topic_partition,
            first_dirty=self._first_dirty,
            end_offset=end,
            target_end_offset=max(self._boundary, self._first_dirty),
            bytes_for_one_pass=map_bytes_for(key_count, config.io_buffer_load_factor),
            duration_ms=self._cleaner.clock.monotonic_ms() - self._started_ms,
        )
        _log_result(cleaning)
        return cleaning

    # ---- the first pass ----

    def _clean_in_one_pass(self) -> tuple[int, int]:
        """Clean; return the end offset, and the number of keys of the dirty part, if estimated."""
        self._map_buffer.draw_secret()
        snapshot = self._access.snapshot()
        found = self._collect(snapshot, self._boundary)
        offset_map = found.offset_map
        if found.is_whole:
            sources = self._sources(snapshot, self._boundary)
            del snapshot
            self._filter(sources, offset_map)
            return self._boundary, len(offset_map)
        dirty = self._sources(snapshot, self._boundary, self._first_dirty)
        following_offset = dirty[0].bound.following_offset
        reached = offset_map.latest_offset + 1
        # References to the old segments would keep their disk space in use.
        del dirty
        key_count = self._extrapolate(len(offset_map), reached, self._boundary)
        if reached >= following_offset:
            sources = self._sources(snapshot, reached)
            del snapshot
            self._filter(sources, offset_map)
            return reached, key_count
        del snapshot
        guess = self._extrapolate(len(offset_map), reached, following_offset)
        return following_offset, max(self._clean_in_parts(following_offset, guess), key_count)

    def _clean_in_parts(self, end: int, guess: int) -> int:
        """Clean up to an offset in several passes; return how many keys there are."""
        usable = self._map_buffer.key_count_max
        count = max(2, parts_for(guess, usable))
        logger.warning(
            "%s: the keys of one segment do not fit the memory for %d keys: it is cleaned in %d"
            " passes or more; about %d bytes, instead of %d, would be enough for one pass",
            self._log.topic_partition,
            usable,
            count,
            map_bytes_for(guess, self._map_buffer.config.io_buffer_load_factor),
            len(self._map_buffer.memory),
        )
        waiting = deque((part, count) for part in range(count))
        key_count = 0
        while waiting:
            part, count = waiting.popleft()
            # A new snapshot: earlier passes have replaced segments.
            snapshot = self._access.snapshot()
            found = self._collect(snapshot, end, part, count)
            if not found.is_whole:
                waiting.extendleft([(2 * part + 1, 2 * count), (2 * part, 2 * count)])
                continue
            key_count += len(found.offset_map)
            sources = self._sources(snapshot, end)
            del snapshot
            self._filter(sources, found.offset_map, is_last=not waiting)
        return key_count

    def _collect(
        self, snapshot: LogSnapshot, end: int, part: int = 0, part_count: int = 1
    ) -> _Collected:
        """Add the keys of the dirty part, or of one range of hashes, to a map."""
        started_ms = self._cleaner.clock.monotonic_ms()
        offset_map = self._map_buffer.new_map(
            part=part,
            part_count=part_count,
            exact=self._map_buffer.compares_keys,
            offsets=(self._first_dirty, end),
        )
        collector = KeyCollector(
            offset_map,
            self._tracker(self._first_dirty, end),
            have_keys=self._have_keys(),
            limit_bytes=self._limit_bytes,
        )
        sources = self._sources(snapshot, end, self._first_dirty)
        progress = _Progress(self._report, "reading keys", sources)
        is_whole = self._collect_from(sources, end, collector, offset_map, progress)
        self._counters.add_collected(
            len(offset_map),
            collector.records_read,
            progress.done_bytes,
            self._cleaner.clock.monotonic_ms() - started_ms,
        )
        return _Collected(offset_map, is_whole)

    def _collect_from(
        self,
        sources: Sequence[SegmentSource],
        end: int,
        collector: KeyCollector,
        offset_map: OffsetMap,
        progress: _Progress,
    ) -> bool:
        for source in sources:
            for run in self._runs(source, progress):
                if not collector.add(run, start_offset=self._first_dirty):
                    return False
            # The offsets up to the next segment have no records.
            offset_map.advance_to(min(source.bound.following_offset, end) - 1)
        return True

    # ---- the second pass ----

    def _filter(
        self, sources: list[SegmentSource], offset_map: OffsetMap, *, is_last: bool = True
    ) -> None:
        """Clean segments in one pass; `sources` is emptied, so that replaced segments are freed."""
        # Up to the end of the last segment, which may be above the last offset in the map.
        tracker = self._tracker(self._start, self._boundary)
        record_filter = RecordFilter(
            offset_map,
            self._rules(),
            tracker,
            have_keys=self._have_keys(),
            limit_bytes=self._limit_bytes,
            sets_delete_horizon=is_last,
        )
        progress = _Progress(self._report, "writing", sources)
        self._counters.begin_pass(len(offset_map), len(sources))
        groups = deque(self._groups(sources))
        sources.clear()
        while groups:
            self._clean_group(groups.popleft(), groups, record_filter, tracker, progress)
        self._counters.statistics.add(record_filter.statistics)

    def _groups(self, sources: Sequence[SegmentSource]) -> list[list[SegmentSource]]:
        """Divide segments into groups, each of which becomes one."""
        context = self._access.context
        facts = [segment_facts(context, each.segment, each.bound.end) for each in sources]
        return grouped(sources, facts, self._log.config, self._boundary)

    def _clean_group(
        self,
        group: Sequence[SegmentSource],
        following: Sequence[Sequence[SegmentSource]],
        record_filter: RecordFilter,
        tracker: TransactionTracker,
        progress: _Progress,
    ) -> None:
        """Replace a group by a new segment; the segments after it are required."""
        output = GroupOutput(
            LogDirectoryTarget(self._log), group, record_filter, self._cleaner.throttle
        )
        try:
            for source in group:
                stays = self._modified_ms(source) > self._old_horizon_ms
                for run in self._runs(source, progress):
                    output.add(run, old_tombstones_stay=stays)
            aborted = tracker.pop_kept()
            empty_ms = self._empty_modified_ms(record_filter)
            modified_ms = self._modified_ms(group[-1])
            bases = output.finish(modified_ms, aborted, empty_modified_ms=empty_ms)
            self._ensure_not_stopped()
        except BaseException:
            output.abandon()
            raise
        if bases:
            required_segments = [source.segment for each in following for source in each]
            leaving = [source.segment for source in group]
            self._access.replace_segments(leaving, bases, required_segments=required_segments)
        self._counters.add_group(bases)

    # ---- shared by both passes ----

    def _sources(
        self, snapshot: LogSnapshot, end: int, start: int | None = None
    ) -> list[SegmentSource]:
        return segments_between(snapshot, self._start if start is None else start, end)

    def _runs(self, source: SegmentSource, progress: _Progress) -> Iterator[FileRecords]:
        self._ensure_not_stopped()
        for run in read_runs(source, self._cleaner.run_bytes):
            self._ensure_not_stopped()
            self._cleaner.throttle(len(run.data))
            progress.add(len(run.data))
            yield run

    def _extrapolate(self, key_count: int, reached: int, end: int) -> int:
        """Estimate the number of keys below `end` from the number below `reached`."""
        offsets_read = max(1, reached - self._first_dirty)
        return max(key_count + 1, key_count * (end - self._first_dirty) // offsets_read)

    def _ensure_not_stopped(self) -> None:
        self._check()
        if self._log.is_closed:
            raise LogClosedError(f"{self._log.directory} is closed", path=self._log.directory)

    def _report(self, stage: str, done_bytes: int, total_bytes: int) -> None:
        if self._on_progress is not None:
            number = self._counters.passes + (stage != "writing")
            name = self._log.topic_partition
            self._on_progress(CleaningProgress(name, stage, done_bytes, total_bytes, number))

    def _tracker(self, start: int, end: int) -> TransactionTracker:
        # Groups that were replaced before the call had no transactions: their first one calls it.
        return TransactionTracker(lambda: self._access.aborted_transactions(start, end))

    def _have_keys(self) -> HaveKeys | None:
        if not self._map_buffer.compares_keys:
            return None
        return KeyReader(self._access.snapshot, self._limit_bytes).have_keys

    def _rules(self) -> CleaningRules:
        config = self._log.config
        # Horizons that an earlier pass of this cleaning has set have not passed for a later one.
        return CleaningRules(
            now_ms=self._now_ms - (self._counters.passes > 0),
            delete_retention_ms=config.delete_retention_ms,
            end_offset=self._boundary,
            last_batches=self._last_batches,
            max_message_bytes=config.max_message_bytes,
        )

    def _empty_modified_ms(self, record_filter: RecordFilter) -> int | None:
        """
        Return the file time of an empty new segment; None for the time of its last source.

        A broker uses the file time of an empty segment as that of its latest record, and a look-up
        by time that ends there has no answer. A time before all records (0) ends no look-up. But
        retention by time deletes such a segment at once, which moves the log start; and tombstones
        of the old formats expire by the times of files.
        """
        deletes = "delete" in self._log.config.cleanup_policy
        return None if deletes or record_filter.has_old_formats else 0

    def _modified_ms(self, source: SegmentSource) -> int:
        facts = self._access.context.filesystem.stat(source.segment.path)
        return self._now_ms if facts is None else facts.modified_ms


class _Progress:
    """Counter of the bytes of one stage."""

    def __init__(
        self, report: Callable[[str, int, int], None], stage: str, sources: Sequence[SegmentSource]
    ) -> None:
        self._report = report
        self._stage = stage
        self._total_bytes = sum(source.bound.end for source in sources)
        self.done_bytes = 0

    def add(self, size: int) -> None:
        self.done_bytes += size
        self._report(self._stage, self.done_bytes, self._total_bytes)


def _log_result(cleaning: CleaningResult) -> None:
    logger.info(
        "%s",
        cleaning.describe(),
        extra={
            "event": "log_cleaned",
            "topic_partition": str(cleaning.topic_partition),
            "first_dirty": cleaning.first_dirty,
            "end_offset": cleaning.end_offset,
            **cleaning.statistics.as_dict(),
        },
    )
    name, statistics = cleaning.topic_partition, cleaning.statistics
    if statistics.keyless_dropped:
        logger.warning("%s: %d records had no key", name, statistics.keyless_dropped)
    if statistics.batches_grown:
        logger.warning(
            "%s: %d batches grew beyond max.message.bytes when they were compressed again",
            name,
            statistics.batches_grown,
        )


def _never_stop() -> None:
    """Return, so that a cleaning without a check continues."""


def _no_limit(_size: int) -> None:
    """Return, so that a cleaning without a throttle continues."""
