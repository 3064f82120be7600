"""Every exception that kafkalog raises, and whose fault each one is.

KafkaLogError
|-- CorruptRecordError            bytes fail CRC, length, magic or order (Kafka code 2)
|   `-- BatchTooLargeError        its records uncompressed are more than is allowed
|-- CorruptIndexError             an index disagrees with its log; handled inside by a rebuild
|-- CorruptStateError             a checkpoint or metadata file is damaged; loading does without it
|-- OffsetOutOfRangeError         asked for an offset that the log does not hold (Kafka code 1)
|-- InvalidRecordError            the caller's record cannot be appended (Kafka code 87)
|   |-- RecordTooLargeError       a batch over max.message.bytes (Kafka code 10)
|   |-- OffsetsOutOfOrderError    offsets given by the caller do not rise, or lie below the log end
|   |   `-- UnexpectedAppendOffsetError
|   |                             they begin below the log end: a follower may have them already
|   |-- RecordValidationError     records that the log's settings do not allow, each one listed
|   |   `-- InvalidTimestampError one of them for its timestamp (Kafka code 32)
|   |-- UnsupportedForMessageFormatError
|   |                             the log's message format cannot say it (Kafka code 43)
|   `-- UnsupportedCodecError     codec unknown, or its library is not installed (Kafka code 76)
|-- ProducerStateError            what a producer did before forbids the append
|   |-- OutOfOrderSequenceError   a sequence number is not the next one (Kafka code 45)
|   |-- InvalidProducerEpochError  the producer was fenced by a newer epoch (Kafka code 47)
|   |-- InvalidTxnStateError      the batch does not fit the producer's transaction (Kafka code 48)
|   `-- TransactionCoordinatorFencedError  a marker of an old coordinator (Kafka code 52)
|-- BufferExhaustedError          a producer's memory stayed full too long (Kafka code 7)
|-- DeliveryTimeoutError          a record could not be written in time (Kafka code 7)
|-- TransactionAbortedError       a record's transaction was aborted, or has to be
|-- NoOffsetForPartitionError     no position, and no rule where to begin
|-- FetchTooLargeError            a batch or a reply is larger than who fetches it takes
|-- OffsetOverflowError           an offset does not fit 32 bits beside its base: roll or split
|-- UnknownTopicOrPartitionError  a manager has no such partition (Kafka code 3)
|-- InconsistentTopicIdError      a partition is of another topic of its name (Kafka code 103)
|-- InvalidTopicError             no topic may have this name (Kafka code 17)
|-- TopicExistsError              a topic or a partition is there already (Kafka code 36)
|-- NotALogError                  the path is no partition directory
|-- LogStorageError               the disk refused; .errno, and __cause__ is the OSError
|   |-- DiskFullError             no room: nothing of the append was kept, reads go on
|   |-- LogPermissionError        the file system does not let this process in
|   |-- LogLockedError            another writer holds the directory
|   `-- LogOfflineError           a sync failed earlier: the log takes no more writes
|-- LogClosedError                use after close
|-- ClientClosedError             the same of a producer or consumer
|-- ReadOnlyLogError              a write on a log opened read-only
|-- ForkedLogError                a handle of the parent process used for writing in a child
|-- LogCleaningAbortedError       truncation or shutdown interrupted a pass; may be retried
`-- ConfigError                   a setting is unknown or out of range
    `-- ConfigFileError           the same in a file; .line says where

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
        retriable: whether the same call may succeed later without a change by the caller.
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
    """Stored bytes fail a check; they are fenced, and `on_corrupt="skip"` reads around them."""

    kafka_code: ClassVar[int | None] = 2


class BatchTooLargeError(CorruptRecordError):
    """The records of a batch take more bytes uncompressed than the reader allows."""


class CorruptIndexError(KafkaLogError):
    """An index disagrees with its log. Callers never see it: the index is rebuilt."""


class CorruptStateError(KafkaLogError):
    """A checkpoint, `partition.metadata` or `meta.properties` is damaged; the message says where.

    The log itself is the truth about everything but the log start offset: loading goes on as if
    the file were absent, which costs time and no record.
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
    """What the caller wants to append is not appendable; nothing of it was written."""

    kafka_code: ClassVar[int | None] = 87


class RecordTooLargeError(InvalidRecordError):
    """A batch is larger than `max.message.bytes`; raise the setting or split the record."""

    kafka_code: ClassVar[int | None] = 10


class OffsetsOutOfOrderError(InvalidRecordError):
    """Batches appended with their own offsets do not rise, or begin below the log end."""


