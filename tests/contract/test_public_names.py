"""The public surface of the package, frozen: a change of it is a change for users."""

from __future__ import annotations

import dataclasses

import kafkalog
from kafkalog import errors

NAMES = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "AbortedTransaction",
    "AllOf",
    "AppendInfo",
    "AppendOrigin",
    "BatchView",
    "BytesColumn",
    "CleanerConfig",
    "Clock",
    "Codec",
    "CodecEstimate",
    "ConfigChange",
    "ConfigError",
    "ConfigFileError",
    "ConversionProgress",
    "ConversionReport",
    "ConversionResult",
    "ConvertedFetch",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptStateError",
    "CutTail",
    "Diagnosis",
    "DirectoryConversion",
    "DiskFullError",
    "EpochEnd",
    "FencedRange",
    "FetchData",
    "FileSystem",
    "Finding",
    "ForkedLogError",
    "IgnoredProperty",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "KafkaLogError",
    "LeftOut",
    "Log",
    "LogCleaningAbortedError",
    "LogClosedError",
    "LogConfig",
    "LogConversion",
    "LogEstimate",
    "LogFacts",
    "LogLockedError",
    "LogOfflineError",
    "LogPermissionError",
    "LogStorageError",
    "ManagerConfig",
    "NotALogError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OngoingTransaction",
    "OutOfOrderSequenceError",
    "ProducerStateError",
    "ReadOnlyLogError",
    "Record",
    "RecordError",
    "RecordTooLargeError",
    "RecordValidationError",
    "RecoveryReport",
    "RetentionDecision",
    "RetentionPolicy",
    "RetentionReason",
    "Rewriting",
    "Scheduler",
    "SegmentConversion",
    "SegmentDeletion",
    "SegmentExplanation",
    "SegmentFacts",
    "ServerProperties",
    "Severity",
    "SizeRetention",
    "SystemClock",
    "ThreadScheduler",
    "TimeRetention",
    "TimestampOffset",
    "TopicConfigs",
    "TopicPartition",
    "TransactionCoordinatorFencedError",
    "UnsupportedCodecError",
    "UnsupportedForMessageFormatError",
    "convert_batches",
    "convert_directory",
    "convert_log",
    "estimate_codecs",
    "examine_directories",
    "open_log",
    "read_server_properties",
]

# Fields of what users build and receive; adding one at the end is allowed, and noted here.
FIELDS = {
    "AppendInfo": [
        "first_offset",
        "last_offset",
        "record_count",
        "batch_count",
        "size_bytes",
        "log_append_time_ms",
        "max_timestamp_ms",
        "shallow_offset_of_max_timestamp",
        "rewriting",
        "is_duplicate",
    ],
    "CleanerConfig": [
        "enable",
        "threads",
        "io_max_bytes_per_second",
        "dedupe_buffer_size",
        "io_buffer_size",
        "io_buffer_load_factor",
        "backoff_ms",
    ],
    "ConfigChange": ["at_once", "next_segment", "reopening"],
    "IgnoredProperty": ["key", "line", "reason"],
    "ManagerConfig": [
        "log_dirs",
        "num_recovery_threads_per_data_dir",
        "log_initial_task_delay_ms",
        "log_retention_check_interval_ms",
        "log_flush_scheduler_interval_ms",
        "log_flush_offset_checkpoint_interval_ms",
        "log_flush_start_offset_checkpoint_interval_ms",
        "replica_high_watermark_checkpoint_interval_ms",
        "producer_id_expiration_ms",
        "producer_id_expiration_check_interval_ms",
        "transaction_max_timeout_ms",
        "log",
        "cleaner",
    ],
    "LogFacts": ["now_ms", "log_start_offset", "log_end_offset", "limit_offset", "segments"],
    "RetentionDecision": ["delete_before", "reason"],
    "RetentionReason": ["policy", "text", "due_ms"],
    "SegmentDeletion": [
        "topic_partition",
        "path",
        "base_offset",
        "end_offset",
        "size_bytes",
        "cause",
        "reason",
        "log_start_offset",
        "at_ms",
    ],
    "SegmentExplanation": ["segment", "is_due", "reasons"],
    "SegmentFacts": [
        "base_offset",
        "end_offset",
        "size_bytes",
        "max_timestamp_ms",
        "file_time_ms",
        "is_active",
    ],
    "ServerProperties": ["config", "ignored"],
    "LogConfig": [
        "cleanup_policy",
        "retention_ms",
        "retention_bytes",
        "retention_future_guard",
        "delete_retention_ms",
        "min_compaction_lag_ms",
        "max_compaction_lag_ms",
        "file_delete_delay_ms",
        "max_message_bytes",
        "message_timestamp_type",
        "message_timestamp_before_max_ms",
        "message_timestamp_after_max_ms",
        "message_format_version",
        "flush_messages",
        "flush_ms",
        "decompressed_max_bytes",
        "segment_bytes",
        "segment_ms",
        "segment_jitter_ms",
        "segment_index_bytes",
        "index_interval_bytes",
        "preallocate",
        "min_cleanable_dirty_ratio",
        "compression_type",
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "batch_bytes",
        "open_files_max",
        "mappings_max",
    ],
}


def test_public_names_are_these() -> None:
    """Nothing came, nothing went, without this list being changed with it."""
    assert NAMES == list(kafkalog.__all__)


def test_public_names_exist_and_have_a_docstring() -> None:
    """What is promised is there, and `help` says something of it."""
    for name in NAMES:
        found = getattr(kafkalog, name)
        if not isinstance(found, int):
            assert found.__doc__, name


def test_public_names_contain_every_error() -> None:
    """Whoever catches an error can name it without looking for its module."""
    assert set(errors.__all__) <= set(NAMES)


def test_public_dataclasses_have_these_fields() -> None:
    """Names of fields are as public as names of classes."""
    for name, expected in FIELDS.items():
        fields = [field.name for field in dataclasses.fields(getattr(kafkalog, name))]
        assert expected == fields
