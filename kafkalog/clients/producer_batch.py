"""One batch of a producer: filled, closed, encoded, acknowledged.

Thread-safety: belongs to its accumulator, which holds its lock during every call.
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
    """Producer id and epoch of numbered batches; -1 and -1 for batches without numbers."""

    producer_id: int = -1
    producer_epoch: int = -1


class ProducerBatch:
    """
    Batch that is open or closed.

    Args:
        where: its partition.
        builder: an empty builder, used by this batch until it is acknowledged.
        reserved_bytes: buffer memory that was reserved for it.
        opened_ms: monotonic time of its first record.

    Attributes:
        outcome: the outcome that the futures of its records read.
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
        """Add a record; raise InvalidRecordError if it cannot be encoded."""
        self.builder.append(key, value, timestamp_ms, headers)
        deliveries = self.deliveries
        delivery = Delivery(self.outcome, len(deliveries), timestamp_ms)
        deliveries.append(delivery)
        return delivery

    def encoded(
        self, codec: Codec, identity: Identity, base_sequence: int, *, transactional: bool
    ) -> memoryview:
        """Return the whole batch; a retry, perhaps with another identity, encodes it again."""
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
        """Remove records whose futures have another outcome already; later records move up."""
        deliveries, self.deliveries = self.deliveries, []
        records: list[Record] = BatchView(self.builder.finish()).records()
        for slot, (record, delivery) in enumerate(zip(records, deliveries, strict=True)):
            if slot not in slots:
                builder.append_record(record)
                delivery.move(self.outcome, len(self.deliveries))
                self.deliveries.append(delivery)
        self.builder = builder
