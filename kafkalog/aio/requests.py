"""Requests of a producer: from the task that made them through the pump to the result.

    task -> queue -> pump: `run` calls the producer -> future of the producer -> mailbox -> task

A request is either withdrawn, by the task that is cancelled, or begun by the pump, never both: what
was withdrawn did not happen, and what was begun ends, whether a task waits for it or not.

Thread-safety: `run` and `refuse` by the pump, `try_withdraw` and `finish` by the loop.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from kafkalog.aio.joined_sends import JoinedSends
from kafkalog.aio.mailbox import LoopMailbox
from kafkalog.aio.once import Once
from kafkalog.aio.records_to_send import RecordsPart, RecordsToSend
from kafkalog.clients.delivery import RecordMetadata
from kafkalog.clients.many_records import SentMany, SentRange
from kafkalog.clients.producer import Producer
from kafkalog.clients.producer_sequence import ProducerSequence
from kafkalog.pace import Pace

__all__ = ["ProducerCall", "Request", "SendMany", "SendOne", "Work", "error_for_task"]


class Work(Protocol):
    """Part of a request that calls the producer."""

    @property
    def record_count(self) -> int:
        """Number of records."""
        ...

    def begin(self, producer: Producer, on_done: Callable[[], object], pace: Pace) -> None:
        """
        Call the producer.

        Args:
            producer: the producer.
            on_done: called once by any thread when the result is there.
            pace: paused between two pieces of work.
        """
        ...

    def result(self) -> Any:
        """Return the result, or raise its error."""
        ...


class ProducerCall:
    """
    Call of a producer without records, such as the commit of a transaction.

    Args:
        function: is given the producer.
    """

    record_count = 0

    def __init__(self, function: Callable[[Producer], Any]) -> None:
        self._function = function
        self._result: Any = None

    def begin(self, producer: Producer, on_done: Callable[[], object], pace: Pace) -> None:
        """Call the function, and then `on_done`."""
        self._result = self._function(producer)
        # It may have waited for the disk.
        pace.restart()
        on_done()

    def result(self) -> Any:
        """Return the result."""
        return self._result


class SendOne:
    """
    Record that is sent.

    Args:
        topic: the topic.
        arguments: keyword arguments of `Producer.send`.
    """

    record_count = 1

    def __init__(self, topic: str, **arguments: Any) -> None:
        self._topic = topic
        self._arguments = arguments
        self._delivery: Future[RecordMetadata] | None = None

    @property
    def is_done(self) -> bool:
        """True once the record is in the log, or never will be."""
        return self._delivery is not None and self._delivery.done()

    @property
    def delivered(self) -> list[SentRange]:
        """The range of the record, if it is in the log."""
        delivery = self._delivery
        if delivery is None or not delivery.done() or delivery.exception() is not None:
            return []
        found = delivery.result()
        return [SentRange(found.partition, found.offset, 1)]

    @property
    def failed_rows(self) -> list[int]:
        """The number of the record, if it will not be in the log."""
        delivery = self._delivery
        is_failed = delivery is not None and delivery.done() and delivery.exception() is not None
        return [0] if is_failed else []

    def begin(self, producer: Producer, on_done: Callable[[], object], pace: Pace) -> None:
        """Send the record."""
        del pace  # It is one piece of work.
        delivery = self._delivery = producer.send(self._topic, **self._arguments)
        delivery.add_done_callback(lambda _delivery: on_done())

    def result(self) -> RecordMetadata:
        """Return the position of the record, or raise its error."""
        assert self._delivery is not None
        return self._delivery.result(0)


class SendMany:
    """
    Records of one `send_many`.

    Args:
        topic: the topic.
        records: the records, measured.
        partition: their partition, None to select it by the keys.
        number: the caller's number of the batch; None for none.
    """

    def __init__(
        self,
        topic: str,
        records: RecordsToSend,
        partition: int | None,
        number: ProducerSequence | None = None,
    ) -> None:
        self.record_count = records.record_count
        self.size_bytes = records.size_bytes
        self.topic = topic
        self._parts = records.parts
        self._partition = partition
        self._number = number
        self._sends: JoinedSends | _OneSend | None = None

    @property
    def only_part(self) -> RecordsPart:
        """The records of a request that may be joined."""
        (part,) = self._parts
        return part

    @property
    def joinable_topic(self) -> str | None:
        """The topic, if records with keys, and nothing else, are to be sent to any partition."""
        if self._partition is not None or len(self._parts) != 1:
            return None
        part = self._parts[0]
        is_plain = part.keys is not None and part.headers is None and part.timestamps is None
        return self.topic if is_plain else None

    def take(self, sent: SentMany) -> None:
        """Take the future of the records, which were sent together with others."""
        # They belong to the batches from now on.
        self._parts.clear()
        self._sends = _OneSend(sent)

    def notify_when_done(self, on_done: Callable[[], object]) -> None:
        """Call a function once the records that `take` was called for are in the log, or never."""
        assert isinstance(self._sends, _OneSend)
        self._sends.notify_when_done(on_done)

    @property
    def is_done(self) -> bool:
        """True once each record is in the log, or never will be."""
        return self._sends is not None and self._sends.is_done

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far."""
        return [] if self._sends is None else self._sends.delivered

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log."""
        return [] if self._sends is None else self._sends.failed_rows

    def begin(self, producer: Producer, on_done: Callable[[], object], pace: Pace) -> None:
        """Send the records, part by part; an error of the first part is raised."""
        sends = JoinedSends(on_done)
        # The records belong to the batches from then on.
        parts = self._parts
        parts.reverse()
        while parts:
            # Out of the list that the task has, too: to free all records at once takes 7 ms.
            part = parts.pop()
            try:
                sent = self._send(producer, part)
            except Exception as error:
                if self._sends is None:
                    raise
                sends.refuse(range(part.first_row, self.record_count), error)
                break
            sends.add(part.first_row, sent)
            self._sends = sends
            pace.step()
        sends.end()

    def result(self) -> list[SentRange]:
        """Return the ranges, or raise the error of the first record that is not in the log."""
        assert self._sends is not None
        return self._sends.result()

    def _send(self, producer: Producer, part: RecordsPart) -> Any:
        return producer.send_many(
            self.topic,
            part.keys,
            part.values,
            timestamps=part.timestamps,
            headers=part.headers,
            partition=self._partition,
            number=self._number,
        )


class _OneSend:
    """State of records that one future has; see `JoinedSends`."""

    def __init__(self, sent: SentMany) -> None:
        self._sent = sent

    @property
    def is_done(self) -> bool:
        return self._sent.done()

    def result(self) -> list[SentRange]:
        return self._sent.result(0)

    @property
    def delivered(self) -> list[SentRange]:
        return self._sent.delivered

    @property
    def failed_rows(self) -> list[int]:
        return self._sent.failed_rows

    def notify_when_done(self, on_done: Callable[[], object]) -> None:
        self._sent.add_done_callback(lambda _sent: on_done())


class Request:
    """
    Request of a task.

    Args:
        work: what the pump does.
        future: the future of the task.
        mailbox: that of the loop of the task.
        on_end: called on the loop at the end.
    """

    __slots__ = ("_claim", "_error", "_future", "_is_withdrawn", "_on_end", "_work", "mailbox")

    def __init__(
        self,
        work: Work,
        future: asyncio.Future[Any],
        mailbox: LoopMailbox,
        on_end: Callable[[], object],
    ) -> None:
        self._work: Work | None = work
        self._future: asyncio.Future[Any] | None = future
        self.mailbox = mailbox
        self._on_end = on_end
        self._claim = Once()
        self._is_withdrawn = False
        self._error: BaseException | None = None

    @property
    def is_accepted(self) -> bool:
        """True from the beginning by the pump, unless the producer refused the whole request."""
        return self._claim.is_taken and not self._is_withdrawn and self._error is None

    def try_withdraw(self) -> bool:
        """Return True if the pump has not begun the request, and never will; that is its end."""
        if not self._claim.try_take():
            return False
        self._is_withdrawn = True
        self._work = None
        self._on_end()
        return True

    def run(self, producer: Producer, pace: Pace) -> None:
        """
        Begin the request, unless it was withdrawn; an error of it is that of its task.

        Args:
            producer: the producer.
            pace: paused between two pieces of work.
        """
        if self._claim.try_take():
            self.run_begun(producer, pace)

    @property
    def work(self) -> Work | None:
        """Work of the pump; None of a request that was withdrawn."""
        return self._work

    def begin(self) -> Work | None:
        """Return the work, unless the request was withdrawn; its caller does it, or fails it."""
        return self._work if self._claim.try_take() else None

    def run_begun(self, producer: Producer, pace: Pace) -> None:
        """Do the work of a request that was begun, as `run` does."""
        work = self._work
        assert work is not None
        try:
            work.begin(producer, self._on_done, pace)
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def notify_unless_done(self) -> bool:
        """
        Return whether the records, which were sent together with others, are in the log or lost.

        If they are, the caller lets `mailbox` call `finish`; else the task is notified at the end.
        """
        work = self._work
        assert isinstance(work, SendMany)
        if work.is_done:
            return True
        work.notify_when_done(self._on_done)
        return False

    def fail(self, error: BaseException) -> None:
        """Raise an error from the call of the task; the request was begun."""
        self._error = error
        self._on_done()

    def refuse(self, error: BaseException) -> None:
        """Raise an error from the call of the task, unless the request was begun or withdrawn."""
        if self._claim.try_take():
            self.fail(error)

    def _on_done(self) -> None:
        self.mailbox.post(self.finish)

    def finish(self) -> None:
        """Notify the task, on its loop: the result, or an error, is there."""
        self._on_end()
        # The work refers to this object, and the future, by its error and the frames that it went
        # through, to the work: such a cycle would wait for a garbage collection.
        work, self._work = self._work, None
        future, self._future = self._future, None
        error = self._error
        if future is None or future.done():
            # The task was cancelled.
            return
        if error is not None:
            future.set_exception(error_for_task(error))
            return
        assert work is not None
        try:
            future.set_result(work.result())
        except Exception as raised:  # noqa: BLE001 - raised by the task
            future.set_exception(error_for_task(raised))
            # Its frames refer to the records, and these to the error that they share.
            raised.with_traceback(None)


def error_for_task(error: BaseException) -> BaseException:
    """
    Return an error for one task, of an error that the records of many tasks share.

    Each `raise` of an exception adds to its traceback.
    """
    if not isinstance(error, Exception) or isinstance(error, StopIteration):
        return RuntimeError(f"the call ended with {error!r}")
    try:
        made = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error of another library that cannot be copied
        return error
    made.__cause__ = error.__cause__
    return made
