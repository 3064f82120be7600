"""`compact_log`: cleaning of one log, without a manager.

Thread-safety: one call for a log at a time; other threads may use the log during the call.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.cleaning_result import CleaningProgress, CleaningResult
from kafkalog.cleaner.selection import cleanable_range
from kafkalog.errors import ConfigError
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import Log, partition_of
from kafkalog.manager_config import CleanerConfig

__all__ = ["compact_log"]


def compact_log(
    log: Log,
    *,
    include_active: bool = False,
    config: CleanerConfig | None = None,
    memory_bytes: int | None = None,
    throttle: Callable[[int], object] | None = None,
    on_progress: Callable[[CleaningProgress], object] | None = None,
) -> CleaningResult:
    """
    Clean a log: keep the latest record of each key.

    The cleaning starts where the last one ended, by the `cleaner-offset-checkpoint` of the data
    directory, or of a standalone partition directory, and writes its own end there. Prefer
    `LogManager.compact` for a log of a manager: it reports the cleaning in its health. The threads
    of a manager do not clean the log during this call.

    Args:
        log: open for writing, its `cleanup.policy` with compact.
        include_active: whether to begin a new segment first, so that everything is cleaned that
            `min.compaction.lag.ms` and open transactions allow.
        config: settings of compaction; Kafka's if None.
        memory_bytes: size of the offset map; by default the share of one thread by the settings.
        throttle: called with the bytes of each run that was read or written; it may wait.
        on_progress: called with the progress of each run.

    Raises:
        ConfigError: the `cleanup.policy` of the log does not include compact.
        CorruptRecordError: a batch is damaged; the error names file and position.
        LogCleaningAbortedError: the log was closed, truncated or cut at its start during the call.
        DiskFullError, LogStorageError: the disk failed; nothing is lost.
    """
    if not log.config.is_compacted:
        policy = ",".join(log.config.cleanup_policy)
        raise ConfigError(f"{log.directory} is not to be compacted: cleanup.policy = {policy}")
    cleaner = Cleaner(
        config or CleanerConfig(),
        memory_bytes=memory_bytes,
        clock=cleaner_access(log).context.clock,
        throttle=throttle,
    )
    with partition_of(log).gate.pause_cleaning():
        return _compact(log, cleaner, include_active=include_active, on_progress=on_progress)


def _compact(
    log: Log,
    cleaner: Cleaner,
    *,
    include_active: bool,
    on_progress: Callable[[CleaningProgress], object] | None,
) -> CleaningResult:
    if include_active:
        log.roll()
    access = cleaner_access(log)
    min_lag_ms = log.config.min_compaction_lag_ms
    span = cleanable_range(
        access.cleaning_facts(with_times=min_lag_ms > 0),
        checkpoint=access.cleaner_offset,
        now_ms=cleaner.clock.now_ms(),
        min_lag_ms=min_lag_ms,
    )
    cleaning = cleaner.clean(log, span, on_progress=on_progress)
    access.checkpoint_cleaner_offset(cleaning.end_offset)
    return cleaning
