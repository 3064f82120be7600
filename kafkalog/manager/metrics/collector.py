"""Collection of the metrics of a manager into a snapshot.

Counters and histograms are read as they are, one after the other: a snapshot is not of one moment.
No log is opened for it, except those of `__consumer_offsets` that have records, for the lag of
groups.

Thread-safety: every method from any thread, during all uses of the manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalog._engine.histogram import Histogram
from kafkalog.clients.clients import Clients
from kafkalog.files.pool import FilePool
from kafkalog.log.retention_plan import RetentionDebt
from kafkalog.manager.cleaning.compaction import Compaction
from kafkalog.manager.deleted_directories import DeletedDirectories
from kafkalog.manager.directory_group import DirectoryGroup
from kafkalog.manager.health import DirectoryHealth
from kafkalog.manager.metrics.definitions import DEFINITIONS
from kafkalog.manager.metrics.disk_space import free_space
from kafkalog.manager.metrics.meters import ManagerMeters
from kafkalog.manager.metrics.partitions import PartitionFigures, PartitionReader
from kafkalog.manager.metrics.snapshot import (
    HistogramValue,
    MetricDefinition,
    MetricFamily,
    MetricSample,
    MetricsSnapshot,
)
from kafkalog.manager.supervision import Supervisor
from kafkalog.model import TopicPartition

__all__ = ["MetricsCollector", "MetricsSources"]

_NS: Final = 10**9
_MS: Final = 1000

# Metric -> count of `LogCounters`.
_COUNTERS: Final = {
    "kafkalog_log_appends_total": "append_count",
    "kafkalog_log_appended_records_total": "appended_records",
    "kafkalog_log_appended_batches_total": "appended_batches",
    "kafkalog_log_appended_bytes_total": "appended_bytes",
    "kafkalog_log_read_records_total": "read_records",
    "kafkalog_log_read_bytes_total": "read_bytes",
    "kafkalog_log_deleted_segments_total": "deleted_segments",
    "kafkalog_log_deleted_bytes_total": "deleted_bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSources:
    """Parts of a manager that have figures."""

    meters: ManagerMeters
    partitions: PartitionReader
    directories: DirectoryGroup
    deleted_directories: DeletedDirectories
    pool: FilePool
    clients: Clients
    compaction: Compaction
    supervisor: Supervisor


class _Samples:
    """
    Samples under construction.

    Args:
        merges_partitions: whether the partitions of a topic have one sample.
    """

    def __init__(self, *, merges_partitions: bool) -> None:
        self._merges_partitions = merges_partitions
        self._found: dict[str, dict[tuple[str, ...], float | HistogramValue]] = {
            name: {} for name in DEFINITIONS
        }

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a value, unless it is unknown; it is merged with one of the same labels."""
        definition = DEFINITIONS[name]
        if value is None:
            return
        if self._merges_partitions and "partition" in definition.labels:
            if definition.merge == "drop":
                return
            labels = labels[: definition.labels.index("partition")]
        found = self._found[name]
        before = found.get(labels)
        if isinstance(before, int | float):
            value = max(before, value) if definition.merge == "max" else before + value
        found[labels] = value

    def add_histogram(self, name: str, histogram: Histogram, scale: int, *labels: str) -> None:
        """Add a histogram whose values are in so many parts of the unit."""
        counts, total = histogram.counts()
        bounds = [*(bound / scale for bound in histogram.bounds), float("inf")]
        cumulative, buckets = 0, []
        for bound, count in zip(bounds, counts, strict=True):
            cumulative += count
            buckets.append((bound, cumulative))
        self._found[name][labels] = HistogramValue(tuple(buckets), total / scale)

    def families(self) -> Iterator[MetricFamily]:
        """Yield all metrics, those without samples, too."""
        for name, definition in DEFINITIONS.items():
            samples = sorted(self._found[name].items(), key=lambda each: _order(each[0]))
            yield MetricFamily(
                self._definition(definition),
                tuple(MetricSample(labels, value) for labels, value in samples),
            )

    def _definition(self, definition: MetricDefinition) -> MetricDefinition:
        if not self._merges_partitions or "partition" not in definition.labels:
            return definition
        labels = tuple(each for each in definition.labels if each != "partition")
        return MetricDefinition(
            definition.name, definition.kind, labels, definition.help, definition.merge
        )


