"""Tests of the parts below the asyncio interface: budget, flushes, mailbox, lanes, wake-up."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import LogManager
from kafkalog.aio.byte_budget import ByteBudget
from kafkalog.aio.calls import BlockingCalls, Lane
from kafkalog.aio.in_flight import InFlight
from kafkalog.aio.joined_sends import JoinedSends
from kafkalog.aio.mailbox import LoopMailbox
from kafkalog.aio.once import Once
from kafkalog.aio.pump import Pump
from kafkalog.aio.records_to_send import RecordsToSend, record_bytes
from kafkalog.aio.requests import ProducerCall, Request
from kafkalog.aio.wake_up import WakeUp
from kafkalog.clients.delivery import BatchOutcome
from kafkalog.clients.many_records import BatchPart, SentMany, SentRange
from kafkalog.clients.producer import Producer
from kafkalog.errors import BufferExhaustedError, ClientClosedError, LogClosedError
from kafkalog.model import TopicPartition
from tests.support.loops import eventually


def test_budget_is_never_exceeded_and_never_leaks() -> None:
    """Random sizes, timeouts and cancellations of 300 tasks."""

    async def main() -> None:
        budget = ByteBudget(100)
        most = 0

        async def use(number: int) -> None:
            nonlocal most
            size = 1 + number * 37 % 60
            await budget.reserve(size, 0.001 * (number % 40))
            most = max(most, budget.pending_bytes)
            await asyncio.sleep(0.0005 * (number % 5))
            budget.release(size)

        tasks = [asyncio.create_task(use(number)) for number in range(300)]
        for number, task in enumerate(tasks):
            if number % 7 == 3:
                await asyncio.sleep(0)
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(each) for each in results}
        assert kinds <= {type(None), BufferExhaustedError, asyncio.CancelledError}
        assert type(None) in kinds
        assert (0, 0, 100) == (budget.pending_bytes, budget.waiting_count, budget.available_bytes)
        assert most <= 100

    asyncio.run(main())


def test_budget_expired_large_request_is_followed_by_small_ones() -> None:
    """The first in the queue is given up; the next fits."""

    async def main() -> None:
        budget = ByteBudget(100)
        assert budget.try_reserve(50)
        large = asyncio.create_task(budget.reserve(90, 0.01))
        await asyncio.sleep(0)
        small = asyncio.create_task(budget.reserve(10, 10))
        with pytest.raises(BufferExhaustedError):
            await large
        await small
        assert budget.pending_bytes == 60
        waiting = asyncio.create_task(budget.reserve(90, 10))
        await asyncio.sleep(0)
        budget.refuse_waiting(ClientClosedError("closed"))
        with pytest.raises(ClientClosedError):
            await waiting

    asyncio.run(main())


def test_in_flight_flush_waits_for_earlier_requests_only() -> None:
    """Later requests do not delay it; a timeout returns the number of records."""

    async def main() -> None:
        requests = InFlight()
        assert await requests.wait_for_earlier() == 0
        first, second = requests.add(3), requests.add(4)
        flush = asyncio.create_task(requests.wait_for_earlier())
        await asyncio.sleep(0)
        later = requests.add(5)
        assert await requests.wait_for_earlier(0.001) == 12
        requests.remove(second, 4)
        await asyncio.sleep(0)
        assert not flush.done()
        requests.remove(first, 3)
        assert await flush == 0
        assert await requests.wait_for_earlier(0.001) == 5
        requests.remove(later, 5)
        assert await requests.wait_for_earlier() == 0
        assert requests.record_count == 0

    asyncio.run(main())


def test_mailbox_delivers_in_order_with_few_wake_ups() -> None:
    """Other tasks run in between; threads post at the same time; a closed loop takes nothing."""

    async def main() -> LoopMailbox:
        loop = asyncio.get_running_loop()
        mailbox = LoopMailbox(loop)
        found: list[tuple[int, int]] = []

        def poster(thread: int) -> Callable[[], None]:
            def post() -> None:
                for number in range(1000):
                    mailbox.post(partial(found.append, (thread, number)))

            return post

        threads = [threading.Thread(target=poster(number)) for number in range(4)]
        for thread in threads:
            thread.start()
        turns = 0
        while len(found) < 4000:
            before = len(found)
            await asyncio.sleep(0)
            turns += 1
            assert len(found) - before <= 200
        for thread in threads:
            thread.join()
        for thread_number in range(4):
            assert list(range(1000)) == [each for which, each in found if which == thread_number]
        return mailbox

    mailbox = asyncio.run(main())
    called: list[int] = []
    mailbox.post(lambda: called.append(1))
    assert [] == called
    mailbox.wait_until_delivered(60)


def test_mailbox_waits_until_all_is_delivered() -> None:
    """Results that are posted together keep their order; a wait for a busy loop ends."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        mailbox = LoopMailbox(loop)
        mailbox.wait_until_delivered(60)
        found: list[int] = []

        def post() -> list[int]:
            mailbox.post_all([partial(found.append, number) for number in range(100)])
            mailbox.wait_until_delivered(60)
            return found.copy()

        assert list(range(100)) == await loop.run_in_executor(None, post)
        mailbox.post(partial(found.append, 100))
        mailbox.wait_until_delivered(0.001)
        assert 100 == len(found)
        await asyncio.sleep(0.01)
        assert 101 == len(found)

    asyncio.run(main())


