"""Transaction of a producer with a transactional.id: begun, joined by partitions, decided.

A partition joins before its first batch of the transaction is written. The coordinator decides, and
refuses a session whose name another producer has taken.

Thread-safety: one thread at a time begins and ends transactions; `join` and `record_failure` from
any thread. The lock is held while a partition joins.
"""

from __future__ import annotations

import threading

from kafkalog.clients.accumulator import Accumulator
from kafkalog.clients.transactions import TransactionCoordinator
from kafkalog.errors import InvalidTxnStateError, KafkaLogError, TransactionAbortedError
from kafkalog.model import TopicPartition

__all__ = ["ProducerTransaction"]


class ProducerTransaction:
    """
    Current transaction of one producer.

    Args:
        coordinator: the transaction coordinator.
        transactional_id: the name, for which a session is opened.
        timeout_ms: `transaction.timeout.ms` of the producer.

    Raises:
        DiskFullError, LogOfflineError: the session could not be written to the topic.

    Attributes:
        is_open: whether a transaction has begun and is neither committed nor aborted.
        session: the session of the transactional id.
    """

    def __init__(
        self, coordinator: TransactionCoordinator, transactional_id: str, timeout_ms: int
    ) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self.session = coordinator.open(transactional_id, timeout_ms)
        self.is_open = False
        # Set of partitions of the session when the transaction began; after its end it has another.
        self._begun: set[TopicPartition] = set()
        self._failure: KafkaLogError | None = None

    @property
    def begun(self) -> set[TopicPartition]:
        """Set of the partitions that joined, by identity the name of the transaction."""
        return self._begun

    def begin(self) -> None:
        """Begin a transaction; InvalidTxnStateError if one is open."""
        if self.is_open:
            raise InvalidTxnStateError("a transaction is open already")
        self._failure = None
        self._begun = self.session.partitions
        self.is_open = True

    def ensure_open(self) -> None:
        """Raise InvalidTxnStateError unless a transaction is open."""
        if not self.is_open:
            raise InvalidTxnStateError("no transaction is open")

    def join(self, accumulator: Accumulator) -> None:
        """
        Add a partition to the open transaction, before its first batch is written there.

        Raises:
            InvalidProducerEpochError: another session has the name now.
            DiskFullError, LogOfflineError: it could not be written to the topic.
        """
        session = self.session
        if accumulator.is_in(session.partitions):
            return
        # Only one of many threads does it: the batches are numbered from 0 after it.
        with self._lock:
            if not accumulator.is_in(session.partitions):
                self._coordinator.add(session, [accumulator.where])
                accumulator.enter(session.partitions, session.identity)

    def record_failure(self, error: KafkaLogError) -> None:
        """Record that a record of the transaction was not delivered: it cannot be committed."""
        self._failure = error

    def commit(self, begun: set[TopicPartition], undelivered: int) -> None:
        """
        Commit a transaction whose records are delivered; see `Producer.commit_transaction`.

        Args:
            begun: the transaction, as `begun` returned it before the records were delivered.
            undelivered: number of its records that are not delivered.
        """
        if self._failure is not None or undelivered:
            raise TransactionAbortedError(
                f"a record of the transaction was not delivered: {self._failure}"
            ) from self._failure
        self._coordinator.commit(self.session, begun)
        self.is_open = False

    def abort(self) -> None:
        """Abort the transaction; see `Producer.abort_transaction`."""
        self._coordinator.abort(self.session)
        self.is_open = False

    def close(self) -> None:
        """Close the session."""
        self._coordinator.close(self.session)

    def become_inherited(self) -> None:
        """Replace the lock in a forked child."""
        self._lock = threading.Lock()
