"""Selection of the next log to clean: the dirtiest log that is due.

It is Kafka's grabFilthiestCompactedLog. A selection checks all compacted logs, and opens closed
ones, as the manager's retention does. For a log that is unchanged since the last selection, the
cached result is used. A cleaner checkpoint that does not fit its log is corrected at once, on the
disk, whether the log is selected or not. A failure concerns one log, which is skipped for a while,
longer each time. In Kafka, the selection ends there, and the log is not cleaned again before a
restart.

Thread-safety: one thread at a time selects; any thread may read the results.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafkalog.cleaner.selection import (
    CleanableRange,
    CleaningCandidate,
    LogCleaningFacts,
    choose_log,
    cleaning_candidate,
)
from kafkalog.cleaner.selection import (
    cleanable_range as compute_cleanable_range,
)
from kafkalog.clock import Clock
from kafkalog.errors import (
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.names import FileKind, live_base_offset, partition_directory_name
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import Log
from kafkalog.manager.cleaning.cleaning_history import CleaningHistory
from kafkalog.manager.cleaning.states import CleaningRun, CleaningStates
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.model import TopicPartition
from kafkalog.settings import LONG_MAX

__all__ = [
    "REPORTED_ELSEWHERE",
    "LogSelection",
    "SelectionResult",
    "cleanable_bytes",
    "cleanable_range",
    "record_cleaned",
]

logger = logging.getLogger(__name__)

# Deleted, closed or failed in the meantime; a failure is reported where it occurred.
REPORTED_ELSEWHERE = (UnknownTopicOrPartitionError, LogClosedError, LogOfflineError)


@dataclass(frozen=True, slots=True)
class SelectionResult:
    """
    Result of a selection among all compacted logs.

    Attributes:
        at_ms: its time, by the wall clock.
        max_dirty_ratio: dirty ratio of the dirtiest log.
        max_delay_ms: delay of the most overdue log.
        candidates: the logs, but for those that failed or were being cleaned.
    """

    at_ms: int
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    candidates: tuple[CleaningCandidate, ...] = ()


def cleanable_range(
    partition: ManagedPartition, log: Log, now_ms: int
) -> tuple[LogCleaningFacts, CleanableRange]:
    """
    Return the cleaning facts of a log and its cleanable range; correct its checkpoint.

    Raises:
        LogStorageError, CorruptRecordError: a segment cannot be read.
    """
    name, notes = partition.topic_partition, partition.directory.checkpoints.cleaner_offsets
    min_lag_ms = log.config.min_compaction_lag_ms
    # Times cost a read of each segment.
    facts = cleaner_access(log).cleaning_facts(with_times=_depends_on_time(log))
    span = compute_cleanable_range(
        facts, checkpoint=notes.get(name), now_ms=now_ms, min_lag_ms=min_lag_ms
    )
    if span.reset is not None:
        # Expected if old segments are deleted, which moves the log start.
        level = logging.INFO if log.config.is_deleted else logging.WARNING
        logger.log(level, "%s: cleaning begins at %d: %s", name, span.first_dirty, span.reset.value)
        record_cleaned(partition, span.first_dirty)
    return facts, span


def cleanable_bytes(partition: ManagedPartition) -> int:
    """Return the size of the segments since the last cleaning, without the active one."""
    directory, name = partition.directory, partition.topic_partition
    begin = directory.checkpoints.cleaner_offsets.get(name) or 0
    path = directory.path / partition_directory_name(name)
    try:
        found = directory.filesystem.extents(path, FileKind.LOG.value)
    except OSError:
        return 0
    sizes = sorted(
        (base, extent.size_bytes)
        for each, extent in found.items()
        if (base := live_base_offset(each, FileKind.LOG.value)) is not None
    )
    # A segment ends where the next one begins.
    return sum(size for (_, size), (following, _) in itertools.pairwise(sizes) if following > begin)


def record_cleaned(partition: ManagedPartition, offset: int) -> LogStorageError | None:
    """
    Checkpoint the start of the next cleaning; return the error if the disk refused.

    After an error, the value is cached and written with the next change. After a crash before that,
    the same records are cleaned again.
    """
    notes, name = partition.directory.checkpoints.cleaner_offsets, partition.topic_partition
    try:
        notes.write_through(name, offset)
    except LogStorageError as error:
        logger.warning("%s: the end of its cleaning was not checkpointed: %s", name, error)
        notes.set(name, offset)
        return error
    return None


class LogSelection:
    """
    Selects logs.

    Args:
        registry: the partitions.
        settings: settings of topics.
        states: states of the partitions.
        history: faults of earlier cleanings.
        open_log: returns the log of a partition, which it opens if necessary.
        clock: measures lags.

    Attributes:
        last_result: result of the last selection, None before the first.
    """

    def __init__(
        self,
        registry: PartitionRegistry,
        settings: TopicSettings,
        states: CleaningStates,
        history: CleaningHistory,
        open_log: Callable[[ManagedPartition], Log],
        clock: Clock,
    ) -> None:
        self.last_result: SelectionResult | None = None
        self._registry = registry
        self._settings = settings
        self._states = states
        self._history = history
        self._open_log = open_log
        self._clock = clock
        self._selection_lock = threading.Lock()
        # Results of the last selection, with the state of the log that they depend on.
        self._cached: dict[TopicPartition, tuple[tuple[object, ...], CleaningCandidate]] = {}

    def compacted(self) -> list[ManagedPartition]:
        """Return the compacted partitions that may be used."""
        settings = self._settings
        compacted = [
            topic
            for topic in self._registry.topic_names()
            if settings.config_of(topic).is_compacted
        ]
        return [
            partition
            for topic in sorted(compacted)
            for partition in self._registry.of_topic(topic)
            if partition.directory.is_online and not partition.is_duplicate
        ]

    def begin_next(self) -> tuple[ManagedPartition, CleaningRun] | None:
        """Select a log and begin its cleaning; None if no log is due."""
        with self._selection_lock:
            candidates = self._find_candidates()
            while True:
                chosen = choose_log(candidates)
                if chosen is None:
                    return None
                partition = chosen.name
                assert isinstance(partition, ManagedPartition)
                run = self._states.begin(partition.topic_partition)
                if run is not None:
                    return partition, run
                # Another thread has begun to clean it, or has paused it.
                candidates.remove(chosen)

    def _find_candidates(self) -> list[CleaningCandidate]:
        now_ms = self._clock.now_ms()
        candidates = list(self._candidates(now_ms))
        self.last_result = SelectionResult(
            now_ms,
            max((each.dirty_ratio for each in candidates), default=0.0),
            max((each.delay_ms for each in candidates), default=0),
            tuple(candidates),
        )
        return candidates

    def _candidates(self, now_ms: int) -> Iterator[CleaningCandidate]:
        before, self._cached = self._cached, {}
        for partition in self.compacted():
            name = partition.topic_partition
            if self._states.is_stopped:
                return
            if self._states.is_busy(name) or self._history.is_waiting(name):
                continue
            try:
                candidate = self._find_candidate(partition, now_ms, before.get(name))
            except REPORTED_ELSEWHERE:
                continue
            except Exception as error:  # noqa: BLE001 - kept, bound to the partition
                self._history.record_failure(partition, error)
                continue
            if candidate.clean_bytes + candidate.cleanable_bytes:
                yield candidate

    def _find_candidate(
        self,
        partition: ManagedPartition,
        now_ms: int,
        before: tuple[tuple[object, ...], CleaningCandidate] | None,
    ) -> CleaningCandidate:
        log = self._open_log(partition)
        seen = _state_of(partition, log)
        if before is None or before[0] != seen or _depends_on_time(log):
            before = seen, self._recompute(partition, log, now_ms)
        self._cached[partition.topic_partition] = before
        return before[1]

    def _recompute(self, partition: ManagedPartition, log: Log, now_ms: int) -> CleaningCandidate:
        facts, span = cleanable_range(partition, log, now_ms)
        config = log.config
        return cleaning_candidate(
            partition,
            facts,
            span,
            now_ms=now_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            min_dirty_ratio=config.min_cleanable_dirty_ratio,
        )


def _depends_on_time(log: Log) -> bool:
    """Return whether the cleanable range of a log depends on the age of its records."""
    config = log.config
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX


def _state_of(partition: ManagedPartition, log: Log) -> tuple[object, ...]:
    """Return the state that a candidate depends on, except time. Appends do not change it."""
    segments = log.segments()
    checkpoint = partition.directory.checkpoints.cleaner_offsets.get(partition.topic_partition)
    decided = min(log.last_stable_offset, segments[-1].base_offset)
    return (partition, log, log.config, segments, log.log_start_offset, decided, checkpoint)
