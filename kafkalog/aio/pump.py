"""Thread of a producer: begins the requests of the tasks in their order.

Everything that may wait is done here: opening logs, writing, memory of the producer, transactions.
The loop only adds requests to a queue, which takes no lock. After each round of requests the
batches are written, so a record waits for those that came with it, and for no timer. The next round
begins when the tasks have the results of this one: they make the next requests, and many requests
that are committed together take a fraction of the time.

The thread is started by the first request, and ends with `close`, or when the producer of the tasks
is dropped. An error of a request is that of its task, and never ends the thread.

Crash points: those of the producer. A request that was not begun has left no trace.

Thread-safety: `put` from any thread, without a lock once the thread runs; `close` from any thread
but the pump's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from kafkalog.aio.joined_requests import groups_of, notify_together, run_together
from kafkalog.aio.requests import Request
from kafkalog.clients.producer import Producer
from kafkalog.errors import ClientClosedError, KafkaLogError
from kafkalog.pace import Pace

__all__ = ["Pump"]

logger = logging.getLogger(__name__)

# Largest number of requests of a round, after which batches are written.
ROUND_REQUESTS: Final = 1000
# Longest time that the next round waits for the loop to pass on the results of this one: a busy one
# takes 10 ms for 64 tasks. Without the wait a round had 8 to 20 of their requests.
RESULTS_SECONDS: Final = 0.02


class Pump:
    """
    Queue of requests, and the thread that begins them.

    Args:
        open_producer: makes the producer, on the thread; called again if it failed.
        writes_at_once: whether batches are written after each round, or by the timers of the
            producer (`linger.ms`).
        name: name of the producer in errors.
    """

    def __init__(
        self, open_producer: Callable[[], Producer], *, writes_at_once: bool, name: str
    ) -> None:
        self._open_producer = open_producer
        self._writes_at_once = writes_at_once
        self._name = name
        # An item of None ends the thread.
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._is_closed = False

    def put(self, request: Request) -> None:
        """Add a request; of a closed pump its task gets a ClientClosedError."""
        if self._thread is None:
            self._start()
        self._queue.put(request)
        if self._is_closed:
            self._refuse_waiting()

    def end(self) -> None:
        """End the thread after the requests that are there; do not wait."""
        self._queue.put(None)

    def close(self, timeout: float) -> None:
        """
        Begin the waiting requests, deliver their records, and close the producer. Idempotent.

        Args:
            timeout: seconds for this; then what is not delivered fails with a ClientClosedError.

        Raises:
            KafkaLogError: as for `Producer.close`; it is closed nevertheless.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            thread = self._thread
            if thread is None:
                self._is_closed = True
        if thread is not None:
            self._queue.put(None)
            thread.join(timeout)
            self._is_closed = True
            if thread.is_alive() and self._producer is not None:
                # It waits for memory of the producer: this refuses its requests.
                self._close_producer(self._producer, 0)
            thread.join()
        self._refuse_waiting()
        if self._producer is not None:
            self._close_producer(self._producer, max(deadline - time.monotonic(), 0))

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._run, name="kafkalog-aio-pump", daemon=True)
                thread.start()
                self._thread = thread

    def _close_producer(self, producer: Producer, timeout: float) -> None:
        producer.close(timeout_ms=int(min(timeout, threading.TIMEOUT_MAX / 2) * 1000))

    def _refuse_waiting(self) -> None:
        error = ClientClosedError(f"{self._name} was closed before the call began")
        while True:
            try:
                request = self._queue.get_nowait()
            except Empty:
                return
            if request is not None:
                request.refuse(error)

    def _run(self) -> None:
        pace, is_running = Pace(), True
        while is_running:
            requests, is_running = self._waiting_requests()
            pace.restart()
            self._run_all(requests, pace)
            # While the thread waits, it must not keep an error of a request: the frames of the
            # error have the AsyncProducer, whose thread ends when it is dropped.
            requests.clear()

    def _run_all(self, requests: Sequence[Request], pace: Pace) -> None:
        producer = self._opened(requests)
        if producer is None:
            return
        pace.restart()
        if self._writes_at_once:
            self._run_round(requests, producer, pace)
            return
        for request in requests:
            request.run(producer, pace)
            pace.step()

    def _waiting_requests(self) -> tuple[list[Request], bool]:
        """Wait for requests; return those that are there, and whether others may follow."""
        requests: list[Request] = []
        found = self._queue.get()
        while found is not None and len(requests) < ROUND_REQUESTS:
            requests.append(found)
            try:
                found = self._queue.get_nowait()
            except Empty:
                return requests, True
        if found is not None:
            requests.append(found)
        return requests, found is not None

    def _opened(self, requests: Sequence[Request]) -> Producer | None:
        """Return the producer; refuse the requests if it cannot be made."""
        for request in requests:
            if self._producer is not None:
                break
            try:
                self._producer = self._open_producer()
            except Exception as error:
                if not isinstance(error, KafkaLogError):
                    logger.exception("%s: the producer could not be made", self._name)
                request.refuse(error)
        return self._producer

    def _run_round(self, requests: Sequence[Request], producer: Producer, pace: Pace) -> None:
        """Begin requests, write their records, and commit them if that is waited for."""
        joined: list[Request] = []
        # Records of a transaction belong to the transaction that is open when they are sent. Where
        # keys select no partition, a log would refuse the records of several tasks together.
        config = producer.config
        joins = not (config.transactional_id or config.partitioner_ignore_keys)
        try:
            with producer.group(pace.step):
                for group in groups_of(requests) if joins else requests:
                    if isinstance(group, Request):
                        group.run(producer, pace)
                    else:
                        joined += run_together(group, producer, pace)
                    pace.step()
        except Exception:
            # The timers of the producer write the rest.
            logger.exception("%s: batches could not be written now", self._name)
        finally:
            notify_together(joined, pace)
        deadline = time.monotonic() + RESULTS_SECONDS
        for mailbox in {request.mailbox for request in requests}:
            mailbox.wait_until_delivered(max(deadline - time.monotonic(), 0))
