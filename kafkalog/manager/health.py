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
    "READ",
    "DirectoryHealth",
    "Fault",
    "ManagerHealth",
    "StrayPartition",
    "Subject",
    "TaskHealth",
    "damage",
    "late_transactions",
    "recoveries",
    "repaired",
]

# What the fault registry calls the reading of a record of Kafka's own topics.
READ: Final = "read"
# What Kafka gives a coordinator beyond the longest time that a transaction may take.
_GRACE_MS: Final = 300_000

# What an error concerns: a partition, a directory, or a task as a whole.
Subject = TopicPartition | Path | None


@dataclass(frozen=True, slots=True)
class DirectoryHealth:
    """
    A data directory.

    Attributes:
        path: where.
        is_online: whether it is used.
        error: why not, None where it is.
        partition_count: partitions that lie in it, as far as is known.
        open_count: those of them whose log is open.
        kept_aside: names of stray and moving directories, which are left alone.
        unknown: names of directories that are no partition's.
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
    A partition directory of another topic than the one of its name: served to nobody.

    Attributes:
        topic_partition: topic and partition that its name says.
        path: the partition directory; it is left as it is.
        topic_id: the topic id in its `partition.metadata`, None where that has none.
        expected_id: the id of the topic of that name, None where nobody knows which is right.
    """

    topic_partition: TopicPartition
    path: Path
    topic_id: str | None
    expected_id: str | None


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """
    A periodic task of the manager.

    Attributes:
        name: what it is called.
        period_ms: time between two runs.
        run_count: how often it ran.
        last_run_ms: when its last run began, None before the first.
        next_run_ms: when its next run is due.
        last_error: what went wrong the last time, for whatever it concerned; None where all went
            well since.
        failure_count: how many of the things that it works on fail now.
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
    Something that went wrong, and has not gone well since.

    Attributes:
        task: what was being done: the name of a task, "open", or "read" for a record of Kafka's own
            topics that cannot be understood.
        subject: the partition or directory that it concerns, None for the task as a whole.
        error: what happened last.
        failure_count: how often in a row.
        first_ms, last_ms: when it happened the first and the last time.
        next_retry_ms: when it is tried again; None where that is not known, or up to a caller.
    """

    task: str
    subject: Subject
    error: BaseException
    failure_count: int
    first_ms: int
    last_ms: int
    next_retry_ms: int | None


@dataclass(frozen=True, slots=True)
class ManagerHealth:
    """
    What `LogManager.health` tells.

    Attributes:
        directories: the data directories, in their order.
        tasks: the periodic tasks, by name.
        faults: everything that does not go well now, by task and subject.
        cleaner: how compaction goes.
        damage: damaged ranges of the logs that are open, as far as recovery and readers met them;
            holes between segments also as the first run of retention did.
        late_transactions: transactions in these logs that are open for longer than
            `transaction.max.timeout.ms` and five minutes: they hang, and with them who reads
            committed records (`Log.abort_transaction`).
        stray_partitions: partition directories of other topics than those of their names.
        recoveries: what opening found in open logs in which it cut, fenced, refused, repaired or
            ignored something. A torn tail that was cut is the trace of a crash, and leaves the
            manager healthy.
        held_bytes: disk space of files that left their logs, and that readers still hold: it comes
            back when the last of them lets go.
        repaired: transaction indexes of open logs that contradicted their segments. One that was
            rewritten leaves the manager healthy.
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

    @property
    def is_healthy(self) -> bool:
        """True if every directory is online, and nothing fails, is damaged, stray or hangs."""
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
        )
        return not any(troubles) and all(each.is_online for each in self.directories)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that something failed for."""
        found = {each.subject for each in self.faults if isinstance(each.subject, TopicPartition)}
        return tuple(sorted(found))


def damage(registry: PartitionRegistry) -> dict[TopicPartition, tuple[CorruptRange, ...]]:
    """Return the damaged ranges that are known, by partition."""
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
    """Return what opening found in logs in which it found damage, by partition."""
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
    """Return the transactions that have been silent for longer than one may take."""
    found = {}
    for log in _open_logs(registry):
        try:
            # Without the lock, and of most logs no more than this.
            if partition_of(log).view.first_unstable_offset is None:
                continue
            late = [
                each for each in log.list_transactions() if each.idle_ms > timeout_ms + _GRACE_MS
            ]
        except KafkaLogError:
            # Closed or failed meanwhile; told by whoever met it.
            continue
        if late:
            found[log.topic_partition] = tuple(late)
    return found


def _open_logs(registry: PartitionRegistry) -> Iterator[Log]:
    for partition in registry.all():
        log = partition.usable_log
        if log is not None:
            yield log
