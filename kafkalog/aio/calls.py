"""Blocking calls of coroutines, in a few threads of their own.

The default executor of a loop is not used: a service may keep its threads busy, and its threads end
with the loop. Calls of one `Lane` run one after the other, in their order.

A cancelled call either has not begun, and never does, or it runs to its end without its task. Then
`undo` is called with its result, so that an opened log does not stay open without an owner.

Thread-safety: `run` on any loop, `close` and `submit` from any thread. The lock guards the threads;
no call runs under it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from kafkalog.aio.once import Once
from kafkalog.aio.requests import error_for_task
from kafkalog.errors import LogClosedError
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.manager.background import taken_from
from kafkalog.pace import pause_for

__all__ = ["BlockingCalls", "Lane"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Time after which a thread without work ends; the next call starts another.
IDLE_SECONDS: Final = 10.0


class BlockingCalls:
    """
    Threads for blocking calls.

    Args:
        thread_count: largest number of threads; further calls wait for one.
        name: name of the owner in errors.
    """

    def __init__(self, thread_count: int, name: str) -> None:
        if thread_count < 1:
            raise ValueError(f"thread_count must be >= 1, got {thread_count}")
        self._thread_count = thread_count
        self._name = name
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        # Number of tasks that wait or run.
        self._task_count = 0
        self._is_closed = False
        self._is_inherited = False
        # An item of None ends the thread that gets it.
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        pause_for(self)
        refuse_in_children(self)

    def become_inherited(self) -> None:
        """Refuse all calls: this process was forked, and has none of the threads."""
        self._is_inherited = True

    async def run(
        self,
        function: Callable[[], T],
        *,
        undo: Callable[[T], object] | None = None,
        lane: Lane | None = None,
    ) -> T:
        """
        Call a function in a thread, and return its result.

        Args:
            function: the call.
            undo: called with the result if the task was cancelled during the call.
            lane: runs the call after those that were made in it before.

        Raises:
            LogClosedError, ForkedLogError: the threads were closed, or belong to the parent.
        """
        loop = asyncio.get_running_loop()
        call = _Call(function, undo, loop, loop.create_future())
        submit = self.submit if lane is None else lane.submit
        submit(call.execute)
        try:
            result: T = await call.future
        except BaseException as error:
            # Also a coroutine that is dropped with its loop.
            if not isinstance(error, Exception):
                self._abandon(call, error, submit)
            raise
        return result

    def submit(self, task: Callable[[], object]) -> None:
        """Run a function, which must not raise, in a thread."""
        if self._is_inherited:
            raise forked_error(self._name)
        with self._lock:
            if self._is_closed:
                raise LogClosedError(f"{self._name} is closed")
            self._task_count += 1
            if len(self._threads) < min(self._task_count, self._thread_count):
                self._start()
            self._tasks.put(task)

    def close(self) -> None:
        """Refuse more calls, and end the threads after those that wait. Idempotent; no wait."""
        if self._is_inherited:
            return
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._tasks.put(None)

    def _abandon(
        self,
        call: _Call[Any],
        error: BaseException,
        submit: Callable[[Callable[[], object]], object],
    ) -> None:
        if call.withdraw():
            error.add_note("The call had not begun.")
            return
        error.add_note("The call had begun, and ends without its task.")
        if undo := call.abandon():
            try:
                submit(undo)
            except LogClosedError:
                undo()

    def _start(self) -> None:
        """Start a thread; the lock is held."""
        thread = threading.Thread(target=self._work, name="kafkalog-aio", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system starts no more threads: the others do it.
            if not self._threads:
                self._task_count -= 1
                raise
            return
        self._threads.add(thread)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task()
            # While the thread waits, it must not keep the result of the call: it may hold files.
            del task
            with self._lock:
                self._task_count -= 1

    def _next(self) -> Callable[[], object] | None:
        """Wait for a task and return it; None if this thread must end."""
        while True:
            try:
                return self._tasks.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._tasks.empty():
                        self._threads.discard(threading.current_thread())
                        return None


class Lane:
    """
    Calls that run one after the other, in any thread.

    Args:
        calls: the threads.
    """

    def __init__(self, calls: BlockingCalls) -> None:
        self._calls = calls
        self._waiting: deque[Callable[[], object]] = deque()
        # Held while a thread runs the calls; never waited for.
        self._running = threading.Lock()

    def submit(self, task: Callable[[], object]) -> None:
        """Run a function, which must not raise, after those that were submitted before."""
        self._waiting.append(task)
        try:
            self._begin()
        except BaseException:
            with suppress(ValueError):
                self._waiting.remove(task)
            raise

    def _begin(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        try:
            self._calls.submit(self._work)
        except BaseException:
            self._running.release()
            raise

    def _work(self) -> None:
        while True:
            for task in taken_from(self._waiting):
                task()
            self._running.release()
            # A call that was added since found the lock held.
            if not self._waiting or not self._running.acquire(blocking=False):
                return


class _Call(Generic[T]):
    """
    One call: withdrawn, or executed and then either delivered or undone.

    Args:
        function, undo: see `BlockingCalls.run`.
        loop: the loop of the task.
        future: completed with the result.
    """

    def __init__(
        self,
        function: Callable[[], T],
        undo: Callable[[T], object] | None,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[T],
    ) -> None:
        self.future = future
        self._function = function
        self._undo = undo
        self._loop = loop
        self._beginning = Once()
        # Taken by the thread that delivers the result, or by the task that does not wait for it.
        self._delivery = Once()
        self._result: Any = None
        self._error: BaseException | None = None

    def withdraw(self) -> bool:
        """Return True if the call has not begun, and never will."""
        return self._beginning.try_take()

    def abandon(self) -> Callable[[], object] | None:
        """Undo the call when it ends; return what undoes it if it has ended."""
        if self._delivery.try_take():
            return None
        return self._undo_result if self._undo is not None and self._error is None else None

    def execute(self) -> None:
        """Call the function, and deliver its result to the loop."""
        if not self._beginning.try_take():
            return
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised by the task
            self._error = error
        if not self._delivery.try_take() or not self._post():
            self._undo_result()

    def _post(self) -> bool:
        """Deliver the result soon; return False if the loop is closed, and the task with it."""
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return False
        return True

    def _deliver(self) -> None:
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(error_for_task(self._error))

    def _undo_result(self) -> None:
        if self._error is not None:
            logger.debug("a call without its task has failed", exc_info=self._error)
        elif self._undo is not None:
            try:
                self._undo(self._result)
            except Exception:
                logger.exception("a cancelled call could not be undone")
