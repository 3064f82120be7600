"""States of transactional ids: the records of `__transaction_state`, read and appended.

Damage in the topic is skipped. The damage of a power cut is after the last sync, and so after
every valid decision. If a disk corrupts a decision later, and the process ended before the markers
were written, the transaction is undone in partitions without a marker: this is logged, and the
health of the manager reports the damage. A whole record that cannot be decoded, as from a later
version of a broker, is reported there too; nothing is decided for its transactional id, and no
session can be opened for it.

Thread-safety: one thread at a time; the transaction coordinator calls it under its lock.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kafkalog._core.record import Record
from kafkalog.clients.decisions import Decision, decision_after
from kafkalog.clients.internal_topics import InternalTopic, partition_for
from kafkalog.clients.transaction_records import (
    EPOCH_HEADERS,
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kafkalog.errors import CorruptRecordError
from kafkalog.log.log import Log, Wait

__all__ = ["TransactionStates"]

logger = logging.getLogger(__name__)


class TransactionStates:
    """
    Last record and last decision of each transactional id.

    Args:
        topic: the topic `__transaction_state`.
    """

    def __init__(self, topic: InternalTopic) -> None:
        self._topic = topic
        self._records: dict[str, TransactionRecord] = {}
        # The last decision of each name, and the name of each producer id of the topic.
        self._decisions: dict[str, Decision] = {}
        self._owners: dict[int, str] = {}
        # Transactional ids whose last record cannot be decoded.
        self._unreadable: dict[str, CorruptRecordError] = {}
        # Partition of the topic -> its log, and the offset up to which it was read.
        self._followed: dict[int, tuple[Log, int]] = {}

    def record_of(self, transactional_id: str) -> TransactionRecord | None:
        """
        Return the last record of a transactional id.

        Raises:
            CorruptRecordError: it cannot be decoded.
        """
        unreadable = self._unreadable.get(transactional_id)
        if unreadable is not None:
            raise unreadable
        return self._records.get(transactional_id)

    def last_record(self, transactional_id: str) -> TransactionRecord | None:
        """Return the last record of a transactional id; None if it is missing or undecodable."""
        return self._records.get(transactional_id)

    def decision_of(self, transactional_id: str) -> Decision | None:
        """Return the last decision to commit of a transactional id."""
        return self._decisions.get(transactional_id)

    def owner_of(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer id."""
        return self._owners.get(producer_id)

    def unfinished(self) -> list[tuple[str, TransactionRecord]]:
        """Return the transactional ids whose last transaction is not finished."""
        return [pair for pair in self._records.items() if pair[1].state.is_unfinished]

    def is_whole(self) -> bool:
        """Return whether every partition of the topic can be seen."""
        return self._topic.is_whole()

    def leader_epoch_of(self, transactional_id: str) -> int:
        """Return the leader epoch of the partition of a transactional id; 0 if it was not read."""
        number = self._topic.partition_of(transactional_id)
        followed = self._followed.get(-1 if number is None else number)
        return 0 if followed is None else followed[0].leader_epoch

    def append(
        self, transactional_id: str, record: TransactionRecord, *, wait: Wait = "written"
    ) -> None:
        """
        Append a record.

        Raises:
            DiskFullError, LogOfflineError: as for an append.
        """
        log = self._topic.log(self._topic.ensure_partition_of(transactional_id))
        key, value = encode_key(transactional_id), encode_value(record)
        made = Record(
            key=key, value=value, timestamp_ms=record.last_update_ms, headers=EPOCH_HEADERS
        )
        log.append([made], wait=wait)
        self._set(transactional_id, record)

    def follow(self) -> None:
        """
        Read the new records of the topic.

        Raises:
            LogStorageError: the topic cannot be read now.
        """
        if not self._topic.partitions():
            self._topic.ensure_absent()
            return
        self._topic.resolve_partitions()
        self._topic.count()
        for number in self._topic.started_partitions():
            log = self._topic.log(number)
            followed, offset = self._followed.get(number, (None, -1))
            end = log.high_watermark
            if followed is not log or not log.log_start_offset <= offset <= end:
                offset = log.log_start_offset
            if log.corrupt_ranges():
                logger.warning("%s has damage, which is skipped: %s", log, log.corrupt_ranges())
            for record in log.records(offset, end, on_corrupt="skip"):
                self._read_record(number, record)
            self._followed[number] = log, end

    # ------------------------------------------------------------------------------------ private

    def _read_record(self, partition: int, record: Record) -> None:
        transactional_id: str | None = None
        try:
            transactional_id = decode_key(record.key)
            state = None if record.value is None else decode_value(record.value)
        except CorruptRecordError as why:
            error = self._topic.skip_record(partition, record.offset, why)
            if transactional_id is not None:
                self._records.pop(transactional_id, None)
                self._unreadable[transactional_id] = error
            return
        if transactional_id is None:
            return
        if partition == partition_for(transactional_id, self._topic.count()):
            self._unreadable.pop(transactional_id, None)
            if state is None:
                self._remove(transactional_id)
                return
            has_header = set(EPOCH_HEADERS) <= set(record.headers)
            self._set(
                transactional_id, replace(state, has_own_epochs=True) if has_header else state
            )

    def _set(self, transactional_id: str, record: TransactionRecord) -> None:
        self._records[transactional_id] = record
        for producer_id in (record.producer_id, *record.other_producer_ids):
            self._owners[producer_id] = transactional_id
        decision = decision_after(self._decisions.get(transactional_id), record)
        if decision is not None:
            self._decisions[transactional_id] = decision

    def _remove(self, transactional_id: str) -> None:
        """Remove a transactional id, after its null value."""
        self._records.pop(transactional_id, None)
        self._decisions.pop(transactional_id, None)
        for producer_id in [key for key, name in self._owners.items() if name == transactional_id]:
            del self._owners[producer_id]
