"""Plain values that several rooms share: what a thing is called, where it lies, what happened.

Thread-safety: everything here is immutable. Nothing here touches a disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["AppendInfo", "Header", "OffsetPosition", "TimestampOffset", "TopicPartition"]

# A record's header: key and value, which may be null.
Header: TypeAlias = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetPosition(NamedTuple):
    """A logical offset and the byte position of the batch that holds it."""

    offset: int
    position: int


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


@dataclass(frozen=True, slots=True)
class AppendInfo:
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
    """

    first_offset: int
    last_offset: int
    record_count: int
    batch_count: int
    size_bytes: int
    log_append_time_ms: int | None
    max_timestamp_ms: int
