"""Plain values that several rooms share: what a thing is called, where it lies, what happened.

Thread-safety: everything here is immutable. Nothing here touches a disk.
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

# A record's header: key and value, which may be null.
Header: TypeAlias = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampOffset(NamedTuple):
    """
    The answer to a look-up by time.

    Attributes:
        timestamp_ms: of the record found, -1 where the question was for an end of the log.
        offset: of the record found.
        leader_epoch: of its batch, None where the batch has none.
    """

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class LoweredEpochs(NamedTuple):
    """
    What `LogManager.lower_leader_epochs` has changed.

    Attributes:
        partitions: that had batches with a higher leader epoch.
        batches: those.
        positions: of groups, committed again without their epoch.
    """

    partitions: int
    batches: int
    positions: int


class OngoingTransaction(NamedTuple):
    """
    A transaction without a marker.

    Attributes:
        producer_id, producer_epoch: whose it is.
        first_offset: its first record.
        last_timestamp_ms: of the producer's last batch.
        idle_ms: how long ago that was, by the log's clock.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int
    idle_ms: int


class ActiveProducer(NamedTuple):
    """
    What a log knows of a producer.

    Attributes:
        producer_id: its id.
        producer_epoch: of its last batch or marker, -1 where nothing is known.
        last_sequence: of its last batch of that epoch, -1 where there is none.
        last_timestamp_ms: of its last batch or marker, -1 where none has a time.
        coordinator_epoch: of its last marker, -1 where there was none.
        transaction_first_offset: where its open transaction began, None where it has none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int | None


class AppendOrigin(Enum):
    """
    Who brings encoded batches, which decides what they may hold.

    EMBEDDED is the program that embeds the log: the rules of a producer, but any number of batches
    in one append. CLIENT is a producer as a broker's leader treats it. COORDINATOR manages groups
    or transactions, and may append control batches. REPLICATION copies another log, offsets and
    all: what is in the batches somebody else has accepted.
    """

    EMBEDDED = "embedded"
    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class RecordError:
    """
    Why one record of an append was refused.

    Attributes:
        index: number of the record in the append, from 0.
        message: what is wrong with it.
    """

    index: int
    message: str


@dataclass(frozen=True, slots=True)
class Rewriting:
    """
    What an append did to batches beside stamping them.

    Attributes:
        source_codec: codec (a `Codec`) that they came with; that of the last compressed one where
            they differ.
        target_codec: the same of what was written.
        recompressed_batch_count: batches whose records were compressed anew, or decompressed for
            good.
        converted_record_count: records written in another message format than they came in.
    """

    source_codec: int
    target_codec: int
    recompressed_batch_count: int = 0
    converted_record_count: int = 0


NOTHING_REWRITTEN: Final = Rewriting(0, 0)


class AppendInfo(NamedTuple):
    """
    What an append stored.

    Attributes:
        first_offset: of the first record; the log end offset where nothing was appended.
        last_offset: of the last record, inclusive; `first_offset - 1` where there was none.
        record_count: records appended.
        batch_count: batches they were packed in.
        size_bytes: bytes written to the log.
        log_append_time_ms: time that all records got, None where they keep their own.
        max_timestamp_ms: largest timestamp, -1 where there is none.
        shallow_offset_of_max_timestamp: what the time index says of it, as Kafka's leader: the
            last offset of the batch that has it, not the offset of the record; -1 where nothing
            was appended, or no record has one.
        rewriting: codecs, and what was compressed anew.
        is_duplicate: whether its producer had sent it before: nothing was written, and offsets and
            times are those of the first time.
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
