"""Transaction coordinator: decisions in the topic `__transaction_state`, and the markers.

A transaction writes to several partitions, positions of groups among them. It is atomic since a
single record decides it:

    1  ONGOING is appended before the first batch of a partition        needed by a broker
    2  all partitions that it wrote to are synced
    3  PREPARE_COMMIT is appended and synced                            from here on it is committed
    4  each partition gets its marker, and is synced
    5  COMPLETE_COMMIT is appended

Abort: PREPARE_ABORT (synced), the markers, COMPLETE_ABORT. An unfinished transaction is finished
when a coordinator starts, or when a session is opened for the same transactional id: committed if
PREPARE_COMMIT is in the topic, else aborted. A transaction that is found in a partition
(`resolve`), whose producer is known and has no transaction open, is undone: its ONGOING was lost.

Crash points: before 3 is synced the transaction is undone, and readers of committed records never
see its records and positions. After 3 it is finished by the next coordinator, before anyone can
read its partitions; its data was synced before the decision. Neither COMPLETE nor the ONGOING of
the next transaction is synced: if both are lost, and data of the next transaction exists, the
decision is valid for its data alone (`decisions`), and the rest is undone. This requires:

  * the markers of a commit are synced before COMPLETE is written, and so before data of the next
    transaction; the markers of an abort need not be, since undoing twice has the same result;
  * an epoch is used once: EMPTY, and each decision, which raise it, are synced before any batch has
    it. A producer id without further epochs is replaced only when no transaction of it is open any
    more, and that is synced.

Each partition of ONGOING gets a marker, even without a batch of the transaction: so a late batch
of a session that lost its name is refused everywhere.

Damage in the topic is skipped. The damage of a power cut is after the last sync, and so after
every valid decision. If a disk corrupts a decision later, and the process ended before the markers
were written, the transaction is undone in partitions without a marker: this is logged, and the
health of the manager reports the damage. A whole record that cannot be decoded, as from a later
version of a broker, is reported there too; nothing is decided for its transactional id, and no
session can be opened for it.

Each transaction has a separate producer epoch, as with Kafka's transaction version 2: the deciding
record raises it, the markers have the raised epoch, and a late batch is fenced. The coordinator
epoch of the markers is the leader epoch of the partition of the transactional id, or the largest
that the log of the data partition has seen, whichever is larger.

Thread-safety: every method from any thread, under one reentrant lock, which is held during appends
and syncs of decisions and markers. A session is used by one thread at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kafkalog._core.record import Record
from kafkalog.clients.decisions import Decision, decision_after, is_committed
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.internal_topics import (
    PARTITION_COUNT,
    TRANSACTION_STATE,
    InternalTopic,
    OnUnreadable,
    partition_for,
)
from kafkalog.clients.producer_batch import Identity
from kafkalog.clients.source import LogSource
from kafkalog.clients.transaction_records import (
    EPOCH_HEADERS,
    TransactionRecord,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kafkalog.clock import Clock
from kafkalog.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogStorageError,
    TransactionAbortedError,
    UnsupportedForMessageFormatError,
)
from kafkalog.log.log import Log, Wait
from kafkalog.model import ActiveProducer, AppendOrigin, TopicPartition
from kafkalog.records.control import encode_marker

__all__ = ["Coordinators", "TransactionCoordinator", "TransactionSession", "draw_producer_id"]

logger = logging.getLogger(__name__)

# The last epoch of a producer id that a transaction may have: its markers have the next one.
EPOCH_LAST: Final = 2**15 - 3
# Largest 16-bit number: the markers of a broker's last transaction of a producer id have it.
EPOCH_MAX: Final = 2**15 - 1
_STATES = TransactionState


def draw_producer_id(random: Random) -> int:
    """
    Return an unused producer id.

    Brokers count producer ids from 0 and keep the counter in their cluster. Without a cluster a
    counter could be lost; a random number of 62 bits does not repeat.
    """
    return random.getrandbits(62)


class TransactionSession:
    """
    Transactional id, with the producer that may write under it.

    Thread-safety: only the coordinator changes it, under its lock; the producer reads.

    Attributes:
        transactional_id: the name.
        identity: producer id and epoch of the batches; another one after each transaction.
        partitions: partitions of the current transaction; another set for the next one.
        start_ms: time of the first partition of the current transaction; -1 before.
    """

    def __init__(self, transactional_id: str, identity: Identity, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.identity = identity
        self.timeout_ms = timeout_ms
        self.partitions: set[TopicPartition] = set()
        self.start_ms = -1
        self._committed: set[TopicPartition] | None = None

    def add(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Add partitions to the transaction, which begins with the first of them."""
        if self.start_ms < 0:
            self.start_ms = now_ms
        self.partitions |= set(partitions)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions that could not be added to the topic."""
        self.partitions -= set(partitions)

    def is_committed(self, transaction: set[TopicPartition]) -> bool:
        """Return whether a transaction was the last to be committed."""
        return self._committed is transaction

    def commit(self, transaction: set[TopicPartition]) -> None:
        """Set the last committed transaction."""
        self._committed = transaction

    def end_transaction(self) -> None:
        """Leave the partitions of a finished transaction: the next one has another set."""
        self.partitions = set()
        self.start_ms = -1

    def renumber(self, identity: Identity) -> None:
        """Number the batches of the next transaction by another identity."""
        self.identity = identity


@dataclass(frozen=True, slots=True)
class Coordinators:
    """
    Coordinators that all producers and consumers of a process share.

    Attributes:
        groups: positions of groups.
        transactions: transaction coordinator; None for clients without transactions.
    """

    groups: GroupOffsets
    transactions: TransactionCoordinator | None = None


class TransactionCoordinator:
    """
    Coordinator of the transactions of a process.

    Args:
        source: the logs.
        clock: source of the times of records.
        random: draws producer ids.
        on_unreadable: called with every record that cannot be decoded.
        partition_count, is_own: as for `InternalTopic`.
    """

    def __init__(
        self,
        source: LogSource,
        clock: Clock,
        random: Random,
        on_unreadable: OnUnreadable | None = None,
        *,
        partition_count: int = PARTITION_COUNT,
        is_own: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self._source = source
        self._clock = clock
        self._random = random
        self._topic = InternalTopic(
            source,
            TRANSACTION_STATE,
            on_unreadable,
            partition_count=partition_count,
            is_own=is_own,
        )
        self._lock = threading.RLock()
        self._sessions: dict[str, TransactionSession] = {}
        self._states: dict[str, TransactionRecord] = {}
        # The last decision of each name, and the name of each producer id of the topic.
        self._decisions: dict[str, Decision] = {}
        self._owners: dict[int, str] = {}
        # Transactional ids whose last record cannot be decoded.
        self._unreadable: dict[str, CorruptRecordError] = {}
        # Partition of the topic -> its log, and the offset up to which it was read.
        self._followed: dict[int, tuple[Log, int]] = {}
        self._resolved: dict[TopicPartition, Log] = {}

    def recover(self) -> bool:
        """
        Finish the transactions of the previous process; return whether all of them are finished.

        A transaction that cannot be finished because a disk is full or offline stays open, and is
        logged: readers of committed records stop before it, all other work continues.
        """
        done = True
        with self._lock:
            try:
                self._follow()
            except LogStorageError as error:
                logger.warning("transactions of the previous process are not known: %s", error)
                return False
            for transactional_id, record in list(self._states.items()):
                if not record.state.is_unfinished or transactional_id in self._sessions:
                    continue
                try:
                    self._finish(transactional_id, record)
                except LogStorageError as error:
                    logger.warning("%r cannot be finished now: %s", transactional_id, error)
                    done = False
        return done

    def open(self, transactional_id: str, timeout_ms: int) -> TransactionSession:
        """
        Open a session; an earlier session of the same name is fenced, its transaction finished.

        Raises:
            DiskFullError, LogOfflineError: the session could not be written to the topic.
            CorruptRecordError: the last record of the name in the topic cannot be decoded.
        """
        with self._lock:
            self._follow()
            unreadable = self._unreadable.get(transactional_id)
            if unreadable is not None:
                raise unreadable
            record = self._states.get(transactional_id)
            if record is not None and record.state.is_unfinished:
                record = self._finish(transactional_id, record)
            identity = self._next_identity(transactional_id, record)
            session = TransactionSession(transactional_id, identity, timeout_ms)
            # Synced: an epoch must not be used twice.
            self._record_state(session, _STATES.EMPTY, wait="durable")
            self._sessions[transactional_id] = session
            return session

    def close(self, session: TransactionSession) -> None:
        """Remove a session."""
        with self._lock:
            if self._sessions.get(session.transactional_id) is session:
                del self._sessions[session.transactional_id]

    def add(self, session: TransactionSession, partitions: Iterable[TopicPartition]) -> None:
        """
        Add partitions to a transaction, before its first batch is written there.

        Raises:
            InvalidProducerEpochError: another session has the name now.
            DiskFullError, LogOfflineError: they could not be written to the topic.
        """
        with self._lock:
            self._check(session)
            fresh = set(partitions) - session.partitions
            if not fresh:
                return
            for partition in fresh:
                log = self._source.log(*partition)
                self.resolve(partition, log)
                producer = log.find_producer(session.identity.producer_id)
                if producer is not None and producer.transaction_first_offset is not None:
                    # Late batches of a session that lost the name are not part of this one.
                    self._end(partition, log, session.transactional_id, producer)
            session.add(fresh, self._clock.now_ms())
            try:
                self._record_state(session, _STATES.ONGOING)
            except BaseException:
                session.remove(fresh)
                raise

    def commit(self, session: TransactionSession, transaction: set[TopicPartition]) -> None:
        """
        Commit the transaction of a session; may be called again after a failure.

        Args:
            session: the session.
            transaction: the `partitions` of the session since the transaction began.

        Raises:
            TransactionAbortedError: it was aborted by another thread; or the abort was decided by
                a call that failed later, and `abort` must be called again.
            InvalidProducerEpochError: another session has the name now.
            LogStorageError: the disk failed. The next call finds out whether the transaction was
                committed; `abort` raises if it was.
        """
        name = session.transactional_id
        with self._lock:
            if session.is_committed(transaction):
                return
            if session.partitions is not transaction:
                raise TransactionAbortedError(f"the transaction of {name!r} was aborted before")
            self._check(session)
            if not session.partitions:
                return
            decision = self._decision(session)
            if decision is _STATES.PREPARE_ABORT:
                raise TransactionAbortedError(
                    f"the transaction of {name!r} is decided: abort it again"
                )
            if decision is not _STATES.PREPARE_COMMIT:
                self._sync(session.partitions)
                self._record_state(session, _STATES.PREPARE_COMMIT, wait="durable")
            self._finish(name, self._states[name])
            session.commit(transaction)
            self._restart(session)

    def abort(self, session: TransactionSession) -> None:
        """
        Abort the transaction of a session; may be called again after a failure.

        Raises:
            InvalidTxnStateError: the commit was decided by a call that failed later; `commit` must
                be called again.
            InvalidProducerEpochError, LogStorageError: as for `commit`.
        """
        with self._lock:
            self._check(session)
            if not session.partitions:
                return
            decision = self._decision(session)
            if decision is _STATES.PREPARE_COMMIT:
                raise InvalidTxnStateError(
                    f"the transaction of {session.transactional_id!r} is decided: commit it again",
                    producer_id=session.identity.producer_id,
                )
            if decision is not _STATES.PREPARE_ABORT:
                self._record_state(session, _STATES.PREPARE_ABORT, wait="durable")
            self._finish(session.transactional_id, self._states[session.transactional_id])
            self._restart(session)

    def resolve(self, partition: TopicPartition, log: Log) -> None:
        """
        Undo the abandoned transactions of a log; once for each log object.

        Transactions of unknown producers stay open: `Log.list_transactions` shows them,
        `Log.abort_transaction` ends them.
        """
        with self._lock:
            if self._resolved.get(partition) is log:
                return
            if not log.is_read_only:
                self._follow()
                for transaction in log.list_transactions():
                    owner = self._owners.get(transaction.producer_id)
                    if owner is None or self._is_ongoing(owner, partition):
                        continue
                    producer = log.find_producer(transaction.producer_id)
                    assert producer is not None
                    self._end(partition, log, owner, producer)
            if self._topic.is_whole():
                self._resolved[partition] = log

    # ------------------------------------------------------------------ private, the lock is held

    def _is_ongoing(self, owner: str, partition: TopicPartition) -> bool:
        session, record = self._sessions.get(owner), self._states.get(owner)
        if session is not None and partition in session.partitions:
            return True
        if record is None:
            return False
        return record.state.is_unfinished and partition in record.partitions

    def _check(self, session: TransactionSession) -> None:
        if self._sessions.get(session.transactional_id) is not session:
            raise self._fenced(session)

    def _fenced(self, session: TransactionSession) -> InvalidProducerEpochError:
        return InvalidProducerEpochError(
            f"another producer has the transactional.id {session.transactional_id!r} now",
            producer_id=session.identity.producer_id,
        )

    def _decision(self, session: TransactionSession) -> TransactionState:
        """Return the state of the transaction in the topic, if it belongs to the session."""
        self._follow()
        record = self._states[session.transactional_id]
        decided = record.state in (_STATES.PREPARE_COMMIT, _STATES.PREPARE_ABORT)
        identity = session.identity
        if (record.producer_id, record.producer_epoch - decided) != identity:
            raise self._fenced(session)
        return record.state

    def _next_identity(self, transactional_id: str, record: TransactionRecord | None) -> Identity:
        if record is None:
            return Identity(draw_producer_id(self._random), 0)
        if record.producer_epoch >= EPOCH_LAST:
            self._retire(transactional_id, record.producer_id)
            return Identity(draw_producer_id(self._random), 0)
        return Identity(record.producer_id, record.producer_epoch + 1)

    def _retire(self, transactional_id: str, producer_id: int) -> None:
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
                        self._end(where, log, transactional_id, producer)
                    if log.durable_offset < log.log_end_offset:
                        log.flush()
                except LogStorageError as error:
                    # The records of the id in the topic identify it later, while they exist.
                    logger.warning("%s: transactions of %d stay: %s", where, producer_id, error)

    def _restart(self, session: TransactionSession) -> None:
        session.end_transaction()
        record = self._states[session.transactional_id]
        if record.producer_epoch < EPOCH_LAST:
            session.renumber(Identity(record.producer_id, record.producer_epoch))
            return
        session.renumber(self._next_identity(session.transactional_id, record))
        self._record_state(session, _STATES.EMPTY, wait="durable")

    def _record_state(
        self, session: TransactionSession, state: TransactionState, *, wait: Wait = "written"
    ) -> None:
        """Append the state of a session's transaction; a decision raises the epoch."""
        raises = state in (_STATES.PREPARE_COMMIT, _STATES.PREPARE_ABORT)
        partitions = () if state is _STATES.EMPTY else tuple(sorted(session.partitions))
        record = TransactionRecord(
            session.identity.producer_id,
            session.identity.producer_epoch + raises,
            session.timeout_ms,
            state,
            partitions,
            self._clock.now_ms(),
            session.start_ms,
            has_own_epochs=True,
        )
        self._write(session.transactional_id, record, wait=wait)

    def _write(
        self, transactional_id: str, record: TransactionRecord, *, wait: Wait = "written"
    ) -> None:
        log = self._topic.log(self._topic.ensure_partition_of(transactional_id))
        key, value = encode_key(transactional_id), encode_value(record)
        made = Record(
            key=key, value=value, timestamp_ms=record.last_update_ms, headers=EPOCH_HEADERS
        )
        log.append([made], wait=wait)
        self._cache_state(transactional_id, record)

    def _finish(self, transactional_id: str, record: TransactionRecord) -> TransactionRecord:
        """Write the markers of a transaction that is decided, or abort an abandoned one."""
        is_abort = record.state is not _STATES.PREPARE_COMMIT
        if record.state is _STATES.ONGOING:
            record = replace(
                record,
                producer_epoch=min(record.producer_epoch + 1, EPOCH_MAX),
                state=_STATES.PREPARE_ABORT,
                last_update_ms=self._clock.now_ms(),
            )
            self._write(transactional_id, record, wait="durable")
        partitions = self._present(record.partitions, is_abort=is_abort)
        for partition in partitions:
            log = self._source.log(*partition)
            producer = log.find_producer(record.producer_id)
            if producer is None or producer.transaction_first_offset is None:
                if producer is None or producer.producer_epoch < record.producer_epoch:
                    with suppress(UnsupportedForMessageFormatError):
                        self._mark(log, transactional_id, record, producer, is_abort=is_abort)
            else:
                self._end(partition, log, transactional_id, producer)
        if not is_abort:
            self._sync(partitions)
        complete = replace(
            record,
            state=_STATES.COMPLETE_ABORT if is_abort else _STATES.COMPLETE_COMMIT,
            partitions=(),
            last_update_ms=self._clock.now_ms(),
        )
        self._write(transactional_id, complete)
        return complete

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

    def _end(
        self, where: TopicPartition, log: Log, transactional_id: str, producer: ActiveProducer
    ) -> None:
        """End the open transaction of a producer in a log: commit it if decided, else abort."""
        record = self._states.get(transactional_id)
        is_pending = record is not None and record.state is _STATES.PREPARE_COMMIT
        decision = self._decisions.get(transactional_id)
        commits = is_committed(
            decision,
            where,
            log,
            producer,
            is_pending=is_pending,
            now_ms=self._clock.now_ms(),
        )
        self._mark(log, transactional_id, record, producer, is_abort=not commits)

    def _mark(
        self,
        log: Log,
        transactional_id: str,
        record: TransactionRecord | None,
        producer: ActiveProducer | None,
        *,
        is_abort: bool,
    ) -> None:
        """Write a marker that the log accepts: with no epoch below those that it has seen."""
        identity, coordinator_epoch, now_ms = Identity(), 0, self._clock.now_ms()
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
        number = self._topic.partition_of(transactional_id)
        followed = self._followed.get(-1 if number is None else number)
        if followed is not None:
            coordinator_epoch = max(coordinator_epoch, followed[0].leader_epoch)
        marker = encode_marker(*identity, max(coordinator_epoch, 0), now_ms, is_abort=is_abort)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)

    def _sync(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            log = self._source.log(*partition)
            if log.durable_offset < log.log_end_offset:
                log.flush()

    def _follow(self) -> None:
        """Read the new records of the topic."""
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

    def _read_record(self, partition: int, record: Record) -> None:
        """Apply a record of the topic."""
        transactional_id: str | None = None
        try:
            transactional_id = decode_key(record.key)
            state = None if record.value is None else decode_value(record.value)
        except CorruptRecordError as why:
            error = self._topic.skip_record(partition, record.offset, why)
            if transactional_id is not None:
                self._states.pop(transactional_id, None)
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
            self._cache_state(
                transactional_id, replace(state, has_own_epochs=True) if has_header else state
            )

    def _cache_state(self, transactional_id: str, record: TransactionRecord) -> None:
        """Set the last record of a transactional id."""
        self._states[transactional_id] = record
        for producer_id in (record.producer_id, *record.other_producer_ids):
            self._owners[producer_id] = transactional_id
        decision = decision_after(self._decisions.get(transactional_id), record)
        if decision is not None:
            self._decisions[transactional_id] = decision

    def _remove(self, transactional_id: str) -> None:
        """Remove a transactional id, after its null value."""
        self._states.pop(transactional_id, None)
        self._decisions.pop(transactional_id, None)
        for producer_id in [key for key, name in self._owners.items() if name == transactional_id]:
            del self._owners[producer_id]
