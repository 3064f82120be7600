"""One batch on its way into a partition: filled, closed, encoded, told.

Thread-safety: belongs to its accumulator, which holds its own lock around everything here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.record import Record
from kafkalog.clients.delivery import BatchOutcome, Delivery
from kafkalog.model import Header, TopicPartition
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress_if_smaller

__all__ = ["Identity", "ProducerBatch"]


class Identity(NamedTuple):
    """Who numbers batches: -1 and -1 for nobody."""

    producer_id: int = -1
    producer_epoch: int = -1


class ProducerBatch:
    """
    A batch that is being filled, or was.

    Args:
        where: its partition.
        builder: empty; the batch's own until it is told.
        reserved_bytes: buffer memory that was taken for it.
        opened_ms: monotonic time of its first record.

    Attributes:
        outcome: what its records' futures look at.
    """

    __slots__ = ("builder", "deliveries", "opened_ms", "outcome", "reserved_bytes")

    def __init__(
        self,
        where: TopicPartition,
        builder: BatchBuilder,
        reserved_bytes: int,
        opened_ms: int,
    ) -> None:
        self.builder = builder
        self.reserved_bytes = reserved_bytes
        self.opened_ms = opened_ms
        self.outcome = BatchOutcome(where)
        self.deliveries: list[Delivery] = []

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        timestamp_ms: int,
    ) -> Delivery:
        """Add a record; InvalidRecordError where it cannot be encoded."""
        self.builder.append(key, value, timestamp_ms, headers)
        deliveries = self.deliveries
        delivery = Delivery(self.outcome, len(deliveries), timestamp_ms)
        deliveries.append(delivery)
        return delivery

    def encoded(
        self, codec: Codec, identity: Identity, base_sequence: int, *, transactional: bool
    ) -> memoryview:
        """Return the whole batch; asked again, perhaps for another identity, it is the same."""
        codec, payload = compress_if_smaller(codec, self.builder.payload())
        return self.builder.finish(
            codec=codec,
            payload=payload,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def without(self, slots: Collection[int], builder: BatchBuilder) -> None:
        """Leave records out, whose futures have another outcome by now; the others move up."""
        deliveries, self.deliveries = self.deliveries, []
        records: list[Record] = BatchView(self.builder.finish()).records()
        for slot, (record, delivery) in enumerate(zip(records, deliveries, strict=True)):
            if slot not in slots:
                builder.append_record(record)
                delivery.move(self.outcome, len(self.deliveries))
                self.deliveries.append(delivery)
        self.builder = builder