class _NotedMailbox(LoopMailbox):
    """Mailbox that keeps what is done with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, noted: list[str]) -> None:
        super().__init__(loop)
        self._noted = noted

    def wait_until_delivered(self, timeout: float) -> None:
        assert 0 < timeout < 1
        super().wait_until_delivered(60)
        self._noted.append("waited")


def test_pump_begins_the_next_round_when_the_results_are_delivered(tmp_path: Path) -> None:
    """However many rounds the requests are: those of a round have ended before the next."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        noted: list[str] = []
        mailbox = _NotedMailbox(loop, noted)
        pump = Pump(manager.producer, writes_at_once=True, name="a test")
        is_queued = threading.Event()

        def call(_producer: Producer) -> None:
            is_queued.wait()
            noted.append("called")

        futures = []
        for _ in range(3):
            future = loop.create_future()
            pump.put(Request(ProducerCall(call), future, mailbox, partial(noted.append, "ended")))
            futures.append(future)
        is_queued.set()
        await asyncio.gather(*futures)
        await loop.run_in_executor(None, pump.close, 60)
        assert 3 == noted.count("called") == noted.count("ended")
        waits = [place for place, each in enumerate(noted) if each == "waited"]
        assert waits
        for place in waits:
            assert noted[:place].count("called") == noted[:place].count("ended")

    with LogManager(tmp_path) as manager:
        asyncio.run(main())


def test_lane_runs_calls_one_after_the_other_in_order() -> None:
    """In several threads; other lanes run at the same time; a closed pool refuses."""

    async def main() -> None:
        calls = BlockingCalls(4, "a test")
        lanes = [Lane(calls) for _ in range(3)]
        running = [0, 0, 0]
        order: list[list[int]] = [[], [], []]

        def work(lane: int, number: int) -> int:
            running[lane] += 1
            assert running[lane] == 1
            order[lane].append(number)
            running[lane] -= 1
            return number

        tasks = [
            calls.run(partial(work, lane, number), lane=lanes[lane])
            for number in range(100)
            for lane in range(3)
        ]
        assert sorted(await asyncio.gather(*tasks)) == sorted(list(range(100)) * 3)
        assert [list(range(100))] * 3 == order
        calls.close()
        for lane in (None, lanes[0]):
            with pytest.raises(LogClosedError, match="a test is closed"):
                await calls.run(lambda: 1, lane=lane)
        await eventually(
            lambda: not any(each.name == "kafkalog-aio" for each in threading.enumerate())
        )

    asyncio.run(main())


def test_calls_error_of_any_kind_reaches_the_task() -> None:
    """An exception that may not be raised by a future, and one outside Exception, too."""

    async def main() -> None:
        calls = BlockingCalls(1, "a test")

        def fail(error: BaseException) -> None:
            raise error

        for error, kind in (
            (KeyError("k"), KeyError),
            (StopIteration(1), RuntimeError),
            (SystemExit(3), RuntimeError),
        ):
            with pytest.raises(kind):
                await calls.run(partial(fail, error))
        assert await calls.run(lambda: 1) == 1
        calls.close()

    asyncio.run(main())
    with pytest.raises(ValueError, match="thread_count must be >= 1"):
        BlockingCalls(0, "a test")


def test_calls_idle_thread_keeps_no_result() -> None:
    """A result may hold files: it is freed with the last reference of its task."""

    class Result:
        pass

    async def main() -> None:
        calls = BlockingCalls(1, "a test")
        thread = await calls.run(threading.current_thread)
        result = weakref.ref(await calls.run(Result))
        await eventually(lambda: result() is None)
        # Not because the thread has ended.
        assert thread is await calls.run(threading.current_thread)
        calls.close()

    asyncio.run(main())


