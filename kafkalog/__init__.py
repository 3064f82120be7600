"""
kafkalog: Apache Kafka's log as an embedded storage engine.

Opens partition directories in Kafka's on-disk format, appends, reads, looks up by offset and time,
rolls, truncates and recovers them. No broker, no network.

>>> import kafkalog
>>> with kafkalog.open_log("/data/orders-0") as log:
...     info = log.append([kafkalog.Record(key=b"k", value=b"v")], wait="durable")
...     values = [record.value for record in log.records(info.first_offset)]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from kafkalog._core.arrow_export import ArrowBatch
    from kafkalog._core.bytes_column import BytesColumn
    from kafkalog._core.headers_column import HeadersColumn
    from kafkalog._core.record import Record
    from kafkalog._engine.fetch_data import FetchData
    from kafkalog.cleaner.cleaning_result import (
        CleaningProgress,
        CleaningResult,
        CleaningStatistics,
    )
    from kafkalog.cleaner.compaction import compact_log
    from kafkalog.cleaner.explain import CompactionExplanation, CompactionRule, explain_compaction
    from kafkalog.cleaner.plan import plan_compaction
    from kafkalog.cleaner.plan_model import (
        CompactionBound,
        CompactionPlan,
        SegmentPlan,
        WaitingRecords,
    )
    from kafkalog.cleaner.survey import (
        KeySurvey,
        LogSurvey,
        SegmentSurvey,
        TombstoneSurvey,
        survey_log,
    )
    from kafkalog.clients.config import ConsumerConfig, ProducerConfig
    from kafkalog.clients.consumer import Consumer, ConsumerRecord, LostRecords
    from kafkalog.clients.delivery import Delivery, RecordMetadata
    from kafkalog.clients.many_records import SentMany, SentRange
    from kafkalog.clients.offset_records import CommittedOffset
    from kafkalog.clients.producer import Producer
    from kafkalog.clients.producer_sequence import ProducerSequence
    from kafkalog.clock import Clock, SystemClock
    from kafkalog.config import LogConfig
    from kafkalog.doctor.examine import examine_directories
    from kafkalog.doctor.findings import Diagnosis, Finding, Severity
    from kafkalog.errors import (
        BatchTooLargeError,
        BufferExhaustedError,
        ClientClosedError,
        ConfigError,
        ConfigFileError,
        CorruptIndexError,
        CorruptRecordError,
        CorruptStateError,
        DeliveryTimeoutError,
        DiskFullError,
        DuplicateSequenceError,
        FetchTooLargeError,
        ForkedLogError,
        InconsistentTopicIdError,
        InvalidProducerEpochError,
        InvalidRecordError,
        InvalidTimestampError,
        InvalidTopicError,
        InvalidTxnStateError,
        KafkaLogError,
        LogCleaningAbortedError,
        LogClosedError,
        LogLockedError,
        LogOfflineError,
        LogPermissionError,
        LogStorageError,
        NoOffsetForPartitionError,
        NotALogError,
        OffsetOutOfRangeError,
        OffsetOverflowError,
        OffsetsOutOfOrderError,
        OutOfOrderSequenceError,
        ProducerStateError,
        ReadOnlyLogError,
        RecordTooLargeError,
        RecordValidationError,
        TopicExistsError,
        TransactionAbortedError,
        TransactionCoordinatorFencedError,
        UnexpectedAppendOffsetError,
        UnknownTopicOrPartitionError,
        UnsupportedCodecError,
        UnsupportedForMessageFormatError,
    )
    from kafkalog.fetch import FetchReader, FetchReply, MultiFetchReply
    from kafkalog.files.filesystem import FileSystem
    from kafkalog.followers.follower import Follower, follow
    from kafkalog.followers.options import FollowedRecords, PartitionChange
    from kafkalog.indexes.transaction_index import AbortedTransaction
    from kafkalog.inspection.listing import ListedProblem, PartitionListing, list_partitions
    from kafkalog.inspection.record_reading import FoundRecord, RecordSelection, read_records
    from kafkalog.inspection.record_search import MatchedRecord, count_matches, search_records
    from kafkalog.inspection.tailing import tail_records
    from kafkalog.log.conversion.data_directory import DirectoryConversion, convert_directory
    from kafkalog.log.conversion.estimate import CodecEstimate, LogEstimate, estimate_codecs
    from kafkalog.log.conversion.outcome import (
        ConversionProgress,
        LogConversion,
        SegmentConversion,
        SkippedBytes,
    )
    from kafkalog.log.conversion.single_log import convert_log
    from kafkalog.log.corrupt_ranges import CorruptRange
    from kafkalog.log.deletion import SegmentDeletion
    from kafkalog.log.log import Log, scan
    from kafkalog.log.lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
    from kafkalog.log.opening import open_log
    from kafkalog.log.record_appender import RecordAppender
    from kafkalog.log.report import RecoveryReport, RefusedSwap, RepairedIndex, TruncatedTail
    from kafkalog.log.retention import (
        AllOf,
        LogFacts,
        RetentionDecision,
        RetentionPolicy,
        RetentionReason,
        SegmentFacts,
        SizeRetention,
        TimeRetention,
    )
    from kafkalog.log.retention_plan import SegmentExplanation
    from kafkalog.log.scan.arrays import BytesArray
    from kafkalog.log.scan.scan import Scan
    from kafkalog.manager.cleaning.health import (
        CleanerHealth,
        CleaningUnderWay,
        DirtyLog,
        UncleanablePartition,
    )
    from kafkalog.manager.health import (
        DirectoryHealth,
        Fault,
        HealthFinding,
        ManagerHealth,
        StrayPartition,
        TaskHealth,
    )
    from kafkalog.manager.manager import LogManager
    from kafkalog.manager.metrics.snapshot import (
        HistogramValue,
        MetricDefinition,
        MetricFamily,
        MetricSample,
        MetricsSnapshot,
    )
    from kafkalog.manager.recovery import RecoveryProgress
    from kafkalog.manager_config import CleanerConfig, HealthConfig, ManagerConfig
    from kafkalog.model import (
        ActiveProducer,
        AppendInfo,
        AppendOrigin,
        LoweredEpochs,
        OngoingTransaction,
        RecordError,
        Rewriting,
        TimestampOffset,
        TopicPartition,
    )
    from kafkalog.records.batch_view import BatchView
    from kafkalog.records.codecs import Codec
    from kafkalog.records.conversion.convert import ConversionResult, convert_batches
    from kafkalog.records.conversion.fetch import ConvertedFetch
    from kafkalog.records.conversion.report import ConversionReport
    from kafkalog.scheduler import Scheduler, ThreadScheduler
    from kafkalog.server_properties import (
        IgnoredProperty,
        ServerProperties,
        read_server_properties,
    )
    from kafkalog.settings import ConfigChange
    from kafkalog.state.leader_epochs import EpochEnd
    from kafkalog.topic_configs import TopicConfigs

__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "AbortedTransaction",
    "ActiveProducer",
    "AllOf",
    "AppendInfo",
    "AppendOrigin",
    "ArrowBatch",
    "BatchTooLargeError",
    "BatchView",
    "BufferExhaustedError",
    "BytesArray",
    "BytesColumn",
    "CleanerConfig",
    "CleanerHealth",
    "CleaningProgress",
    "CleaningResult",
    "CleaningStatistics",
    "CleaningUnderWay",
    "ClientClosedError",
    "Clock",
    "Codec",
    "CodecEstimate",
    "CommittedOffset",
    "CompactionBound",
    "CompactionExplanation",
    "CompactionPlan",
    "CompactionRule",
    "ConfigChange",
    "ConfigError",
    "ConfigFileError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConversionProgress",
    "ConversionReport",
    "ConversionResult",
    "ConvertedFetch",
    "CorruptIndexError",
    "CorruptRange",
    "CorruptRecordError",
    "CorruptStateError",
    "Delivery",
    "DeliveryTimeoutError",
    "Diagnosis",
    "DirectoryConversion",
    "DirectoryHealth",
    "DirtyLog",
    "DiskFullError",
    "DuplicateSequenceError",
    "EpochEnd",
    "Fault",
    "FetchData",
    "FetchReader",
    "FetchReply",
    "FetchTooLargeError",
    "FileSystem",
    "Finding",
    "FollowedRecords",
    "Follower",
    "ForkedLogError",
    "FoundRecord",
    "HeadersColumn",
    "HealthConfig",
    "HealthFinding",
    "HistogramValue",
    "IgnoredProperty",
    "InconsistentTopicIdError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "KafkaLogError",
    "KeySurvey",
    "ListedProblem",
    "Log",
    "LogCleaningAbortedError",
    "LogClosedError",
    "LogConfig",
    "LogConversion",
    "LogEstimate",
    "LogFacts",
    "LogLockedError",
    "LogManager",
    "LogOfflineError",
    "LogPermissionError",
    "LogStorageError",
    "LogSurvey",
    "LostRecords",
    "LoweredEpochs",
    "ManagerConfig",
    "ManagerHealth",
    "MatchedRecord",
    "MetricDefinition",
    "MetricFamily",
    "MetricSample",
    "MetricsSnapshot",
    "MultiFetchReply",
    "NoOffsetForPartitionError",
    "NotALogError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OngoingTransaction",
    "OutOfOrderSequenceError",
    "PartitionChange",
    "PartitionListing",
    "Producer",
    "ProducerConfig",
    "ProducerSequence",
    "ProducerStateError",
    "ReadOnlyLogError",
    "Record",
    "RecordAppender",
    "RecordError",
    "RecordMetadata",
    "RecordSelection",
    "RecordTooLargeError",
    "RecordValidationError",
    "RecoveryProgress",
    "RecoveryReport",
    "RefusedSwap",
    "RepairedIndex",
    "RetentionDecision",
    "RetentionPolicy",
    "RetentionReason",
    "Rewriting",
    "Scan",
    "Scheduler",
    "SegmentConversion",
    "SegmentDeletion",
    "SegmentExplanation",
    "SegmentFacts",
    "SegmentPlan",
    "SegmentSurvey",
    "SentMany",
    "SentRange",
    "ServerProperties",
    "Severity",
    "SizeRetention",
    "SkippedBytes",
    "StrayPartition",
    "SystemClock",
    "TaskHealth",
    "ThreadScheduler",
    "TimeRetention",
    "TimestampOffset",
    "TombstoneSurvey",
    "TopicConfigs",
    "TopicExistsError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "TruncatedTail",
    "UncleanablePartition",
    "UnexpectedAppendOffsetError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCodecError",
    "UnsupportedForMessageFormatError",
    "WaitingRecords",
    "compact_log",
    "convert_batches",
    "convert_directory",
    "convert_log",
    "count_matches",
    "estimate_codecs",
    "examine_directories",
    "explain_compaction",
    "follow",
    "list_partitions",
    "open_log",
    "plan_compaction",
    "read_records",
    "read_server_properties",
    "scan",
    "search_records",
    "survey_log",
    "tail_records",
]

# The public names by their modules, which are imported on first use of a name: a process that only
# plans reads, or uses times only, does not import the modules that write a log.
_MODULES = {
    "_core.arrow_export": ("ArrowBatch",),
    "_core.bytes_column": ("BytesColumn",),
    "_core.headers_column": ("HeadersColumn",),
    "_core.record": ("Record",),
    "cleaner.compaction": ("compact_log",),
    "cleaner.explain": ("CompactionExplanation", "CompactionRule", "explain_compaction"),
    "cleaner.cleaning_result": ("CleaningProgress", "CleaningResult", "CleaningStatistics"),
    "cleaner.plan": ("plan_compaction",),
    "cleaner.plan_model": ("CompactionBound", "CompactionPlan", "SegmentPlan", "WaitingRecords"),
    "cleaner.survey": ("KeySurvey", "LogSurvey", "SegmentSurvey", "TombstoneSurvey", "survey_log"),
    "clients.config": ("ConsumerConfig", "ProducerConfig"),
    "clients.consumer": ("Consumer", "ConsumerRecord", "LostRecords"),
    "clients.delivery": ("Delivery", "RecordMetadata"),
    "clients.many_records": ("SentMany", "SentRange"),
    "clients.offset_records": ("CommittedOffset",),
    "clients.producer": ("Producer",),
    "clients.producer_sequence": ("ProducerSequence",),
    "clock": ("Clock", "SystemClock"),
    "config": ("LogConfig",),
    "doctor.examine": ("examine_directories",),
    "doctor.findings": ("Diagnosis", "Finding", "Severity"),
    "errors": (
        "BatchTooLargeError",
        "BufferExhaustedError",
        "ClientClosedError",
        "ConfigError",
        "ConfigFileError",
        "CorruptIndexError",
        "CorruptRecordError",
        "CorruptStateError",
        "DeliveryTimeoutError",
        "DiskFullError",
        "DuplicateSequenceError",
        "FetchTooLargeError",
        "ForkedLogError",
        "InconsistentTopicIdError",
        "InvalidProducerEpochError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "InvalidTopicError",
        "InvalidTxnStateError",
        "KafkaLogError",
        "LogCleaningAbortedError",
        "LogClosedError",
        "LogLockedError",
        "LogOfflineError",
        "LogPermissionError",
        "LogStorageError",
        "NoOffsetForPartitionError",
        "NotALogError",
        "OffsetOutOfRangeError",
        "OffsetOverflowError",
        "OffsetsOutOfOrderError",
        "OutOfOrderSequenceError",
        "ProducerStateError",
        "ReadOnlyLogError",
        "RecordTooLargeError",
        "RecordValidationError",
        "TopicExistsError",
        "TransactionAbortedError",
        "TransactionCoordinatorFencedError",
        "UnexpectedAppendOffsetError",
        "UnknownTopicOrPartitionError",
        "UnsupportedCodecError",
        "UnsupportedForMessageFormatError",
    ),
    "followers.follower": ("Follower", "follow"),
    "followers.options": ("FollowedRecords", "PartitionChange"),
    "fetch": ("FetchReader", "FetchReply", "MultiFetchReply"),
    "files.filesystem": ("FileSystem",),
    "indexes.transaction_index": ("AbortedTransaction",),
    "inspection.listing": ("ListedProblem", "PartitionListing", "list_partitions"),
    "inspection.record_reading": ("FoundRecord", "RecordSelection", "read_records"),
    "inspection.record_search": ("MatchedRecord", "count_matches", "search_records"),
    "inspection.tailing": ("tail_records",),
    "log.conversion.data_directory": ("DirectoryConversion", "convert_directory"),
    "log.conversion.estimate": ("CodecEstimate", "LogEstimate", "estimate_codecs"),
    "log.conversion.outcome": (
        "ConversionProgress",
        "SkippedBytes",
        "LogConversion",
        "SegmentConversion",
    ),
    "log.conversion.single_log": ("convert_log",),
    "log.deletion": ("SegmentDeletion",),
    "log.corrupt_ranges": ("CorruptRange",),
    "_engine.fetch_data": ("FetchData",),
    "log.log": ("Log", "scan"),
    "log.opening": ("open_log",),
    "log.lookup": ("EARLIEST_TIMESTAMP", "LATEST_TIMESTAMP", "MAX_TIMESTAMP"),
    "log.record_appender": ("RecordAppender",),
    "log.report": ("TruncatedTail", "RecoveryReport", "RefusedSwap", "RepairedIndex"),
    "log.retention": (
        "AllOf",
        "LogFacts",
        "RetentionDecision",
        "RetentionPolicy",
        "RetentionReason",
        "SegmentFacts",
        "SizeRetention",
        "TimeRetention",
    ),
    "log.retention_plan": ("SegmentExplanation",),
    "log.scan.arrays": ("BytesArray",),
    "log.scan.scan": ("Scan",),
    "manager.cleaning.health": (
        "CleanerHealth",
        "CleaningUnderWay",
        "DirtyLog",
        "UncleanablePartition",
    ),
    "manager.health": (
        "DirectoryHealth",
        "Fault",
        "HealthFinding",
        "ManagerHealth",
        "StrayPartition",
        "TaskHealth",
    ),
    "manager.manager": ("LogManager",),
    "manager.metrics.snapshot": (
        "HistogramValue",
        "MetricDefinition",
        "MetricFamily",
        "MetricSample",
        "MetricsSnapshot",
    ),
    "manager.recovery": ("RecoveryProgress",),
    "manager_config": ("CleanerConfig", "HealthConfig", "ManagerConfig"),
    "model": (
        "ActiveProducer",
        "AppendInfo",
        "AppendOrigin",
        "LoweredEpochs",
        "OngoingTransaction",
        "RecordError",
        "Rewriting",
        "TimestampOffset",
        "TopicPartition",
    ),
    "records.batch_view": ("BatchView",),
    "records.codecs": ("Codec",),
    "records.conversion.convert": ("ConversionResult", "convert_batches"),
    "records.conversion.fetch": ("ConvertedFetch",),
    "records.conversion.report": ("ConversionReport",),
    "scheduler": ("Scheduler", "ThreadScheduler"),
    "server_properties": ("IgnoredProperty", "ServerProperties", "read_server_properties"),
    "settings": ("ConfigChange",),
    "state.leader_epochs": ("EpochEnd",),
    "topic_configs": ("TopicConfigs",),
}


if not TYPE_CHECKING:

    def _load(module_name):
        """Return a module of the package; ImportError in a source tree without compiled modules."""
        try:
            return import_module(f"{__name__}.{module_name}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(f"{__name__}._core."):
                raise
            # Python that is started in a checkout finds this folder before an installed package.
            raise ImportError(
                f"kafkalog in {__path__[0]} is a source tree without compiled modules: start"
                " Python in another folder to use the installed package, or compile here with"
                " `python setup.py build_ext --inplace`"
            ) from error

    def __getattr__(name):
        """Import a name, or a part of the package, on its first use."""
        if name == "__version__":
            value = import_module("importlib.metadata").version(__name__)
            globals()[name] = value
            return value
        for module_name, names in _MODULES.items():
            if name in names:
                value = getattr(_load(module_name), name)
                break
            if name == module_name.partition(".")[0]:
                return _load(name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        """Return all public names, including those that were not used yet."""
        modules = (each for each in globals() if each.startswith("__"))
        return sorted({"__version__", *modules, *__all__})
