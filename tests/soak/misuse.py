"""Unusual use of the library within the service: forks, closed loops, held bytes, huge records.

Each action returns its answer, the type of the error that the library raised or a short word, and
the seconds that it took. Actions run one at a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkalog import (
    FetchData,
    ForkedLogError,
    KafkaLogError,
    LogManager,
    OffsetOutOfRangeError,
    ProducerSequence,
    aio,
)
from tests.soak.numbered import record_values

__all__ = ["Misuse"]

# Longest time that a forked child may take.
CHILD_SECONDS = 20
CALLS, RECORDS = 3, 5
NAME, PARTITION = "closed-loop", 3


class Misuse:
    """
    The actions.

    Attributes:
        acknowledged: as of `Work`.
    """

    def __init__(self, manager: aio.AsyncLogManager, producer: aio.AsyncProducer) -> None:
        self.acknowledged = {NAME: 0}
        self._manager = manager
        self._producer = producer
        # For loops of other threads; closing it would close the manager.
        self._other = aio.AsyncLogManager(manager.manager)
        self._held: list[FetchData] = []

    async def fork(self) -> dict[str, Any]:
        """Fork, and use the manager and the producer in the child."""
        return await asyncio.to_thread(self._timed, self._fork)

    async def close_loop(self) -> dict[str, Any]:
        """Close an event loop with calls in flight; repeat the calls in another loop."""
        return await asyncio.to_thread(self._timed, self._close_loop)

    async def send_huge(self) -> dict[str, Any]:
        """Send a record that is larger than any batch may be."""
        begun = time.monotonic()
        try:
            await self._producer.send_many("orders", None, [b"x" * (3 << 20)], partition=0)
            answer = "accepted"
        except KafkaLogError as error:
            answer = type(error).__name__
        return {"answer": answer, "seconds": time.monotonic() - begun}

    async def hold(self) -> dict[str, Any]:
        """Read bytes of all segments of `events`, and hold them until `release`."""

        def read(manager: LogManager) -> list[FetchData]:
            found: list[FetchData] = []
            for partition in manager.topics()["events"]:
                log = manager.log("events", partition)
                for segment in log.segments():
                    # Retention may just have deleted it.
                    with suppress(OffsetOutOfRangeError):
                        found.append(log.read(segment.base_offset, max_bytes=4096))
            return found

        begun = time.monotonic()
        self._held += await self._manager.run(read)
        return {"answer": "held", "seconds": time.monotonic() - begun}

    async def release(self) -> dict[str, Any]:
        """Release the bytes."""
        self._held.clear()
        return {"answer": "released", "seconds": 0.0}

    @staticmethod
    def _timed(action: Callable[[], str]) -> dict[str, Any]:
        begun = time.monotonic()
        answer = action()
        return {"answer": answer, "seconds": time.monotonic() - begun}

    def _fork(self) -> str:
        child = os.fork()
        if child == 0:
            self._be_child()
        end = time.monotonic() + CHILD_SECONDS
        while time.monotonic() < end:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return "ForkedLogError" if code == 0 else f"status {code}"
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "no answer"

    def _be_child(self) -> None:
        """Exit with 0 if every call raises ForkedLogError."""
        status = 1
        try:
            blocking = self._manager.manager
            calls: list[Callable[[], object]] = [
                lambda: blocking.log("events", 0).append_lists(None, [b"of a child"]),
                lambda: blocking.producer(wait="durable"),
                lambda: asyncio.run(self._producer.send("events", b"of a child")),
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except ForkedLogError:
                    refused += 1
            status = 0 if refused == len(calls) else 2 + refused
        finally:
            os._exit(status)

    def _close_loop(self) -> str:
        producer = self._other.producer(wait="durable", on_full="raise")
        first = self.acknowledged[NAME]
        loop = asyncio.new_event_loop()
        # It would report that the tasks never end.
        loop.set_exception_handler(lambda loop, context: None)
        tasks = [loop.create_task(self._send(producer, first, call)) for call in range(CALLS)]
        loop.run_until_complete(asyncio.sleep(0.002))
        loop.close()
        del tasks
        try:
            asyncio.run(self._send_again(producer, first))
        except KafkaLogError as error:
            return type(error).__name__
        self.acknowledged[NAME] = first + CALLS * RECORDS
        return "sent by another loop"

    async def _send_again(self, producer: aio.AsyncProducer, first: int) -> None:
        try:
            for call in range(CALLS):
                await self._send(producer, first, call)
        finally:
            await producer.aclose(10)

    @staticmethod
    async def _send(producer: aio.AsyncProducer, first: int, call: int) -> None:
        number = first + call * RECORDS
        values = record_values(NAME, number, RECORDS)
        sequence = ProducerSequence.of_name(NAME, sequence=number)
        await producer.send_many("orders", None, values, partition=PARTITION, number=sequence)
