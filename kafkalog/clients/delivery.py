"""The future of a record that was sent: where it lies, or why it does not.

All records of a batch have one outcome, so what a future shows is computed from its batch when
somebody asks: a batch that is done costs one store, however many records it has, and a future is an
object with three fields. `concurrent.futures` would give each a lock and four containers, which
takes longer than the record itself.

To `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` it is one of theirs: they
look at `_condition`, `_state` and `_waiters`, from Python 3.14 on also at `_result` and
`_exception`, which are properties here.

Thread-safety: every method from any thread. Callbacks run on the thread that finished the batch,
after it let go of all locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple

from kafkalog.model import TopicPartition

__all__ = ["BatchOutcome", "Delivery", "RecordMetadata"]

logger = logging.getLogger(__name__)

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"


class RecordMetadata(NamedTuple):
    """
    Where a record lies.

    Attributes:
        topic, partition: which log.
        offset: its offset there.
        timestamp_ms: its own, or that of the append where `message.timestamp.type` says so.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class BatchOutcome:
    """
    What became of the records of a batch, told once.

    Attributes:
        state: as a future has it: RUNNING until it is told.
    """

    __slots__ = ("append_time_ms", "base_offset", "condition", "error", "state", "watched", "where")

    def __init__(self, where: TopicPartition, condition: threading.Condition | None = None) -> None:
        self.where = where
        self.condition = threading.Condition() if condition is None else condition
        self.state = _RUNNING
        self.base_offset = -1
        self.append_time_ms: int | None = None
        self.error: BaseException | None = None
        # Futures with a callback, or somebody waiting by `concurrent.futures.wait`.
        self.watched: list[Delivery] = []

    def succeed(self, base_offset: int, append_time_ms: int | None) -> None:
        """Tell that the batch lies in the log."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(self, error: BaseException) -> None:
        """Tell why the batch, or what was left of it, does not."""
        self.error = error
        self._finish()

    def wait(self, timeout: float | None) -> bool:
        """Wait that many seconds, for ever if None, until it was told; say whether it was."""
        with self.condition:
            return self.condition.wait_for(lambda: self.state == _FINISHED, timeout)

    def abandon(self, error: BaseException) -> None:
        """Tell, in a forked child, that nothing is going to be told here; nobody is called back."""
        self.condition = threading.Condition()
        self.watched = []
        if self.state != _FINISHED:
            self.error, self.state = error, _FINISHED

    def _finish(self) -> None:
        with self.condition:
            self.state = _FINISHED
            self.condition.notify_all()
            watched, self.watched = self.watched, []
        for delivery in watched:
            delivery._notify()


class Delivery(Future[RecordMetadata]):
    """
    The future of one record; made by `Producer.send`.

    It cannot be cancelled: the record is on its way.
    """

    # `Future.__init__` is left out: what it would store are properties here.
    def __init__(self, outcome: BatchOutcome, slot: int, timestamp_ms: int) -> None:
        self._outcome = outcome
        self._slot = slot
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        where = self._outcome.where
        if not self.done():
            return f"<Delivery to {where}, under way>"
        error = self._outcome.error
        return f"<Delivery to {where}: {self.result() if error is None else error!r}>"

    def cancel(self) -> bool:
        """Return False: what was sent is not taken back."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def running(self) -> bool:
        """Return whether nothing is known yet."""
        return self._outcome.state == _RUNNING

    def done(self) -> bool:
        """Return whether the record is in the log, or never will be."""
        return self._outcome.state == _FINISHED

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """
        Return where the record lies, once it does.

        Args:
            timeout: seconds to wait at most; None for ever.

        Raises:
            TimeoutError: nothing is known yet.
            KafkaLogError: why the record is not in the log.
        """
        outcome = self._wait(timeout)
        if outcome.error is not None:
            raise outcome.error
        return self._metadata(outcome)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return why the record is not in the log, None once it is; TimeoutError as `result`."""
        return self._wait(timeout).error

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn` with this future once it is done; at once if it is already."""
        with self._outcome.condition:
            if not self.done():
                self._done_callbacks.append(fn)
                return
        self._call(fn)

    def move(self, outcome: BatchOutcome, slot: int) -> None:
        """Have another outcome, of the same condition, or another place in the batch."""
        with outcome.condition:
            if self in self._outcome.watched:
                self._outcome.watched.remove(self)
                outcome.watched.append(self)
            self._outcome, self._slot = outcome, slot

    def _wait(self, timeout: float | None) -> BatchOutcome:
        outcome = self._outcome
        if outcome.state == _FINISHED:
            return outcome
        with outcome.condition:
            # Whoever shares the condition may have been meant, and the outcome may change.
            if not outcome.condition.wait_for(self.done, timeout):
                raise FutureTimeoutError(f"nothing is known of a record for {outcome.where}")
        return self._outcome

    def _metadata(self, outcome: BatchOutcome) -> RecordMetadata:
        append_time_ms = outcome.append_time_ms
        return RecordMetadata(
            *outcome.where,
            outcome.base_offset + self._slot,
            self._timestamp_ms if append_time_ms is None else append_time_ms,
        )

    def _notify(self) -> None:
        """Call back, and wake those who wait by `concurrent.futures.wait`."""
        for waiter in tuple(self.__dict__.get("waiters", ())):
            if self._outcome.error is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        for fn in self.__dict__.get("callbacks", ()):
            self._call(fn)

    def _call(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        try:
            fn(self)
        except Exception:
            # As `concurrent.futures` has it: whoever listens does not stop those who work.
            logger.exception("a callback failed for %r", self)

    def _watched_list(self, name: str) -> list[Any]:
        found = self.__dict__.get(name)
        if found is None:
            found = self.__dict__[name] = []
            outcome = self._outcome
            if not self.done() and self not in outcome.watched:
                outcome.watched.append(self)
        return found

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._outcome.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return self._outcome.state

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        outcome = self._outcome
        done = outcome.state == _FINISHED and outcome.error is None
        return self._metadata(outcome) if done else None

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._outcome.error

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._watched_list("waiters")

    @property
    def _done_callbacks(self) -> list[Callable[[Future[RecordMetadata]], object]]:
        return self._watched_list("callbacks")