class UnexpectedAppendOffsetError(OffsetsOutOfOrderError):
    """
    Batches appended with their own offsets begin below the log end; nothing was written.

    A follower that met it may have the batches already, or has to truncate first.

    Attributes:
        first_offset: of the first batch; that of its first record where it is a wrapper.
        last_offset: of the last batch.
        log_end_offset: where the log ends, and batches have to begin, or above.
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
            has how many there are, and the first three.
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
    """At least one of the records is refused for its timestamp, others perhaps for other faults."""

    kafka_code: ClassVar[int | None] = 32


class UnsupportedForMessageFormatError(InvalidRecordError):
    """
    An append holds what the log's old message format has no place for: headers, a producer, a
    transaction, a control record. Nothing was written; `message.format.version` decides.
    """

    kafka_code: ClassVar[int | None] = 43


class UnsupportedCodecError(InvalidRecordError):
    """The codec is unknown, or its library is missing; the message says which extra to install."""

    kafka_code: ClassVar[int | None] = 76


class ProducerStateError(KafkaLogError):
    """What is known of the producer forbids the append; `producer_id` says whose it was.

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


class InvalidProducerEpochError(ProducerStateError):
    """A newer epoch of the producer has written already; this one is fenced and has to stop."""

    kafka_code: ClassVar[int | None] = 47


class InvalidTxnStateError(ProducerStateError):
    """A batch outside of its producer's open transaction, or of one that nobody has verified."""

    kafka_code: ClassVar[int | None] = 48


class TransactionCoordinatorFencedError(ProducerStateError):
    """A newer coordinator has written a marker already; the one with the older epoch is fenced."""

    kafka_code: ClassVar[int | None] = 52


class BufferExhaustedError(KafkaLogError):
    """`buffer.memory` was full for `max.block.ms`: the disk is slower than what is sent to it."""

    kafka_code: ClassVar[int | None] = 7
    retriable: ClassVar[bool] = True


class DeliveryTimeoutError(KafkaLogError):
    """A record was not written within `delivery.timeout.ms`; `__cause__` says what stood against.

    It is not in the log, and may be sent again.
    """

    kafka_code: ClassVar[int | None] = 7
    retriable: ClassVar[bool] = True


class TransactionAbortedError(KafkaLogError):
    """The transaction of a record was aborted, or cannot be committed: abort it, and begin anew."""


class NoOffsetForPartitionError(KafkaLogError, LookupError):
    """A group has no position in a partition, and `auto.offset.reset` is `none`: seek to one."""


class FetchTooLargeError(KafkaLogError):
    """A batch does not fit the largest fetch, or a reply is too large: raise the reader's limit."""


class OffsetOverflowError(KafkaLogError):
    """An offset is more than 2^31-1 above its segment's base; the segment must roll or split."""


class UnknownTopicOrPartitionError(KafkaLogError, LookupError):
    """The manager has no partition of this name, or it was deleted meanwhile."""

    kafka_code: ClassVar[int | None] = 3


class InconsistentTopicIdError(KafkaLogError):
    """A partition directory has the id of another topic of this name: nobody is served from it.

    The topic was deleted and made again while its data directory was away, or the directory comes
    from another cluster. Its files are left as they are.
    """

    kafka_code: ClassVar[int | None] = 103


class InvalidTopicError(KafkaLogError, ValueError):
    """The name breaks a rule, or differs from a topic's only in '.' and '_' (metrics would mix)."""

    kafka_code: ClassVar[int | None] = 17


class TopicExistsError(KafkaLogError, ValueError):
    """What was to be created is there already; nothing was changed."""

    kafka_code: ClassVar[int | None] = 36


class NotALogError(KafkaLogError, ValueError):
    """The path is not a partition directory (a file, a data directory, a foreign directory)."""


class LogStorageError(KafkaLogError):
    """The disk failed; `errno` says how, `__cause__` is the OSError."""

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
    """No room on the disk or in the quota; nothing of the append is kept, and it may be retried."""

    retriable: ClassVar[bool] = True


class LogPermissionError(LogStorageError):
    """The file system does not let this process read or write there."""


class LogLockedError(LogStorageError):
    """Another writer, in this process or another, holds the directory; close it first."""

    retriable: ClassVar[bool] = True


class LogOfflineError(LogStorageError):
    """An earlier failure left the disk's state unknown: reopen the log to recover it."""


class LogClosedError(KafkaLogError):
    """The log, or an object taken from it, was used after close."""


class ClientClosedError(KafkaLogError):
    """A producer or consumer was used after close, or closed before a record was delivered."""


class ReadOnlyLogError(KafkaLogError):
    """A write was asked of a log that was opened with `read_only=True`."""


class ForkedLogError(KafkaLogError):
    """A handle opened before `fork` was used for writing in the child; open the log there anew."""


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
