"""State of one producer: epochs, its last batches, its open transaction.

Sequence numbers run from 0 to 2^31-1 and then from 0 again. A batch uses as many as it has
offsets. The last five batches of the producer's epoch are kept: a producer has at most five
requests in flight, so a batch that was sent twice is found among them and answered with the
offsets that it got the first time.

Thread-safety: immutable values and pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.state.producer_snapshot import ProducerSnapshotEntry

__all__ = [
    "MAX_SEQUENCE",
    "NO_EPOCH",
    "NO_SEQUENCE",
    "WINDOW_BATCHES",
    "ProducedBatch",
    "ProducerEntry",
    "sequence_after",
    "sequence_before",
]

MAX_SEQUENCE: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
WINDOW_BATCHES: Final = 5

_new: Final = tuple.__new__


def sequence_after(sequence: int, count: int) -> int:
    """
    Return the sequence number `count` after another.

    >>> sequence_after(2**31 - 1, 1)
    0
    """
    return (sequence + count) & MAX_SEQUENCE


def sequence_before(sequence: int, count: int) -> int:
    """
    Return the sequence number `count` before another.

    >>> sequence_before(0, 1) == 2**31 - 1
    True
    """
    return (sequence - count) & MAX_SEQUENCE


class ProducedBatch(NamedTuple):
    """A batch of a producer, with last sequence -1 if it had no sequence; times in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_before(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """
    State of a producer in one log.

    Attributes:
        producer_id: id of the producer.
        producer_epoch: epoch of its last batch or marker, -1 if unknown.
        coordinator_epoch: coordinator epoch of its last marker, -1 for none.
        last_timestamp_ms: timestamp of its last batch or marker, -1 for none.
        transaction_first_offset: first offset of its open transaction, None for none.
        batches: the last batches of its epoch, at most five, the oldest first.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    transaction_first_offset: int | None = None
    batches: tuple[ProducedBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last record, -1 if no batch is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(
        self, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> ProducedBatch | None:
        """Return the batch that had exactly these sequence numbers, None for none."""
        if producer_epoch != self.producer_epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                return batch
        return None

    def with_batch(
        self,
        producer_epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        transaction_first_offset: int | None,
    ) -> ProducerEntry:
        """Return the entry after a data batch; a new epoch removes the batches of the old one."""
        producer_id, known_epoch, coordinator_epoch, _, _, batches = self
        # Called for each batch that is appended: takes half the time of calls of the classes.
        batch = _new(ProducedBatch, (last_sequence, last_offset, offset_delta, timestamp_ms))
        if producer_epoch != known_epoch:
            batches = (batch,)
        elif len(batches) < WINDOW_BATCHES:
            batches = (*batches, batch)
        else:
            batches = (*batches[1:], batch)
        return _new(
            ProducerEntry,
            (
                producer_id,
                producer_epoch,
                coordinator_epoch,
                timestamp_ms,
                transaction_first_offset,
                batches,
            ),
        )

    def with_marker(
        self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
    ) -> ProducerEntry:
        """Return the entry after a marker, with or without an open transaction."""
        batches = self.batches if producer_epoch == self.producer_epoch else ()
        return ProducerEntry(
            self.producer_id, producer_epoch, coordinator_epoch, timestamp_ms, None, batches
        )

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerEntry:
        """Return the entry of a snapshot, which has only the last batch."""
        batches: tuple[ProducedBatch, ...] = ()
        if entry.last_offset >= 0:
            batch = ProducedBatch(
                entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms
            )
            batches = (batch,)
        first_offset = entry.transaction_first_offset
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp_ms,
            None if first_offset < 0 else first_offset,
            batches,
        )

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """Return the entry for a snapshot."""
        first_offset = self.transaction_first_offset
        return ProducerSnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            self.last_offset,
            self.batches[-1].offset_delta if self.batches else 0,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )
