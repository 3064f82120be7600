"""Exceptions of kafkalog, with the cause of each.

KafkaLogError
|-- CorruptRecordError            bytes fail CRC, length, magic or order (Kafka code 2)
|   `-- BatchTooLargeError        its uncompressed records are larger than allowed
|-- CorruptIndexError             an index disagrees with its log; handled inside by a rebuild
|-- CorruptStateError             a checkpoint or metadata file is damaged; loading ignores it
|-- OffsetOutOfRangeError         the log does not have the requested offset (Kafka code 1)
|-- InvalidRecordError            the caller's record cannot be appended (Kafka code 87)
|   |-- RecordTooLargeError       a batch over max.message.bytes (Kafka code 10)
|   |-- OffsetsOutOfOrderError    offsets of the caller do not rise, or are below the log end
|   |   `-- UnexpectedAppendOffsetError
|   |                             they begin below the log end: a follower may have them already
|   |-- RecordValidationError     records that the log's settings do not allow, with a list
|   |   `-- InvalidTimestampError at least one timestamp is invalid (Kafka code 32)
|   |-- UnsupportedForMessageFormatError
|   |                             the log's message format cannot store it (Kafka code 43)
|   `-- UnsupportedCodecError     codec unknown, or its library is not installed (Kafka code 76)
|-- ProducerStateError            the state of the producer forbids the append
|   |-- OutOfOrderSequenceError   a sequence number is not the next one (Kafka code 45)
|   |   `-- DuplicateSequenceError  it is before the last ones (Kafka code 46)
|   |-- InvalidProducerEpochError  the producer was fenced by a newer epoch (Kafka code 47)
|   |-- InvalidTxnStateError      the batch does not fit the producer's transaction (Kafka code 48)
|   `-- TransactionCoordinatorFencedError  a marker of an old coordinator (Kafka code 52)
|-- BufferExhaustedError          a producer's memory stayed full too long (Kafka code 7)
|-- DeliveryTimeoutError          a record could not be written in time (Kafka code 7)
|-- TransactionAbortedError       a record's transaction was aborted, or has to be
|-- NoOffsetForPartitionError     no position, and no rule where to begin
|-- FetchTooLargeError            a batch or a reply exceeds the reader's limit
|-- OffsetOverflowError           an offset is too far above its base offset: roll or split
|-- UnknownTopicOrPartitionError  a manager has no such partition (Kafka code 3)
|-- InconsistentTopicIdError      a partition belongs to another topic id (Kafka code 103)
|-- InvalidTopicError             the topic name breaks a rule (Kafka code 17)
|-- TopicExistsError              a topic or a partition exists already (Kafka code 36)
|-- NotALogError                  the path is not a partition directory
|-- LogStorageError               the disk failed; .errno, and __cause__ is the OSError
|   |-- DiskFullError             no space: nothing of the append was kept, reads work
|   |-- LogPermissionError        the file system denies access to this process
|   |-- LogLockedError            another writer has locked the directory
|   `-- LogOfflineError           a sync failed earlier: the log refuses all writes
|-- LogClosedError                use after close
|-- ClientClosedError             a producer or consumer was used after close
|-- ReadOnlyLogError              a write on a log opened read-only
|-- ForkedLogError                a handle of the parent process used for writing in a child
|-- LogCleaningAbortedError       truncation or shutdown interrupted a pass; retriable
`-- ConfigError                   a setting is unknown or out of range
    `-- ConfigFileError           a setting in a file is wrong; .line is its line

A message is complete without the attributes; attributes are for code. All of them pickle.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any, ClassVar

from kafkalog.model import RecordError

__all__ = [
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
]


class KafkaLogError(Exception):
    """
    Base of all errors of this package.

    Attributes:
        path: file or directory concerned, as a string, or None.
        position: byte position in that file or buffer, or None.
        base_offset: offset of the first record concerned, or None.
        retriable: True if the same call may succeed later without a change by the caller.
        kafka_code: error code of Kafka's protocol for the same condition, or None.
    """

    retriable: ClassVar[bool] = False
    kafka_code: ClassVar[int | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = None if path is None else str(path)
        self.position = position
        self.base_offset = base_offset

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the keyword attributes when pickled: Spark sends errors between processes."""
        return (type(self), self.args, dict(self.__dict__))


class CorruptRecordError(KafkaLogError):
    """Stored bytes fail a check: a corrupt range, which `on_corrupt="skip"` skips."""

    kafka_code: ClassVar[int | None] = 2


class BatchTooLargeError(CorruptRecordError):
    """The uncompressed records of a batch have more bytes than the reader allows."""


class CorruptIndexError(KafkaLogError):
    """An index disagrees with its log. It is not raised to users: the index is rebuilt."""


class CorruptStateError(KafkaLogError):
    """A checkpoint, `partition.metadata` or `meta.properties` is damaged; see the message.

    The log itself has all facts but the log start offset: loading continues as if the file were
    absent, which costs time but no record.
    """


class OffsetOutOfRangeError(KafkaLogError, LookupError):
    """The requested offset is not in the log; `log_start_offset` and `log_end_offset` bound it."""

    kafka_code: ClassVar[int | None] = 1

    def __init__(
        self,
        message: str = "",
        *,
        requested: int | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.requested = requested
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class InvalidRecordError(KafkaLogError, ValueError):
    """A record or batch of the caller cannot be appended; nothing of the append was written."""

    kafka_code: ClassVar[int | None] = 87


class RecordTooLargeError(InvalidRecordError):
    """A batch is larger than `max.message.bytes`; raise the setting or split the record."""

    kafka_code: ClassVar[int | None] = 10


class OffsetsOutOfOrderError(InvalidRecordError):
    """Batches appended with their own offsets do not rise, or begin below the log end."""


class UnexpectedAppendOffsetError(OffsetsOutOfOrderError):
    """
    Batches appended with their own offsets begin below the log end; nothing was written.

    A follower that gets it may have the batches already, or must truncate first.

    Attributes:
        first_offset: first offset of the first batch; of its first record for a wrapper message.
        last_offset: last offset of the last batch.
        log_end_offset: end of the log; batches must begin at this offset or above.
    """

    def __init__(
        self,
        message: str = "",
        *,
        first_offset: int | None = None,
        last_offset: int | None = None,
        log_end_offset: int | None = None,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset


class RecordValidationError(InvalidRecordError):
    """
    Records of an append break a rule of the log's settings; none of the append was written.

    Attributes:
        record_errors: number and fault of each such record, at most the first thousand; the message
            has their count and the first three.
    """

    def __init__(
        self,
        message: str = "",
        *,
        record_errors: Iterable[RecordError] = (),
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(RecordValidationError):
    """At least one record has an invalid timestamp; others may have other faults."""

    kafka_code: ClassVar[int | None] = 32


class UnsupportedForMessageFormatError(InvalidRecordError):
    """
    An append has data that the log's old message format cannot store: headers, a producer, a
    transaction, a control record. Nothing was written; `message.format.version` sets the format.
    """

    kafka_code: ClassVar[int | None] = 43


class UnsupportedCodecError(InvalidRecordError):
    """The codec is unknown, or its library is missing; the message names the extra to install."""

    kafka_code: ClassVar[int | None] = 76


class ProducerStateError(KafkaLogError):
    """The state of the producer `producer_id` forbids the append.

    Nothing of the append was written.
    """

    def __init__(
        self,
        message: str = "",
        *,
        producer_id: int | None = None,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.producer_id = producer_id


class OutOfOrderSequenceError(ProducerStateError):
    """The sequence number does not follow the producer's last one: batches between are missing."""

    kafka_code: ClassVar[int | None] = 45


class DuplicateSequenceError(OutOfOrderSequenceError):
    """
    The sequence numbers are at or before the producer's last one, and not those of a recent batch.

    The records were appended before, and their offsets are not known any more. The exception is a
    producer whose first batch here, after its state expired, had a later number.
    """

    kafka_code: ClassVar[int | None] = 46


class InvalidProducerEpochError(ProducerStateError):
    """A newer epoch of the producer has written already; this one is fenced and must stop."""

    kafka_code: ClassVar[int | None] = 47


class InvalidTxnStateError(ProducerStateError):
    """A batch outside of its producer's open transaction, or of an unverified transaction."""

    kafka_code: ClassVar[int | None] = 48


class TransactionCoordinatorFencedError(ProducerStateError):
    """A newer coordinator has written a marker already; the one with the older epoch is fenced."""

    kafka_code: ClassVar[int | None] = 52


class BufferExhaustedError(KafkaLogError):
    """`buffer.memory` was full for `max.block.ms`: the disk is slower than the producer."""

    kafka_code: ClassVar[int | None] = 7
    retriable: ClassVar[bool] = True


class DeliveryTimeoutError(KafkaLogError):
    """A record was not written within `delivery.timeout.ms`; `__cause__` has the reason.

    The record is not in the log, and may be sent again.
    """

    kafka_code: ClassVar[int | None] = 7
    retriable: ClassVar[bool] = True


class TransactionAbortedError(KafkaLogError):
    """The transaction of a record was aborted, or cannot be committed: abort it, begin another."""


class NoOffsetForPartitionError(KafkaLogError, LookupError):
    """A group has no position in a partition, and `auto.offset.reset` is `none`: call `seek`."""


class FetchTooLargeError(KafkaLogError):
    """A batch does not fit the largest fetch, or a reply is too large: raise the reader's limit."""


class OffsetOverflowError(KafkaLogError):
    """An offset is more than 2^31-1 above its segment's base; the segment must roll or split."""


class UnknownTopicOrPartitionError(KafkaLogError, LookupError):
    """The manager has no partition of this name, or it was deleted during the call."""

    kafka_code: ClassVar[int | None] = 3


class InconsistentTopicIdError(KafkaLogError):
    """A partition directory has the id of another topic of this name, and is not served.

    The topic was deleted and created again while its data directory was offline, or the directory
    comes from another cluster. Its files are not changed.
    """

    kafka_code: ClassVar[int | None] = 103


class InvalidTopicError(KafkaLogError, ValueError):
    """The name breaks a rule, or differs from a topic's only in '.' and '_' (metrics would mix)."""

    kafka_code: ClassVar[int | None] = 17


class TopicExistsError(KafkaLogError, ValueError):
    """The topic or partition exists already; nothing was changed."""

    kafka_code: ClassVar[int | None] = 36


class NotALogError(KafkaLogError, ValueError):
    """The path is not a partition directory (a file, a data directory, a foreign directory)."""


class LogStorageError(KafkaLogError):
    """The disk failed; `errno` is the system's error number, `__cause__` is the OSError."""

    def __init__(
        self,
        message: str = "",
        *,
        errno: int | None = None,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.errno = errno


class DiskFullError(LogStorageError):
    """The disk or the quota is full; nothing of the append was kept, and it may be retried."""

    retriable: ClassVar[bool] = True


class LogPermissionError(LogStorageError):
    """The file system does not let this process read or write there."""


class LogLockedError(LogStorageError):
    """Another writer, in this process or another, has locked the directory; close it first."""

    retriable: ClassVar[bool] = True


class LogOfflineError(LogStorageError):
    """An earlier failure left the disk's state unknown: reopen the log to recover it."""


class LogClosedError(KafkaLogError):
    """The log, or an object taken from it, was used after close."""


class ClientClosedError(KafkaLogError):
    """A producer or consumer was used after close, or closed before a record was delivered."""


class ReadOnlyLogError(KafkaLogError):
    """A write was requested on a log that was opened with `read_only=True`."""


class ForkedLogError(KafkaLogError):
    """A handle from before `fork` was used for writing in the child; reopen the log there."""


class LogCleaningAbortedError(KafkaLogError):
    """Truncation or shutdown interrupted a compaction pass; it may be started again."""

    retriable: ClassVar[bool] = True


class ConfigError(KafkaLogError, ValueError):
    """A setting is unknown or out of range; the message names the Kafka key and the rule."""


class ConfigFileError(ConfigError):
    """A line of a properties file is wrong; the message begins with the file and the line."""

    def __init__(
        self,
        message: str = "",
        *,
        line: int | None = None,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, base_offset=base_offset)
        self.line = line
