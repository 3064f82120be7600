"""Match of an open transaction of a partition with a committed transaction of the topic.

After a power cut a partition may hold the data of a later transaction of the same producer that
`__transaction_state` does not have: COMPLETE of the decided transaction, and ONGOING of the next,
are not synced. A decision is valid only for the data of its transaction:

* Transactions with separate epochs (those of kafkalog, and of version 2 of a broker): data has
  epoch e, marker and decision epoch e + 1, data of the next transaction epoch e + 1. The epoch
  identifies the transaction, since every epoch is synced before it is used.
* Transactions of versions 0 and 1 of a broker share one epoch. Data after a marker that was
  written at the time of the decision or later belongs to the next transaction; data of a partition
  without such a marker, named by the decision, belongs to the decided one. This depends on the
  clock of the broker: a transaction that begins and is decided within the millisecond of the
  previous marker cannot be distinguished. If the topic has COMPLETE, and a power cut of a broker
  lost its markers, the match needs a log that has lost no marker since, by retention or
  compaction; otherwise the data is undone.

Thread-safety: pure functions, immutable values.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.clients.transaction_records import TransactionRecord, TransactionState
from kafkalog.log.log import Log
from kafkalog.model import ActiveProducer, TopicPartition

__all__ = ["Decision", "decision_after", "is_committed"]

# Epoch of the markers of the last transaction of a producer id; the record of the next id lacks it.
LAST_MARKER_EPOCH: Final = 2**15 - 1


class Decision(NamedTuple):
    """
    The last committed transaction of a transactional id.

    Attributes:
        producer_id: producer of the transaction.
        marker_epoch: the epoch of the decision, and of its markers.
        partitions: partitions of the transaction; None if they are not known any more.
        decided_ms: time of the decision.
        has_own_epochs: whether each transaction has a separate epoch.
    """

    producer_id: int
    marker_epoch: int
    partitions: frozenset[TopicPartition] | None
    decided_ms: int
    has_own_epochs: bool


def decision_after(before: Decision | None, record: TransactionRecord) -> Decision | None:
    """
    Return the last decision to commit after a record of the topic.

    Args:
        before: the last decision before that record.
        record: a record of the same transactional id.
    """
    if record.state is TransactionState.PREPARE_COMMIT:
        return Decision(
            record.producer_id,
            record.producer_epoch,
            frozenset(record.partitions),
            record.last_update_ms,
            record.has_own_epochs,
        )
    if record.state is not TransactionState.COMPLETE_COMMIT:
        return before
    if before is not None:
        if before[:2] == (record.producer_id, record.producer_epoch):
            return before
        if before.producer_id in record.other_producer_ids:
            return before
    # The decision itself was compacted away.
    identity = record.producer_id, record.producer_epoch
    if record.other_producer_ids:
        identity = record.other_producer_ids[0], LAST_MARKER_EPOCH
    return Decision(*identity, None, record.last_update_ms, record.has_own_epochs)


def is_committed(
    decision: Decision | None,
    where: TopicPartition,
    log: Log,
    producer: ActiveProducer,
    *,
    is_pending: bool,
    now_ms: int,
) -> bool:
    """
    Return whether the open transaction of a producer in a log was committed.

    Args:
        decision: the last decision of the transactional id of the producer; None for none.
        where, log: the partition.
        producer: the state of the producer in the log; its transaction is open.
        is_pending: whether the last record of the topic is the decision: markers may be missing.
        now_ms: the time.
    """
    if decision is None or decision.producer_id != producer.producer_id:
        return False
    if decision.partitions is not None and where not in decision.partitions:
        return False
    if producer.producer_epoch == decision.marker_epoch - 1:
        return decision.has_own_epochs or is_pending
    if producer.producer_epoch != decision.marker_epoch or decision.has_own_epochs:
        return False
    if decision.partitions is None:
        return False
    if not is_pending and not _keeps_markers(log, decision.decided_ms, now_ms):
        return False
    return not _has_marker(log, producer, decision.decided_ms)


def _keeps_markers(log: Log, since_ms: int, now_ms: int) -> bool:
    """Return whether every marker of that time or later is still in a log."""
    if log.log_start_offset > 0:
        return False
    config = log.config
    return "compact" not in config.cleanup_policy or now_ms - since_ms < config.delete_retention_ms


def _has_marker(log: Log, producer: ActiveProducer, since_ms: int) -> bool:
    """Return whether a marker of that time or later precedes the open transaction."""
    end = producer.transaction_first_offset
    assert end is not None
    for segment in reversed(log.segments()):
        last, end = end, min(end, segment.base_offset)
        start = max(segment.base_offset, log.log_start_offset)
        # Times of markers count for their segment as those of records do.
        if start >= last or segment.max_timestamp < since_ms:
            continue
        for batch in log.batches(start, last, on_corrupt="skip"):
            header = batch.header
            is_marker = header.is_control and header.producer_id == producer.producer_id
            if is_marker and header.max_timestamp >= since_ms:
                return True
    return False
