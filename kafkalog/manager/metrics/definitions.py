"""Definitions of all metrics: names, kinds, labels and meanings.

`docs/metrics.md` has the same table, compared by a test. A name never changes its meaning.

Thread-safety: immutable values.
"""

from __future__ import annotations

from typing import Final

from kafkalog.manager.metrics.snapshot import MetricDefinition

__all__ = ["DEFINITIONS", "DIRECTORY", "GROUP", "PARTITION"]

PARTITION: Final = ("topic", "partition")
DIRECTORY: Final = ("directory",)
GROUP: Final = ("group", "topic", "partition")

_ALL: Final = (
    # ---------------------------------------------------------------------------- partitions
    MetricDefinition("kafkalog_log_appends_total", "counter", PARTITION, "Successful appends."),
    MetricDefinition(
        "kafkalog_log_appended_records_total", "counter", PARTITION,
        "Records that were appended, with markers of transactions.",
    ),
    MetricDefinition(
        "kafkalog_log_appended_batches_total", "counter", PARTITION, "Batches that were appended."
    ),
    MetricDefinition(
        "kafkalog_log_appended_bytes_total", "counter", PARTITION,
        "Bytes of the batches that were appended, compressed.",
    ),
    MetricDefinition(
        "kafkalog_log_read_records_total", "counter", PARTITION,
        "Records that look-ups, iterators, consumers and scans read, those of batches whole.",
    ),
    MetricDefinition(
        "kafkalog_log_read_bytes_total", "counter", PARTITION,
        "Bytes of slices (Log.read), and of the batches that iterators, consumers and scans read.",
    ),
    MetricDefinition(
        "kafkalog_log_deleted_segments_total", "counter", PARTITION,
        "Segments that retention, deletion of records and truncations removed.",
    ),
    MetricDefinition(
        "kafkalog_log_deleted_bytes_total", "counter", PARTITION,
        "Size of the .log files of segments that were removed.",
    ),
    MetricDefinition(
        "kafkalog_log_start_offset", "gauge", PARTITION, "Smallest offset that may be read.", "drop"
    ),
    MetricDefinition(
        "kafkalog_log_end_offset", "gauge", PARTITION, "Offset that the next record gets.", "drop"
    ),
    MetricDefinition(
        "kafkalog_log_durable_offset", "gauge", PARTITION,
        "Offset below which everything is on the disk.", "drop",
    ),
    MetricDefinition(
        "kafkalog_log_unsynced_records", "gauge", PARTITION,
        "Offsets from the durable offset to the end.",
    ),
    MetricDefinition(
        "kafkalog_log_size_bytes", "gauge", PARTITION, "Size of the .log files of the log (live)."
    ),
    MetricDefinition(
        "kafkalog_log_removed_bytes", "gauge", PARTITION,
        "Size of files that left the log and wait for file.delete.delay.ms (dead).",
    ),
    MetricDefinition("kafkalog_log_segments", "gauge", PARTITION, "Segments of the log."),
    MetricDefinition(
        "kafkalog_log_damaged_ranges", "gauge", PARTITION,
        "Corrupt ranges of an open log that recovery or readers have found.",
    ),
    MetricDefinition(
        "kafkalog_log_damaged_bytes", "gauge", PARTITION,
        "Size of the corrupt ranges of an open log.",
    ),
    MetricDefinition(
        "kafkalog_retention_overdue_segments", "gauge", PARTITION,
        "Segments of an open log that the next run of retention deletes.",
    ),
    MetricDefinition(
        "kafkalog_retention_overdue_bytes", "gauge", PARTITION,
        "Size of the segments that the next run of retention deletes.",
    ),
    MetricDefinition(
        "kafkalog_retention_overdue_seconds", "gauge", PARTITION,
        "Time since retention.ms of the oldest overdue segment was over.", "max",
    ),
    MetricDefinition(
        "kafkalog_cleaner_dirty_ratio", "gauge", PARTITION,
        "Share of a compacted log that was not cleaned, at the last selection.", "max",
    ),
    MetricDefinition(
        "kafkalog_cleaner_cleanable_bytes", "gauge", PARTITION,
        "Part of a compacted log that was not cleaned, without the active segment.",
    ),
    # --------------------------------------------------------------------------- directories
    MetricDefinition(
        "kafkalog_append_seconds", "histogram", DIRECTORY,
        "Time of one append of 16, with the wait for the log's lock, without a wait for the disk.",
    ),
    MetricDefinition(
        "kafkalog_commit_seconds", "histogram", DIRECTORY,
        "Time that a caller waited until its records were on the disk.",
    ),
    MetricDefinition(
        "kafkalog_sync_seconds", "histogram", DIRECTORY, "Time of a sync of a log."
    ),
    MetricDefinition(
        "kafkalog_open_seconds", "histogram", DIRECTORY,
        "Time of the opening of a log, with its recovery.",
    ),
    MetricDefinition(
        "kafkalog_sync_callers", "histogram", DIRECTORY, "Callers that a sync of a log served."
    ),
    MetricDefinition(
        "kafkalog_commit_logs", "histogram", DIRECTORY, "Logs of a group commit."
    ),
    MetricDefinition(
        "kafkalog_commit_requests", "histogram", DIRECTORY, "Callers of a group commit."
    ),
    MetricDefinition(
        "kafkalog_sync_running_seconds", "gauge", DIRECTORY,
        "Time since the start of the oldest sync that has not ended.",
    ),
    MetricDefinition(
        "kafkalog_disk_free_bytes", "gauge", DIRECTORY,
        "Free space of the file system, for users other than root.",
    ),
    MetricDefinition("kafkalog_disk_size_bytes", "gauge", DIRECTORY, "Size of the file system."),
    MetricDefinition(
        "kafkalog_directory_online", "gauge", DIRECTORY, "1 if the data directory is in use."
    ),
    MetricDefinition(
        "kafkalog_directory_partitions", "gauge", DIRECTORY, "Partitions of the data directory."
    ),
    MetricDefinition(
        "kafkalog_directory_open_logs", "gauge", DIRECTORY,
        "Open logs of the data directory.",
    ),
    MetricDefinition(
        "kafkalog_directory_removed_bytes", "gauge", DIRECTORY,
        "Size of deleted partitions that wait for file.delete.delay.ms (dead).",
    ),
    # ------------------------------------------------------------------------------- manager
    MetricDefinition(
        "kafkalog_pinned_bytes", "gauge", (),
        "Size of files that left their logs and that readers of this process still use.",
    ),
    MetricDefinition(
        "kafkalog_pool_hits_total", "counter", ("kind",),
        "Reads that found their file open (file) or mapped (mapping).",
    ),
    MetricDefinition(
        "kafkalog_pool_misses_total", "counter", ("kind",),
        "Reads that had to open (file) or map (mapping) their file.",
    ),
    MetricDefinition(
        "kafkalog_pool_entries", "gauge", ("kind",), "Open files and mappings that the pool keeps."
    ),
    MetricDefinition(
        "kafkalog_recoveries_total", "counter", ("result",),
        "Logs that were opened: clean after a stop in order, recovered after another, failed.",
    ),
    MetricDefinition(
        "kafkalog_recovery_scanned_bytes_total", "counter", (), "Bytes that recoveries scanned."
    ),
    MetricDefinition(
        "kafkalog_recovery_truncated_bytes_total", "counter", (),
        "Bytes of torn tails that recoveries cut.",
    ),
    MetricDefinition("kafkalog_producers", "gauge", (), "Open producers."),
    MetricDefinition(
        "kafkalog_producer_buffer_used_bytes", "gauge", (),
        "Part of buffer.memory that undelivered batches use, of all producers.",
    ),
    MetricDefinition(
        "kafkalog_producer_buffer_size_bytes", "gauge", (), "buffer.memory of all producers."
    ),
    MetricDefinition(
        "kafkalog_producer_waiting_batches", "gauge", (),
        "Batches that are full or due, and not written.",
    ),
    MetricDefinition(
        "kafkalog_producer_waiting_seconds", "gauge", (),
        "Age of the oldest batch that is full or due, and not written.",
    ),
    MetricDefinition(
        "kafkalog_producer_retries_total", "counter", (),
        "Writes of a partition's batches again after an error.",
    ),
    MetricDefinition(
        "kafkalog_producer_failures_total", "counter", (), "Batches that were not delivered."
    ),
    MetricDefinition(
        "kafkalog_group_lag_records", "gauge", GROUP,
        "Offsets from the committed position of a group to the high watermark.",
    ),
    # ------------------------------------------------------------------------ background work
    MetricDefinition("kafkalog_task_runs_total", "counter", ("task",), "Runs of a periodic task."),
    MetricDefinition(
        "kafkalog_task_overdue_seconds", "gauge", ("task",),
        "Time by which the next run of the task is late.",
    ),
    MetricDefinition(
        "kafkalog_faults", "gauge", ("task",), "Partitions and directories whose work fails now."
    ),
    MetricDefinition(
        "kafkalog_cleaner_threads", "gauge", ("state",), "Cleaner threads: alive, dead."
    ),
    MetricDefinition(
        "kafkalog_cleaner_cleanings_total", "counter", (), "Successful cleanings of a log."
    ),
    MetricDefinition(
        "kafkalog_cleaner_read_bytes_total", "counter", (), "Bytes that successful cleanings read."
    ),
    MetricDefinition(
        "kafkalog_cleaner_written_bytes_total", "counter", (),
        "Bytes that successful cleanings wrote.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_removed_records_total", "counter", (),
        "Records that successful cleanings removed.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_throttled_seconds_total", "counter", (),
        "Time that cleaner threads waited for log.cleaner.io.max.bytes.per.second.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_delay_seconds", "gauge", (),
        "Time by which the most overdue log exceeds max.compaction.lag.ms, at the last selection.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_selection_age_seconds", "gauge", (),
        "Time since the last selection of a log to clean.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_uncleanable_partitions", "gauge", DIRECTORY,
        "Partitions whose cleaning fails.",
    ),
    MetricDefinition(
        "kafkalog_cleaner_uncleanable_bytes", "gauge", DIRECTORY,
        "Size of the dirty parts of partitions whose cleaning fails.",
    ),
)  # fmt: skip

DEFINITIONS: Final = {each.name: each for each in sorted(_ALL, key=lambda each: each.name)}
