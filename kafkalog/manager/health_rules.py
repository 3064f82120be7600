"""Rules of `LogManager.health`: figures that are beyond their thresholds.

    rule              finding                                                          setting
    slow disk         syncs take long, or one does not end                 kafkalog.health.sync.ms
    full disk         little space is free                              kafkalog.health.free.bytes
    cleaner stuck     no selection, a dead thread, or an overdue log
                                                                kafkalog.health.cleaner.delay.ms
    retention overdue a segment, or the task, is overdue      kafkalog.health.retention.delay.ms

A threshold of 0 switches its rule off.

Thread-safety: the functions only read, from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkalog.files.machine import DiskSpace
from kafkalog.log.meters import DiskMeters
from kafkalog.log.retention_plan import RetentionDebt
from kafkalog.manager.cleaning.health import CleanerHealth
from kafkalog.manager.health import HealthFinding, TaskHealth
from kafkalog.manager_config import HealthConfig
from kafkalog.model import TopicPartition

__all__ = ["cleaner_stuck", "full_disks", "retention_overdue", "slow_disks"]

SLOW_DISK: Final = "slow disk"
FULL_DISK: Final = "full disk"
CLEANER_STUCK: Final = "cleaner stuck"
RETENTION_OVERDUE: Final = "retention overdue"

# Age up to which syncs count.
_RECENT_NS: Final = 300 * 10**9
_NS_IN_MS: Final = 10**6
# A file system that is smaller than so many times the threshold has a smaller one.
_SMALL_DISK: Final = 10


def slow_disks(disks: Mapping[Path, DiskMeters], config: HealthConfig) -> Iterator[HealthFinding]:
    """Yield the data directories whose syncs are slow, or hang."""
    limit_ms = config.sync_ms
    if not limit_ms:
        return
    for path, meters in disks.items():
        slow_ms = meters.syncs.slow_ns(_RECENT_NS) / _NS_IN_MS
        running_ms = meters.syncs.longest_running_ns() / _NS_IN_MS
        if running_ms > limit_ms:
            text = f"a sync has not ended for {running_ms:.0f} ms"
        elif slow_ms > limit_ms:
            text = f"one in ten of the latest syncs took more than {slow_ms:.0f} ms"
        else:
            continue
        value = max(slow_ms, running_ms)
        yield HealthFinding(SLOW_DISK, path, text, value, "kafkalog.health.sync.ms", limit_ms)


def full_disks(spaces: Mapping[Path, DiskSpace], config: HealthConfig) -> Iterator[HealthFinding]:
    """Yield the data directories with little free space."""
    for path, space in spaces.items():
        limit = min(config.free_bytes, space.total_bytes // _SMALL_DISK)
        free = space.available_bytes
        if free < limit:
            text = f"{free} bytes of {space.total_bytes} are free, fewer than {limit}"
            yield HealthFinding(FULL_DISK, path, text, free, "kafkalog.health.free.bytes", limit)


def cleaner_stuck(cleaner: CleanerHealth, config: HealthConfig) -> Iterator[HealthFinding]:
    """Yield the reasons for which compaction does not keep up."""
    limit_ms, key = config.cleaner_delay_ms, "kafkalog.health.cleaner.delay.ms"
    if not limit_ms or not cleaner.is_enabled or not cleaner.thread_count:
        return
    if cleaner.dead_count:
        text = f"{cleaner.dead_count} of {cleaner.thread_count} threads ended by an error"
        yield HealthFinding(CLEANER_STUCK, None, text, cleaner.dead_count, key, 0)
    age_ms = cleaner.time_since_last_look_ms
    if age_ms is not None and age_ms > limit_ms:
        text = f"no log was selected for {age_ms} ms"
        yield HealthFinding(CLEANER_STUCK, None, text, age_ms, key, limit_ms)
    if cleaner.max_delay_ms > limit_ms:
        text = f"a log is {cleaner.max_delay_ms} ms late after max.compaction.lag.ms"
        yield HealthFinding(CLEANER_STUCK, None, text, cleaner.max_delay_ms, key, limit_ms)


def retention_overdue(
    debts: Iterable[tuple[TopicPartition, RetentionDebt]],
    tasks: Iterable[TaskHealth],
    now_ms: int,
    config: HealthConfig,
) -> Iterator[HealthFinding]:
    """Yield the partitions with overdue segments, and the task if it is late."""
    limit_ms, key = config.retention_delay_ms, "kafkalog.health.retention.delay.ms"
    if not limit_ms:
        return
    for task in tasks:
        late_ms = 0 if task.next_run_ms is None else now_ms - task.next_run_ms
        if task.name == "kafka-log-retention" and late_ms > limit_ms:
            text = f"the task is {late_ms} ms late"
            yield HealthFinding(RETENTION_OVERDUE, None, text, late_ms, key, limit_ms)
    for name, debt in debts:
        if debt.overdue_ms > limit_ms:
            text = (
                f"{debt.segment_count} segments of {debt.size_bytes} bytes are still there, "
                f"{debt.overdue_ms} ms after retention.ms"
            )
            yield HealthFinding(RETENTION_OVERDUE, name, text, debt.overdue_ms, key, limit_ms)