def _order(labels: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Return the order of labels: partitions by number."""
    return tuple((int(each) if each.isdecimal() else -1, each) for each in labels)


class MetricsCollector:
    """
    Collects the metrics of a manager.

    Args:
        sources: the parts that have figures.
        now_ms: returns the time.
    """

    def __init__(self, sources: MetricsSources, now_ms: Callable[[], int]) -> None:
        self._sources = sources
        self._now_ms = now_ms

    def collect(self, *, partitions: bool, groups: bool) -> MetricsSnapshot:
        """Return all metrics; see `LogManager.metrics`."""
        at_ms = self._now_ms()
        samples = _Samples(merges_partitions=not partitions)
        figures = self._sources.partitions.read_all()
        self._add_partitions(samples, figures)
        self._add_counters(samples, figures, with_removed=not partitions)
        self._add_directories(samples)
        self._add_pool(samples)
        self._add_openings(samples)
        self._add_producers(samples)
        if groups:
            self._add_groups(samples, {each.topic_partition: each for each in figures})
        self._add_tasks(samples, at_ms)
        self._add_cleaner(samples)
        return MetricsSnapshot(at_ms, tuple(samples.families()))

    def retention_debts(self) -> list[tuple[TopicPartition, RetentionDebt]]:
        """Return what retention has left in open logs."""
        return self._sources.partitions.debts()

    def _add_partitions(self, samples: _Samples, figures: Iterable[PartitionFigures]) -> None:
        for each in figures:
            labels = _labels(each.topic_partition)
            samples.add("kafkalog_log_start_offset", each.start_offset, *labels)
            samples.add("kafkalog_log_end_offset", each.end_offset, *labels)
            samples.add("kafkalog_log_durable_offset", each.durable_offset, *labels)
            if each.end_offset is not None and each.durable_offset is not None:
                unsynced = each.end_offset - each.durable_offset
                samples.add("kafkalog_log_unsynced_records", unsynced, *labels)
            samples.add("kafkalog_log_size_bytes", each.size_bytes, *labels)
            samples.add("kafkalog_log_segments", each.segment_count, *labels)
            samples.add("kafkalog_log_removed_bytes", each.removed_bytes, *labels)
            samples.add("kafkalog_log_damaged_ranges", each.damaged_ranges, *labels)
            samples.add("kafkalog_log_damaged_bytes", each.damaged_bytes, *labels)
            debt = each.debt
            samples.add("kafkalog_retention_overdue_segments", debt.segment_count, *labels)
            samples.add("kafkalog_retention_overdue_bytes", debt.size_bytes, *labels)
            samples.add("kafkalog_retention_overdue_seconds", debt.overdue_ms / _MS, *labels)

    def _add_counters(
        self, samples: _Samples, figures: Sequence[PartitionFigures], *, with_removed: bool
    ) -> None:
        meters = self._sources.meters
        names = [each.topic_partition for each in figures]
        for name in names:
            counts = meters.counters_of(name)
            for metric, count in _COUNTERS.items():
                samples.add(metric, counts[count], *_labels(name))
        if with_removed:
            for topic, counts in meters.counts_of_others(names).items():
                for metric, count in _COUNTERS.items():
                    samples.add(metric, counts[count], topic, "")

    def _add_directories(self, samples: _Samples) -> None:
        sources = self._sources
        removed = sources.deleted_directories.waiting_bytes()
        for health in sources.directories.health():
            path = str(health.path)
            disk = sources.meters.disks[health.path]
            samples.add_histogram("kafkalog_append_seconds", disk.append, _NS, path)
            samples.add_histogram("kafkalog_commit_seconds", disk.commit, _NS, path)
            samples.add_histogram("kafkalog_sync_seconds", disk.syncs.histogram, _NS, path)
            samples.add_histogram("kafkalog_open_seconds", disk.open, _NS, path)
            samples.add_histogram("kafkalog_sync_callers", disk.sync_callers, 1, path)
            samples.add_histogram("kafkalog_commit_logs", disk.commit_logs, 1, path)
            samples.add_histogram("kafkalog_commit_requests", disk.commit_requests, 1, path)
            running_ns = disk.syncs.longest_running_ns()
            samples.add("kafkalog_sync_running_seconds", running_ns / _NS, path)
            samples.add("kafkalog_directory_removed_bytes", removed.get(health.path, 0), path)
            self._add_directory(samples, health)

    def _add_directory(self, samples: _Samples, health: DirectoryHealth) -> None:
        path = str(health.path)
        samples.add("kafkalog_directory_online", int(health.is_online), path)
        samples.add("kafkalog_directory_partitions", health.partition_count, path)
        samples.add("kafkalog_directory_open_logs", health.open_count, path)
        space = free_space(health.path)
        if space is not None:
            samples.add("kafkalog_disk_free_bytes", space.available_bytes, path)
            samples.add("kafkalog_disk_size_bytes", space.total_bytes, path)

    def _add_pool(self, samples: _Samples) -> None:
        pool = self._sources.pool
        counters = pool.counters
        samples.add("kafkalog_pinned_bytes", pool.retired_bytes)
        samples.add("kafkalog_pool_hits_total", counters.file_hits, "file")
        samples.add("kafkalog_pool_hits_total", counters.mapping_hits, "mapping")
        samples.add("kafkalog_pool_misses_total", counters.file_misses, "file")
        samples.add("kafkalog_pool_misses_total", counters.mapping_misses, "mapping")
        samples.add("kafkalog_pool_entries", pool.open_count, "file")
        samples.add("kafkalog_pool_entries", pool.mapping_count, "mapping")

    def _add_openings(self, samples: _Samples) -> None:
        openings = self._sources.meters.openings
        samples.add("kafkalog_recoveries_total", openings.clean, "clean")
        samples.add("kafkalog_recoveries_total", openings.recovered, "recovered")
        samples.add("kafkalog_recoveries_total", openings.failed, "failed")
        samples.add("kafkalog_recovery_scanned_bytes_total", openings.scanned_bytes)
        samples.add("kafkalog_recovery_truncated_bytes_total", openings.truncated_bytes)

    def _add_producers(self, samples: _Samples) -> None:
        figures = self._sources.clients.figures()
        samples.add("kafkalog_producers", figures.producer_count)
        samples.add("kafkalog_producer_buffer_used_bytes", figures.reserved_bytes)
        samples.add("kafkalog_producer_buffer_size_bytes", figures.limit_bytes)
        samples.add("kafkalog_producer_waiting_batches", figures.waiting_batches)
        samples.add("kafkalog_producer_waiting_seconds", figures.oldest_ms / _MS)
        samples.add("kafkalog_producer_retries_total", figures.retry_count)
        samples.add("kafkalog_producer_failures_total", figures.failure_count)

    def _add_groups(
        self, samples: _Samples, figures: Mapping[TopicPartition, PartitionFigures]
    ) -> None:
        for group, offsets in self._sources.clients.group_offsets().items():
            for name, offset in offsets.items():
                end = None if name not in figures else figures[name].high_watermark
                lag = None if end is None else max(end - offset, 0)
                samples.add("kafkalog_group_lag_records", lag, group, *_labels(name))

    def _add_tasks(self, samples: _Samples, at_ms: int) -> None:
        supervisor = self._sources.supervisor
        for task in supervisor.health():
            samples.add("kafkalog_task_runs_total", task.run_count, task.name)
            late_ms = 0 if task.next_run_ms is None else max(at_ms - task.next_run_ms, 0)
            samples.add("kafkalog_task_overdue_seconds", late_ms / _MS, task.name)
            samples.add("kafkalog_faults", 0, task.name)
        for fault in supervisor.faults.all():
            samples.add("kafkalog_faults", 1, fault.task)

    def _add_cleaner(self, samples: _Samples) -> None:
        health = self._sources.compaction.health()
        for log in health.candidates:
            labels = _labels(log.topic_partition)
            samples.add("kafkalog_cleaner_dirty_ratio", log.dirty_ratio, *labels)
            samples.add("kafkalog_cleaner_cleanable_bytes", log.cleanable_bytes, *labels)
        samples.add("kafkalog_cleaner_threads", health.alive_count, "alive")
        samples.add("kafkalog_cleaner_threads", health.dead_count, "dead")
        totals = health.totals
        samples.add("kafkalog_cleaner_cleanings_total", health.cleaning_count)
        samples.add("kafkalog_cleaner_read_bytes_total", totals.bytes_read)
        samples.add("kafkalog_cleaner_written_bytes_total", totals.bytes_written)
        removed = totals.records_read - totals.records_kept
        samples.add("kafkalog_cleaner_removed_records_total", removed)
        samples.add("kafkalog_cleaner_throttled_seconds_total", health.throttled_ms / _MS)
        samples.add("kafkalog_cleaner_delay_seconds", health.max_delay_ms / _MS)
        if health.time_since_last_look_ms is not None:
            age_ms = max(health.time_since_last_look_ms, 0)
            samples.add("kafkalog_cleaner_selection_age_seconds", age_ms / _MS)
        for directory in self._sources.directories.health():
            path = str(directory.path)
            failing = [each for each in health.uncleanable if each.directory == directory.path]
            samples.add("kafkalog_cleaner_uncleanable_partitions", len(failing), path)
            samples.add(
                "kafkalog_cleaner_uncleanable_bytes",
                sum(each.size_bytes for each in failing),
                path,
            )


def _labels(name: TopicPartition) -> tuple[str, str]:
    return name.topic, str(name.partition)
