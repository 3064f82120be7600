"""Future of a sent record: its offset in the log, or the error.

All records of a batch share one outcome, and a future computes its result from it on request: a
finished batch costs one store for any number of records, and a future is an object with three
fields. `concurrent.futures` would make a lock and four containers for each, which takes longer than
the record itself.

`concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` accept these futures: they read
`_condition`, `_state` and `_waiters`, from Python 3.14 on also `_result` and `_exception`, which
are properties here.

Thread-safety: every method from any thread, under the condition of the outcome. Callbacks run on
the thread that finished the batch, without locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple, Protocol

from kafkalog.errors import DeliveryTimeoutError, DiskFullError
from kafkalog.model import TopicPartition

__all__ = ["FINISHED", "BatchOutcome", "Delivery", "RecordMetadata", "drop_tracebacks"]

logger = logging.getLogger(__name__)

_RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"


class RecordMetadata(NamedTuple):
    """
    Position of a record in a log.

    Attributes:
        topic, partition: the log.
        offset: the offset of the record.
        timestamp_ms: that of the record, or of the append, by `message.timestamp.type`.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Watcher(Protocol):
    """Receiver of an outcome."""

    def notify(self) -> None:
        """Take the outcome, which is set; it must not raise."""

    def abandon(self) -> None:
        """Take the error of the outcome in a forked child; call no callbacks."""


