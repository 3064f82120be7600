"""Values that several packages share: names, positions and results.

Thread-safety: all values are immutable. This module never touches a disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "NOTHING_REWRITTEN",
    "ActiveProducer",
    "AppendInfo",
    "AppendOrigin",
    "Header",
    "LoweredEpochs",
    "OngoingTransaction",
    "RecordError",
    "Rewriting",
    "TimestampOffset",
    "TopicPartition",
]

# A header of a record: key and value, which may be null.
Header: TypeAlias = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampOffset(NamedTuple):
    """
    Result of a look-up by time.

    Attributes:
        timestamp_ms: timestamp of the record, -1 for the start or the end of the log.
        offset: offset of the record.
        leader_epoch: leader epoch of its batch, None if the batch has none.
    """

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class LoweredEpochs(NamedTuple):
    """
    Counts of the changes of `LogManager.lower_leader_epochs`.

    Attributes:
        partitions: partitions that had batches with a higher leader epoch.
        batches: batches with a higher leader epoch.
        positions: positions of groups that were committed again without their epoch.
    """

    partitions: int
    batches: int
    positions: int


class OngoingTransaction(NamedTuple):
    """
    A transaction without a marker.

    Attributes:
        producer_id, producer_epoch: id and epoch of its producer.
        first_offset: offset of its first record.
        last_timestamp_ms: timestamp of the producer's last batch.
        idle_ms: time since that timestamp, by the log's clock.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int
    idle_ms: int


class ActiveProducer(NamedTuple):
    """
    State of a producer in a log.

    Attributes:
        producer_id: id of the producer.
        producer_epoch: epoch of its last batch or marker, -1 if unknown.
        last_sequence: last sequence of its last batch of that epoch, -1 for none.
        last_timestamp_ms: timestamp of its last batch or marker, -1 for none.
        coordinator_epoch: coordinator epoch of its last marker, -1 for none.
        transaction_first_offset: first offset of its open transaction, None for none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int | None


class AppendOrigin(Enum):
    """
    Origin of encoded batches, which sets the rules for their content.

    EMBEDDED is the program that embeds the log: the rules of a producer, but any number of batches
    in one append. CLIENT is a producer as a broker's leader treats it. COORDINATOR manages groups
    or transactions, and may append control batches. REPLICATION copies another log with its
    offsets: the other log has accepted the content of the batches.
    """

    EMBEDDED = "embedded"
    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class RecordError:
    """
    Reason why one record of an append was refused.

    Attributes:
        index: number of the record in the append, from 0.
        message: the fault of the record.
    """

    index: int
    message: str


@dataclass(frozen=True, slots=True)
class Rewriting:
    """
    Changes of batches by an append, other than the assignment of offsets.

    Attributes:
        source_codec: codec (a `Codec`) of the batches of the caller; of the last compressed one if
            they differ.
        target_codec: codec of the written batches.
        recompressed_batch_count: batches whose records were compressed again, or stored
            uncompressed.
        converted_record_count: records written in another message format than that of the caller.
    """

    source_codec: int
    target_codec: int
    recompressed_batch_count: int = 0
    converted_record_count: int = 0


NOTHING_REWRITTEN: Final = Rewriting(0, 0)


class AppendInfo(NamedTuple):
    """
    Result of an append.

    Attributes:
        first_offset: offset of the first record; the log end offset if nothing was appended.
        last_offset: offset of the last record, inclusive; `first_offset - 1` for no records.
        record_count: number of records.
        batch_count: number of batches.
        size_bytes: bytes written to the log.
        log_append_time_ms: time that all records got, None if they keep their own.
        max_timestamp_ms: largest timestamp, -1 for none.
        shallow_offset_of_max_timestamp: offset of that timestamp in the time index, as with Kafka's
            leader: the last offset of its batch, not the offset of the record; -1 if nothing was
            appended, or no record has a timestamp.
        rewriting: codecs, and counts of rewritten batches and records.
        is_duplicate: True if its producer had sent it before: nothing was written, and offsets and
            times are those of the first append.
    """

    first_offset: int
    last_offset: int
    record_count: int
    batch_count: int
    size_bytes: int
    log_append_time_ms: int | None
    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int = -1
    rewriting: Rewriting = NOTHING_REWRITTEN
    is_duplicate: bool = False
