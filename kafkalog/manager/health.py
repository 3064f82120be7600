"""Health of a manager: directories, tasks, faults, and the state of the open logs.

The functions read open logs only; they open no log and read no segment.

Thread-safety: values are immutable; functions may be called from any thread. A log's lock is taken
if the log has transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog.errors import KafkaLogError
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.log import Log, partition_of
from kafkalog.log.report import RecoveryReport, RepairedIndex
from kafkalog.manager.cleaning.health import CleanerHealth
from kafkalog.manager.registry import PartitionRegistry
from kafkalog.model import OngoingTransaction, TopicPartition

__all__ = [
    "FULL",
    "READ",
    "DirectoryHealth",
    "Fault",
    "HealthFinding",
    "ManagerHealth",
    "StrayPartition",
    "Subject",
    "TaskHealth",
    "damage",
    "late_transactions",
    "recoveries",
    "repaired",
]

# Name of the fault of records that a producer could not append to a full disk.
FULL: Final = "append"
# Name of the fault of a record in Kafka's internal topics that cannot be read.
READ: Final = "read"
# Grace period of Kafka's coordinators beyond the largest transaction timeout.
_GRACE_MS: Final = 300_000

# Subject of an error: a partition, a directory, or None for a task as a whole.
Subject = TopicPartition | Path | None


@dataclass(frozen=True, slots=True)
class DirectoryHealth:
    """
    Health of a data directory.

    Attributes:
        path: its path.
        is_online: whether it is in use.
        error: reason that it is offline, None while it is online.
        partition_count: number of its known partitions.
        open_count: number of its open logs.
        kept_aside: names of stray and moving directories, which are left alone.
        unknown: names of directories without a partition's name.
    """

    path: Path
    is_online: bool
    error: BaseException | None
    partition_count: int
    open_count: int
    kept_aside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StrayPartition:
    """
    A partition directory whose topic id is not that of the topic of its name; it is not served.

    Attributes:
        topic_partition: topic and partition in its name.
        path: the partition directory; it is not changed.
        topic_id: the topic id in its `partition.metadata`, None if the file has no id.
        expected_id: the id of the topic of that name, None if it is not known.
    """

    topic_partition: TopicPartition
    path: Path
    topic_id: str | None
    expected_id: str | None


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """
    Health of a periodic task.

    Attributes:
        name: its name.
        period_ms: time between two runs.
        run_count: number of its runs.
        last_run_ms: start of its last run, None before the first.
        next_run_ms: time of its next run.
        last_error: latest error of a subject that still fails; None if no subject fails.
        failure_count: number of subjects that fail now.
    """

    name: str
    period_ms: int
    run_count: int
    last_run_ms: int | None
    next_run_ms: int | None
    last_error: Exception | None
    failure_count: int


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A failure that no later success has cleared.

    Attributes:
        task: name of a task, "open", or "read" for a record of Kafka's internal topics that cannot
            be parsed.
        subject: the partition or directory of the failure, None for the task as a whole.
        error: the latest error.
        failure_count: number of failures in a row.
        first_ms, last_ms: times of the first and the latest failure.
        next_retry_ms: time of the next attempt; None if it is not known or left to a caller.
    """

    task: str
    subject: Subject
    error: BaseException
    failure_count: int
    first_ms: int
    last_ms: int
    next_retry_ms: int | None


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """
    A figure beyond its threshold.

    Attributes:
        rule: "slow disk", "full disk", "cleaner stuck" or "retention overdue".
        subject: the data directory or partition, None for the manager as a whole.
        text: the finding in words.
        value: the figure, in the unit of the setting.
        setting: key of the threshold in `ManagerConfig`.
        threshold: the threshold that applied.
    """

    rule: str
    subject: Subject
    text: str
    value: float
    setting: str
    threshold: float


