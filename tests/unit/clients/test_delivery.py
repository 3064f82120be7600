"""Tests of the future of a record, with `concurrent.futures` and `asyncio`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import Future

import pytest

from kafkalog import TopicPartition
from kafkalog.clients.delivery import BatchOutcome, Delivery, RecordMetadata
from kafkalog.errors import DiskFullError

WHERE = TopicPartition("orders", 2)


def batch(count: int = 3) -> tuple[BatchOutcome, list[Delivery]]:
    """Return a batch that is not delivered yet, and the futures of its records."""
    outcome = BatchOutcome(WHERE)
    return outcome, [Delivery(outcome, slot, 1000 + slot) for slot in range(count)]


def test_delivery_pending_has_no_result() -> None:
    """It cannot be cancelled either."""
    _outcome, (delivery, *_rest) = batch()
    assert isinstance(delivery, Future)
    assert delivery.running()
    assert not delivery.done()
    assert not delivery.cancel()
    assert not delivery.cancelled()
    assert repr(delivery) == "<Delivery to orders-2, pending>"
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(concurrent.futures.TimeoutError, match="is not known"):
            ask(0)


def test_delivery_done_has_offset_and_timestamp_of_each_record() -> None:
    """One outcome for the batch, and a position for each record."""
    outcome, deliveries = batch()
    outcome.succeed(500, None)
    assert [each.result() for each in deliveries] == [
        RecordMetadata("orders", 2, 500 + slot, 1000 + slot) for slot in range(3)
    ]
    assert deliveries[0].exception() is None
    assert deliveries[0].done()
    assert not deliveries[0].running()
    assert "offset=500" in repr(deliveries[0])


def test_delivery_with_log_append_time_returns_it() -> None:
    """The log's timestamp replaces the record's."""
    outcome, deliveries = batch()
    outcome.succeed(7, 5555)
    assert [5555, 5555, 5555] == [each.result().timestamp_ms for each in deliveries]


def test_delivery_failed_raises_the_error_of_the_log() -> None:
    """The same error, not wrapped."""
    outcome, deliveries = batch()
    error = DiskFullError("no space")
    outcome.fail(error)
    assert error is deliveries[1].exception()
    with pytest.raises(DiskFullError, match="no space"):
        deliveries[1].result()
    assert "no space" in repr(deliveries[1])


def test_delivery_callback_runs_once() -> None:
    """Added before or after the batch is done; a callback that fails does not stop the others."""
    outcome, (first, second, third) = batch()
    deliveries: list[object] = []

    def fail(_delivery: object) -> None:
        raise RuntimeError("a callback's own fault")

    first.add_done_callback(fail)
    first.add_done_callback(deliveries.append)
    third.add_done_callback(deliveries.append)
    outcome.succeed(0, None)
    second.add_done_callback(deliveries.append)
    assert deliveries == [first, third, second]


def test_delivery_is_waited_for_by_other_threads() -> None:
    """Each waiting thread gets its own result."""
    outcome, deliveries = batch()
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda each=each: results.append(each.result(30).offset))
        for each in deliveries
    ]
    for thread in threads:
        thread.start()
    outcome.succeed(40, None)
    for thread in threads:
        thread.join()
    assert sorted(results) == [40, 41, 42]


def test_delivery_works_with_wait_and_as_completed() -> None:
    """The functions of `concurrent.futures` accept these futures."""
    outcome, deliveries = batch()
    other, (late, *_rest) = batch()
    done, pending = concurrent.futures.wait([*deliveries, late], timeout=0)
    assert not done
    assert pending == {*deliveries, late}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(concurrent.futures.wait, deliveries, 30)
        outcome.succeed(0, None)
        assert waiting.result().done == set(deliveries)
        some = pool.submit(concurrent.futures.wait, [late], 30, concurrent.futures.FIRST_EXCEPTION)
        other.fail(DiskFullError("no space"))
        assert some.result().done == {late}
    futures: list[Future[RecordMetadata]] = [*deliveries]
    assert set(concurrent.futures.as_completed(futures, 0)) == set(deliveries)


def test_delivery_is_awaited() -> None:
    """A coroutine waits for it by `asyncio.wrap_future`."""
    outcome, deliveries = batch()

    async def gather() -> list[RecordMetadata]:
        waiting = [asyncio.wrap_future(each) for each in deliveries]
        thread = threading.Thread(target=outcome.succeed, args=(9, None))
        thread.start()
        found = await asyncio.gather(*waiting)
        thread.join()
        return list(found)

    assert [each.offset for each in asyncio.run(gather())] == [9, 10, 11]


def test_delivery_has_the_private_attributes_of_a_future() -> None:
    """Newer versions of `asyncio` read them directly."""
    outcome, (delivery, *_rest) = batch()
    assert (delivery._state, delivery._result, delivery._exception) == ("RUNNING", None, None)
    outcome.succeed(9, None)
    assert ("FINISHED", delivery.result(), None) == (
        delivery._state,
        delivery._result,
        delivery._exception,
    )
    outcome, (delivery, *_rest) = batch()
    error = DiskFullError("no space")
    outcome.fail(error)
    assert ("FINISHED", None, error) == (delivery._state, delivery._result, delivery._exception)


def test_delivery_moved_to_another_batch_completes_with_it() -> None:
    """Callbacks and waiting threads move along."""
    outcome, (first, second, _third) = batch()
    deliveries: list[object] = []
    second.add_done_callback(deliveries.append)
    fresh = BatchOutcome(WHERE, outcome.condition)
    second.move(fresh, 0)
    outcome.fail(DiskFullError("no space"))
    assert first.exception() is not None
    assert not second.done()
    assert not deliveries
    fresh.succeed(70, None)
    assert second.result().offset == 70
    assert deliveries == [second]
