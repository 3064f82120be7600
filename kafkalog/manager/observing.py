"""What the open logs of a manager tell of themselves, for whoever looks after it.

Nothing is opened, woken or read for it.

Thread-safety: every function from any thread; a log's lock is taken where it has transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from kafkalog.errors import KafkaLogError
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.log import Log, partition_of
from kafkalog.log.report import RecoveryReport, RepairedIndex
from kafkalog.manager.registry import PartitionRegistry
from kafkalog.model import OngoingTransaction, TopicPartition

__all__ = ["READ", "damage", "late_transactions", "recoveries", "repaired"]

# What the fault registry calls the reading of a record of Kafka's own topics.
READ: Final = "read"
# What Kafka gives a coordinator beyond the longest time that a transaction may take.
_GRACE_MS: Final = 300_000


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