@dataclass(frozen=True, slots=True)
class ManagerHealth:
    """
    Result of `LogManager.health`.

    Attributes:
        directories: the data directories, in their order.
        tasks: the periodic tasks, by name.
        faults: all present faults, by task and subject.
        cleaner: health of compaction.
        damage: corrupt ranges of open logs that recovery or readers have found, and holes between
            segments that the first run of retention has found.
        late_transactions: transactions of open logs that have been idle for five minutes longer
            than `transaction.max.timeout.ms`. They block readers of committed records; end them
            with `Log.abort_transaction`.
        stray_partitions: partition directories of other topics than those of their names.
        recoveries: recovery reports of open logs with damage: something was cut, marked
            corrupt, refused, repaired or ignored. A torn tail that was cut is a result of a crash,
            and the manager counts as healthy.
        held_bytes: disk space of deleted files that readers still use; it is freed when the last
            reader closes them.
        repaired: transaction indexes of open logs that contradicted their segments. The manager
            counts as healthy if they were rewritten.
        findings: figures beyond the thresholds of the config (`ManagerConfig.health`).
    """

    directories: tuple[DirectoryHealth, ...]
    tasks: tuple[TaskHealth, ...]
    faults: tuple[Fault, ...]
    cleaner: CleanerHealth
    damage: Mapping[TopicPartition, tuple[CorruptRange, ...]] = field(default_factory=dict)
    late_transactions: Mapping[TopicPartition, tuple[OngoingTransaction, ...]] = field(
        default_factory=dict
    )
    stray_partitions: tuple[StrayPartition, ...] = ()
    recoveries: Mapping[TopicPartition, RecoveryReport] = field(default_factory=dict)
    held_bytes: int = 0
    repaired: Mapping[TopicPartition, tuple[RepairedIndex, ...]] = field(default_factory=dict)
    findings: tuple[HealthFinding, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """
        True if nothing needs an operator.

        All directories are online; there are no faults, damage, strays, late transactions, and no
        figures beyond their thresholds.
        """
        refused = [each for each in self.recoveries.values() if each.refused_swaps]
        unwritten = [
            each for indexes in self.repaired.values() for each in indexes if not each.is_written
        ]
        troubles = (
            self.faults,
            self.damage,
            self.late_transactions,
            self.stray_partitions,
            refused,
            unwritten,
            self.findings,
        )
        return not any(troubles) and all(each.is_online for each in self.directories)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions with a fault."""
        found = {each.subject for each in self.faults if isinstance(each.subject, TopicPartition)}
        return tuple(sorted(found))


def damage(registry: PartitionRegistry) -> dict[TopicPartition, tuple[CorruptRange, ...]]:
    """Return the known corrupt ranges of open logs, by partition."""
    found = {}
    for log in _open_logs(registry):
        try:
            corrupt_ranges = log.corrupt_ranges()
        except KafkaLogError:
            continue
        if corrupt_ranges:
            found[log.topic_partition] = corrupt_ranges
    return found


def recoveries(registry: PartitionRegistry) -> dict[TopicPartition, RecoveryReport]:
    """Return the recovery reports of open logs with damage, by partition."""
    reports = {log.topic_partition: log.recovery_report for log in _open_logs(registry)}
    return {name: report for name, report in reports.items() if report.found_damage}


def repaired(registry: PartitionRegistry) -> dict[TopicPartition, tuple[RepairedIndex, ...]]:
    """Return the transaction indexes that contradicted their segments, by partition."""
    found = {}
    for log in _open_logs(registry):
        with contextlib.suppress(KafkaLogError):
            if indexes := log.repaired_indexes():
                found[log.topic_partition] = indexes
    return found


def late_transactions(
    registry: PartitionRegistry, timeout_ms: int
) -> dict[TopicPartition, tuple[OngoingTransaction, ...]]:
    """Return transactions of open logs that have been idle too long, by partition."""
    found = {}
    for log in _open_logs(registry):
        try:
            # Without the lock; for most logs this is the only check.
            if partition_of(log).view.first_unstable_offset is None:
                continue
            late = [
                each for each in log.list_transactions() if each.idle_ms > timeout_ms + _GRACE_MS
            ]
        except KafkaLogError:
            # Closed or failed in the meantime; a failure is reported where it occurred.
            continue
        if late:
            found[log.topic_partition] = tuple(late)
    return found


def _open_logs(registry: PartitionRegistry) -> Iterator[Log]:
    for partition in registry.all():
        log = partition.usable_log
        if log is not None:
            yield log