def test_wake_up_notified_before_the_wait_ends_it() -> None:
    """By another thread, and any number of times."""

    async def main() -> None:
        wake_up = WakeUp()
        wake_up.notify()
        for _ in range(50):
            wake_up.clear()
            threads = [threading.Thread(target=wake_up.notify) for _ in range(3)]
            for thread in threads:
                thread.start()
            async with asyncio.timeout(20):
                await wake_up.wait(None)
            for thread in threads:
                thread.join()
        wake_up.clear()
        await wake_up.wait(0.001)

    asyncio.run(main())


def test_once_is_taken_by_one_thread() -> None:
    """Of many that try at the same time."""
    once, taken = Once(), []
    start = threading.Barrier(8)

    def try_to_take() -> None:
        start.wait()
        if once.try_take():
            taken.append(1)

    threads = [threading.Thread(target=try_to_take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ([1], True) == (taken, once.is_taken)


def test_records_are_measured_as_their_parts_are() -> None:
    """The size of a call is the sum of those of its records."""
    keys = [b"k" * (each % 5) if each % 3 else None for each in range(2500)]
    values = [b"v" * (each % 7) if each % 4 else None for each in range(2500)]
    headers = [(("name", b"x"),) if each % 2 else None for each in range(2500)]
    records = RecordsToSend(keys, values, None, headers)
    assert not records.is_small
    records.measure()
    expected = sum(map(record_bytes, keys, values, headers))
    assert (expected, [0, 1000, 2000]) == (
        records.size_bytes,
        [part.first_row for part in records.parts],
    )
    assert values == [value for part in records.parts for value in part.values]


@pytest.mark.parametrize("count", [3, 1500])
@pytest.mark.parametrize("column", [list, np.array])
def test_timestamps_of_a_measured_call_are_no_objects_of_the_caller(
    count: int, column: Callable[[list[int]], Any]
) -> None:
    """The caller of a cancelled call changes its columns before the pump reads them."""
    timestamps = column([1000] * count)
    records = RecordsToSend(None, [b"v"] * count, timestamps, None)
    records.measure()
    timestamps[:] = column([7] * count)
    times = [each for part in records.parts for each in part.timestamps]  # type: ignore[union-attr]
    assert [1000] * count == times


@pytest.mark.parametrize("column", [np.array([1, 2]), np.array([3, b"v"], dtype=object)])
def test_numbers_of_an_array_are_no_values(column: object) -> None:
    """They are refused, as those of a list are, and do not become bytes of zeros."""
    records = RecordsToSend(None, column, None, None)
    with pytest.raises(TypeError, match=r"values\[0\] must be bytes or None, got int"):
        records.measure()


@pytest.mark.parametrize("count", [3, 1500])
def test_scalar_of_numpy_is_the_timestamp_of_all_records(count: int) -> None:
    """As for a blocking producer."""
    records = RecordsToSend(None, [b"v"] * count, np.int64(1000), None)  # type: ignore[arg-type]
    records.measure()
    assert {1000} == {part.timestamps for part in records.parts}


# ------------------------------------------------------------------------------- joined sends


def test_joined_sends_that_end_in_any_order_have_the_ranges_in_order() -> None:
    """Also before all have ended; the error is that of the first row that is not in the log."""
    done: list[bool] = []
    sends = JoinedSends(lambda: done.append(sends.is_done))
    outcomes = [BatchOutcome(TopicPartition("t", number % 2)) for number in range(4)]
    for number, outcome in enumerate(outcomes):
        many = SentMany()
        many.add(BatchPart(outcome, 0, range(10)))
        sends.add(10 * number, many)
    sends.end()
    outcomes[2].succeed(10, None)
    assert [SentRange(0, 10, 10)] == sends.delivered
    error = ClientClosedError("refused")
    outcomes[3].fail(error)
    assert (list(range(30, 40)), False) == (sends.failed_rows, sends.is_done)
    outcomes[0].succeed(0, None)
    assert [SentRange(0, 0, 20)] == sends.delivered
    outcomes[1].succeed(7, None)
    assert [True] == done
    assert [SentRange(0, 0, 20), SentRange(1, 7, 10)] == sends.delivered
    assert list(range(30, 40)) == sends.failed_rows
    with pytest.raises(ClientClosedError) as raised:
        sends.result()
    assert raised.value is error
