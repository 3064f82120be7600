"""End of transactions: markers in the partitions, and the record that completes a transaction.

Each partition of ONGOING gets a marker, even without a batch of the transaction: so a late batch of
a session that lost its name is refused everywhere. The markers have the raised producer epoch of
the decision. Their coordinator epoch is the leader epoch of the partition of the transactional id,
or the largest that the log of the data partition has seen, whichever is larger.

Crash points: the markers of a commit are synced before COMPLETE is appended; those of an abort are
not, since undoing twice has the same result.

Thread-safety: one thread at a time; the transaction coordinator calls it under its lock.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from kafkalog.clients.decisions import is_committed
from kafkalog.clients.producer_batch import Identity
from kafkalog.clients.source import LogSource
from kafkalog.clients.transaction_records import TransactionRecord, TransactionState
from kafkalog.clients.transaction_states import TransactionStates
from kafkalog.clock import Clock
from kafkalog.errors import LogStorageError, UnsupportedForMessageFormatError
from kafkalog.log.log import Log
from kafkalog.model import ActiveProducer, AppendOrigin, TopicPartition
from kafkalog.records.control import encode_marker

__all__ = ["TransactionEnd"]

logger = logging.getLogger(__name__)

# Largest 16-bit number: the markers of a broker's last transaction of a producer id have it.
EPOCH_MAX: Final = 2**15 - 1


class TransactionEnd:
    """
    Writer of markers and completions.

    Args:
        source: the logs.
        states: states of the transactional ids.
        clock: source of the times of records and markers.
    """

    def __init__(self, source: LogSource, states: TransactionStates, clock: Clock) -> None:
        self._source = source
        self._states = states
        self._clock = clock

    def finish(self, transactional_id: str, record: TransactionRecord) -> TransactionRecord:
        """
        Write the markers of a transaction that is decided, or abort an abandoned one.

        Returns:
            the record that completes it.

        Raises:
            LogStorageError: a disk failed, or a partition of a commit may be in a directory that is
                offline; the call may be repeated.
        """
        is_abort = record.state is not TransactionState.PREPARE_COMMIT
        if record.state is TransactionState.ONGOING:
            record = replace(
                record,
                producer_epoch=min(record.producer_epoch + 1, EPOCH_MAX),
                state=TransactionState.PREPARE_ABORT,
                last_update_ms=self._clock.now_ms(),
            )
            self._states.append(transactional_id, record, wait="durable")
        partitions = self._present(record.partitions, is_abort=is_abort)
        for partition in partitions:
            log = self._source.log(*partition)
            producer = log.find_producer(record.producer_id)
            if producer is None or producer.transaction_first_offset is None:
                if producer is None or producer.producer_epoch < record.producer_epoch:
                    with suppress(UnsupportedForMessageFormatError):
                        self._mark(log, transactional_id, producer, is_abort=is_abort)
            else:
                self.end_in(partition, log, transactional_id, producer)
        if not is_abort:
            self.sync(partitions)
        state = TransactionState.COMPLETE_ABORT if is_abort else TransactionState.COMPLETE_COMMIT
        complete = replace(record, state=state, partitions=(), last_update_ms=self._clock.now_ms())
        self._states.append(transactional_id, complete)
        return complete

    def end_in(
        self, where: TopicPartition, log: Log, transactional_id: str, producer: ActiveProducer
    ) -> None:
        """End the open transaction of a producer in a log: commit it if decided, else abort."""
        record = self._states.last_record(transactional_id)
        commits = is_committed(
            self._states.decision_of(transactional_id),
            where,
            log,
            producer,
            is_pending=record is not None and record.state is TransactionState.PREPARE_COMMIT,
            now_ms=self._clock.now_ms(),
        )
        self._mark(log, transactional_id, producer, is_abort=not commits)

    def retire(self, transactional_id: str, producer_id: int) -> None:
        """End and sync all open transactions of a producer id that has no more epochs."""
        for topic, numbers in self._source.topics().items():
            for number in numbers:
                where = TopicPartition(topic, number)
                try:
                    log = self._source.log(*where)
                    producer = log.find_producer(producer_id)
                    if producer is None:
                        continue
                    if producer.transaction_first_offset is not None:
                        self.end_in(where, log, transactional_id, producer)
                    _sync(log)
                except LogStorageError as error:
                    # The records of the id in the topic identify it later, while they exist.
                    logger.warning("%s: transactions of %d stay: %s", where, producer_id, error)

    def sync(self, partitions: Collection[TopicPartition]) -> None:
        """
        Sync partitions together.

        Raises:
            LogStorageError: the disk failed.
        """
        failures = self._source.commit([self._source.log(*each) for each in partitions])
        for error in failures.values():
            raise error

    # ------------------------------------------------------------------------------------ private

    def _present(
        self, partitions: Iterable[TopicPartition], *, is_abort: bool
    ) -> list[TopicPartition]:
        """
        Return the partitions that were not deleted.

        Raises:
            LogOfflineError: a partition of a commit may be in a directory that is offline.
        """
        present = self._source.topics()
        found = []
        for each in partitions:
            if each.partition in present.get(each.topic, ()):
                found.append(each)
            elif not is_abort:
                # A missing abort is completed by `resolve`; a missing commit would be undone by it.
                with suppress(LookupError):
                    self._source.log(*each)
        return found

    def _mark(
        self, log: Log, transactional_id: str, producer: ActiveProducer | None, *, is_abort: bool
    ) -> None:
        """Write a marker that the log accepts: with no epoch below those that it has seen."""
        identity, coordinator_epoch, now_ms = Identity(), 0, self._clock.now_ms()
        record = self._states.last_record(transactional_id)
        if record is not None:
            identity = Identity(record.producer_id, record.producer_epoch)
            # Not before the decision, even if the clock goes back: the time identifies the marker.
            now_ms = max(now_ms, record.last_update_ms)
        if producer is not None:
            coordinator_epoch = producer.coordinator_epoch
            # The producer id may be an earlier id of the name.
            if producer.producer_id != identity.producer_id:
                identity = Identity(producer.producer_id, producer.producer_epoch)
            elif producer.producer_epoch > identity.producer_epoch:
                identity = Identity(*producer[:2])
        coordinator_epoch = max(coordinator_epoch, self._states.leader_epoch_of(transactional_id))
        marker = encode_marker(*identity, max(coordinator_epoch, 0), now_ms, is_abort=is_abort)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)


def _sync(log: Log) -> None:
    if log.durable_offset < log.log_end_offset:
        log.flush()