class BatchOutcome:
    """
    Outcome of the records of a batch, set once.

    Args:
        where: the partition.
        condition: notified when the outcome is set; other outcomes may share it. A new one if None.

    Attributes:
        state: state as that of a future: RUNNING until the outcome is set.
        is_duplicate: whether the batch was in the log before.
    """

    __slots__ = (
        "_watched",
        "append_time_ms",
        "base_offset",
        "condition",
        "error",
        "is_duplicate",
        "state",
        "where",
    )

    def __init__(self, where: TopicPartition, condition: threading.Condition | None = None) -> None:
        self.where = where
        self.condition = threading.Condition() if condition is None else condition
        self.state = _RUNNING
        self.base_offset = -1
        self.append_time_ms: int | None = None
        self.is_duplicate = False
        self.error: BaseException | None = None
        # Futures with a callback, or with a thread in `concurrent.futures.wait`.
        self._watched: tuple[Watcher, ...] = ()

    @property
    def is_set(self) -> bool:
        """True if the outcome is set."""
        return self.state == FINISHED

    def succeed(
        self, base_offset: int, append_time_ms: int | None, *, is_duplicate: bool = False
    ) -> None:
        """Set the base offset of the batch in the log, and whether it was there before."""
        self.base_offset = base_offset
        self.is_duplicate = is_duplicate
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(self, error: BaseException) -> None:
        """Set the error for which the batch, or the rest of it, is not in the log."""
        if isinstance(error, DiskFullError | DeliveryTimeoutError):
            drop_tracebacks(error)
        self.error = error
        self._finish()

    def watch(self, watcher: Watcher) -> None:
        """Notify a watcher once the outcome is set, unless it is; the condition is held."""
        if self.state != FINISHED and watcher not in self._watched:
            self._watched += (watcher,)

    def unwatch(self, watcher: Watcher) -> bool:
        """Notify a watcher no more; return whether it was to be. The condition is held."""
        if watcher not in self._watched:
            return False
        self._watched = tuple(each for each in self._watched if each is not watcher)
        return True

    def wait(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds, for ever if None; return whether the outcome is set."""
        with self.condition:
            return self.condition.wait_for(lambda: self.state == FINISHED, timeout)

    def abandon(self, error: BaseException) -> None:
        """Set an error in a forked child, where no outcome will arrive; call no callbacks."""
        self.condition = threading.Condition()
        watched, self._watched = self._watched, ()
        if self.state != FINISHED:
            self.error, self.state = error, FINISHED
        for watcher in watched:
            watcher.abandon()

    def _finish(self) -> None:
        with self.condition:
            self.state = FINISHED
            self.condition.notify_all()
            watched, self._watched = self._watched, ()
        for watcher in watched:
            watcher.notify()


def drop_tracebacks(error: BaseException) -> None:
    """
    Remove the tracebacks of an error of a full disk, and of its causes.

    Their frames refer to the batch, and it to the error. Such a cycle has hundreds of objects, for
    each batch while the disk is full, and would wait for a garbage collection.
    """
    left: list[BaseException] = [error]
    while left:
        found = left.pop()
        if found.__traceback__ is not None or found is error:
            found.with_traceback(None)
            left += [each for each in (found.__cause__, found.__context__) if each is not None]


class Delivery(Future[RecordMetadata]):
    """
    Future of one record; made by `Producer.send`.

    It cannot be cancelled: the record was accepted.
    """

    # `Future.__init__` is left out: what it would store are properties here.
    def __init__(self, outcome: BatchOutcome, slot: int, timestamp_ms: int) -> None:
        self._outcome = outcome
        self._slot = slot
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        where = self._outcome.where
        if not self.done():
            return f"<Delivery to {where}, pending>"
        error = self._outcome.error
        return f"<Delivery to {where}: {self.result() if error is None else error!r}>"

    def cancel(self) -> bool:
        """Return False: a sent record cannot be withdrawn."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def running(self) -> bool:
        """Return whether the outcome is not known yet."""
        return self._outcome.state == _RUNNING

    def done(self) -> bool:
        """Return whether the record is in the log, or never will be."""
        return self._outcome.state == FINISHED

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """
        Return the position of the record once it is in the log.

        Args:
            timeout: seconds to wait at most; None for ever.

        Raises:
            TimeoutError: the outcome is not known yet.
            KafkaLogError: the error for which the record is not in the log.
        """
        outcome = self._wait(timeout)
        if outcome.error is not None:
            raise outcome.error
        return self._metadata(outcome)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, None once the record is in the log; TimeoutError as `result`."""
        return self._wait(timeout).error

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn` with this future once it is done; at once if it is already."""
        if not self.done():
            with self._outcome.condition:
                if not self.done():
                    self._done_callbacks.append(fn)
                    return
        self._call(fn)

    @property
    def record_count(self) -> int:
        """Number of records: 1."""
        return 1

    def move(self, outcome: BatchOutcome, slot: int) -> None:
        """Change the outcome, to one of the same condition, or the slot in the batch."""
        with outcome.condition:
            if self._outcome.unwatch(self):
                outcome.watch(self)
            self._outcome, self._slot = outcome, slot

    def _wait(self, timeout: float | None) -> BatchOutcome:
        outcome = self._outcome
        if outcome.state == FINISHED:
            return outcome
        with outcome.condition:
            # Other batches may share the condition, and `move` may change the outcome.
            if not outcome.condition.wait_for(self.done, timeout):
                raise FutureTimeoutError(
                    f"the outcome of a record for {outcome.where} is not known"
                )
        return self._outcome

    def _metadata(self, outcome: BatchOutcome) -> RecordMetadata:
        append_time_ms = outcome.append_time_ms
        return RecordMetadata(
            *outcome.where,
            outcome.base_offset + self._slot,
            self._timestamp_ms if append_time_ms is None else append_time_ms,
        )

    def notify(self) -> None:
        """Call the callbacks, and wake threads in `concurrent.futures.wait`."""
        for waiter in tuple(self.__dict__.get("waiters", ())):
            if self._outcome.error is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        for fn in self.__dict__.get("callbacks", ()):
            self._call(fn)

    def abandon(self) -> None:
        """Do nothing: it has the error of its outcome."""

    def _call(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        try:
            fn(self)
        except Exception:
            # As in `concurrent.futures`: an exception of a callback must not stop the writer.
            logger.exception("a callback failed for %r", self)

    def _watched_list(self, name: str) -> list[Any]:
        found = self.__dict__.get(name)
        if found is None:
            found = self.__dict__[name] = []
            self._outcome.watch(self)
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
        done = outcome.state == FINISHED and outcome.error is None
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
