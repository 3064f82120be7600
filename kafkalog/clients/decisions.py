"""Which open transaction of a partition is the one that `__transaction_state` says is committed.

After a power cut a partition may hold the data of a later transaction of the same producer, of
which the topic says nothing yet: COMPLETE of the decided one, and ONGOING of the next, are not
synced. A decision counts for its own transaction's data and for nothing else:

* Transactions that have an epoch each (ours, and a broker's of version 2): data of epoch e, marker
  and decision of epoch e + 1, data of the next one of epoch e + 1. The epoch alone says whose data
  it is, since every epoch that is given away is on the disk first.
* Transactions of a broker's versions 0 and 1 have one epoch in common. Data behind a marker that
  was written at the time of the decision or later is the next one's; data of a partition that has
  no such marker, and that the decision names, is its own. This rests on the broker's clock: a
  transaction that begins, and is decided, within the millisecond of the marker of the one before
  cannot be told from it. Where the topic says that the transaction is complete, and a broker's
  power cut took its markers, it needs a log that has lost no marker since, to retention or to
  compaction; else the data is undone.

Thread-safety: pure functions, immutable values.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.clients.transaction_records import TransactionRecord, TransactionState
from kafkalog.log.log import Log
from kafkalog.model import ActiveProducer, TopicPartition

__all__ = ["Decision", "decision_after", "is_committed"]

# The markers of a producer id's last transaction have it; the record of the next id does not say.
LAST_MARKER_EPOCH: Final = 2**15 - 1


class Decision(NamedTuple):
    """
    The last transaction under a transactional id that was decided to have happened.

    Attributes:
        producer_id: whose transaction it was.
        marker_epoch: the epoch of the decision, and of its markers.
        partitions: where it wrote; None where that is not known any more.
        decided_ms: when it was decided.
        has_own_epochs: whether each transaction has an epoch of its own.
    """

    producer_id: int
    marker_epoch: int
    partitions: frozenset[TopicPartition] | None
    decided_ms: int
    has_own_epochs: bool


def decision_after(before: Decision | None, record: TransactionRecord) -> Decision | None:
    """
    Return the last decision to commit, behind a record of the topic.

    Args:
        before: the same, before that record.
        record: of the same transactional id.
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
    Return whether the open transaction of a producer in a log is the one that was committed.

    Args:
        decision: the last one under the producer's transactional id, None where there was none.
        where, log: the partition.
        producer: what the log knows of the producer; its transaction is open.
        is_pending: whether the topic's last record is the decision itself: markers may be missing.
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
    """Return whether a marker of that time or later lies before a producer's open transaction."""
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
