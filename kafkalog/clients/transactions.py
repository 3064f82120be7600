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

Each transaction has a separate producer epoch, as with Kafka's transaction version 2: the deciding
record raises it, the markers have the raised epoch, and a late batch is fenced.

Parts: `TransactionStates` (records and decisions of the topic), `TransactionEnd` (markers, and the
record that completes a transaction).

Thread-safety: every method from any thread, under one reentrant lock, which is held during appends
and syncs of decisions and markers. A session is used by one thread at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.group_positions import GroupPositions
from kafkalog.clients.internal_topics import (
    PARTITION_COUNT,
    TRANSACTION_STATE,
    InternalTopic,
    OnUnreadable,
)
from kafkalog.clients.producer_batch import Identity
from kafkalog.clients.producer_sequence import draw_producer_id
from kafkalog.clients.source import LogSource
from kafkalog.clients.transaction_end import TransactionEnd
from kafkalog.clients.transaction_records import (
    TransactionRecord,
    TransactionState,
)
from kafkalog.clients.transaction_states import TransactionStates
from kafkalog.clock import Clock
from kafkalog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogStorageError,
    TransactionAbortedError,
)
from kafkalog.log.log import Log, Wait
from kafkalog.model import TopicPartition

__all__ = ["Coordinators", "TransactionCoordinator", "TransactionSession"]

logger = logging.getLogger(__name__)

# The last epoch of a producer id that a transaction may have: its markers have the next one.
EPOCH_LAST: Final = 2**15 - 3
_STATES = TransactionState


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
        positions: positions of a consumer's group, instead of `groups`.
    """

    groups: GroupOffsets
    transactions: TransactionCoordinator | None = None
    positions: GroupPositions | None = None


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
        topic = InternalTopic(
            source,
            TRANSACTION_STATE,
            on_unreadable,
            partition_count=partition_count,
            is_own=is_own,
        )
        self._states = TransactionStates(topic)
        self._end = TransactionEnd(source, self._states, clock)
        self._lock = threading.RLock()
        self._sessions: dict[str, TransactionSession] = {}
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
                self._states.follow()
            except LogStorageError as error:
                logger.warning("transactions of the previous process are not known: %s", error)
                return False
            for transactional_id, record in self._states.unfinished():
                if transactional_id in self._sessions:
                    continue
                try:
                    self._end.finish(transactional_id, record)
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
            self._states.follow()
            record = self._states.record_of(transactional_id)
            if record is not None and record.state.is_unfinished:
                record = self._end.finish(transactional_id, record)
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
                    self._end.end_in(partition, log, session.transactional_id, producer)
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
                self.decide(session, _STATES.PREPARE_COMMIT)
            self._finish(session)
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
                self.decide(session, _STATES.PREPARE_ABORT)
            self._finish(session)
            self._restart(session)

    def decide(self, session: TransactionSession, decision: TransactionState) -> None:
        """
        Append and sync a decision; `commit` or `abort` writes the markers.

        Args:
            session: the session.
            decision: PREPARE_COMMIT, before which the partitions are synced, or PREPARE_ABORT.

        Raises:
            LogStorageError: the disk failed; the decision may be in the topic.
        """
        with self._lock:
            if decision is _STATES.PREPARE_COMMIT:
                self._end.sync(session.partitions)
            self._record_state(session, decision, wait="durable")

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
                self._states.follow()
                for transaction in log.list_transactions():
                    owner = self._states.owner_of(transaction.producer_id)
                    if owner is None or self._is_ongoing(owner, partition):
                        continue
                    producer = log.find_producer(transaction.producer_id)
                    assert producer is not None
                    self._end.end_in(partition, log, owner, producer)
            if self._states.is_whole():
                self._resolved[partition] = log

    # ------------------------------------------------------------------ private, the lock is held

    def _is_ongoing(self, owner: str, partition: TopicPartition) -> bool:
        session, record = self._sessions.get(owner), self._states.last_record(owner)
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
        self._states.follow()
        record = self._last_record(session)
        decided = record.state in (_STATES.PREPARE_COMMIT, _STATES.PREPARE_ABORT)
        identity = session.identity
        if (record.producer_id, record.producer_epoch - decided) != identity:
            raise self._fenced(session)
        return record.state

    def _next_identity(self, transactional_id: str, record: TransactionRecord | None) -> Identity:
        if record is None:
            return Identity(draw_producer_id(self._random), 0)
        if record.producer_epoch >= EPOCH_LAST:
            self._end.retire(transactional_id, record.producer_id)
            return Identity(draw_producer_id(self._random), 0)
        return Identity(record.producer_id, record.producer_epoch + 1)

    def _last_record(self, session: TransactionSession) -> TransactionRecord:
        record = self._states.record_of(session.transactional_id)
        if record is None:
            raise self._fenced(session)
        return record

    def _finish(self, session: TransactionSession) -> None:
        self._end.finish(session.transactional_id, self._last_record(session))

    def _restart(self, session: TransactionSession) -> None:
        session.end_transaction()
        record = self._last_record(session)
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
        self._states.append(session.transactional_id, record, wait=wait)
