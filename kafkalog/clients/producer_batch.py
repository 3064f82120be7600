"""One batch of a producer: filled, closed, encoded, acknowledged.

Thread-safety: belongs to its accumulator, which holds its lock during every call.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.record import Record
from kafkalog.clients.delivery import BatchOutcome, Delivery
from kafkalog.clients.many_records import BatchPart, PartitionRecords, SentMany
from kafkalog.clients.producer_sequence import ProducerSequence
from kafkalog.model import Header, TopicPartition
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress_if_smaller

__all__ = ["Identity", "ProducerBatch"]


class Identity(NamedTuple):
    """Producer id and epoch of numbered batches; -1 and -1 for batches without numbers."""

    producer_id: int = -1
    producer_epoch: int = -1


class ProducerBatch:
    """
    Batch that is open or closed.

    Args:
        where: its partition.
        builder: an empty builder, used by this batch until it is written.
        reserved_bytes: buffer memory that was reserved for it.
        opened_ms: monotonic time of its first record.
        number: the number that its caller gave.
        condition: that of its partition; a new one if None.

    Attributes:
        outcome: the outcome that the futures of its records read.
        entries: the future of each record, or the part of a call that it belongs to.
        number: the number that its caller gave; None if the partition numbers it.
    """

    __slots__ = ("builder", "entries", "number", "opened_ms", "outcome", "reserved_bytes")

    def __init__(
        self,
        where: TopicPartition,
        builder: BatchBuilder,
        reserved_bytes: int,
        opened_ms: int,
        number: ProducerSequence | None = None,
        condition: threading.Condition | None = None,
    ) -> None:
        self.builder = builder
        self.reserved_bytes = reserved_bytes
        self.opened_ms = opened_ms
        self.number = number
        self.outcome = BatchOutcome(where, condition)
        self.entries: list[Delivery | BatchPart] = []

    @property
    def record_count(self) -> int:
        """Number of records."""
        return len(self.entries)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        timestamp_ms: int,
    ) -> Delivery:
        """Add a record; raise InvalidRecordError if it cannot be encoded."""
        self.builder.append(key, value, timestamp_ms, headers)
        delivery = Delivery(self.outcome, len(self.entries), timestamp_ms)
        self.entries.append(delivery)
        return delivery

    def extend(
        self, records: PartitionRecords, start: int, size_limit: int, many: SentMany
    ) -> BatchPart | None:
        """
        Add records of a call from a slot on; the first record of a batch always goes in.

        Returns:
            The records that went in, None if none did.
        """
        try:
            count = records.extend(self.builder, start, size_limit)
            if not count:
                return None
            part = BatchPart(self.outcome, len(self.entries), records.rows(start, start + count))
            self.entries += [part] * count
            many.add(part)
        except BaseException:
            self.drop_unlisted()
            raise
        return part

    def drop_unlisted(self) -> None:
        """Remove the last records if an interruption left them without futures."""
        listed = len(self.entries)
        # A copy: the builder is used again.
        data = bytes(self.builder.finish()) if listed else b""
        records: list[Record] = BatchView(data).records() if listed else []
        if len(records) == listed > 0:
            return
        self.builder.reset()
        for record in records[:listed]:
            self.builder.append_record(record)

    def reserve(self, size_bytes: int) -> None:
        """Record that more buffer memory was reserved for it."""
        self.reserved_bytes += size_bytes

    def encoded(
        self, codec: Codec, identity: Identity, base_sequence: int, *, transactional: bool
    ) -> memoryview:
        """
        Return the whole batch; a retry, perhaps with another identity, encodes it again.

        Identity and sequence are used unless the caller of the batch gave its number.
        """
        number = self.number
        if number is not None:
            identity = Identity(number.producer_id, number.producer_epoch)
            base_sequence = number.sequence
        codec, payload = compress_if_smaller(codec, self.builder.payload())
        return self.builder.finish(
            codec=codec,
            payload=payload,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def take_out(self, refused: Collection[Delivery | BatchPart], builder: BatchBuilder) -> None:
        """
        Remove records whose futures have another outcome already; later records move up.

        Args:
            refused: futures of records, and parts of calls.
            builder: an empty builder, for the records that stay.
        """
        entries, self.entries = self.entries, []
        records: list[Record] = BatchView(self.builder.finish()).records()
        before = None
        for record, entry in zip(records, entries, strict=True):
            if entry in refused:
                continue
            if entry is not before:
                entry.move(self.outcome, len(self.entries))
                before = entry
            builder.append_record(record)
            self.entries.append(entry)
        self.builder = builder
