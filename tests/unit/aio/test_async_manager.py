"""Tests of `AsyncLogManager` and `open_manager`: opening, topics, cancellation, closing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalog import LogManager, Record, TopicPartition, aio
from kafkalog.errors import (
    LogClosedError,
    LogLockedError,
    LogStorageError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops, eventually


def test_open_manager_awaited_or_entered(tmp_path: Path) -> None:
    """A second one is refused at once; the directory is free after the close."""

    async def main() -> None:
        manager = await aio.open_manager([tmp_path])
        with pytest.raises(LogLockedError):
            await aio.open_manager([tmp_path])
        await manager.aclose()
        await manager.aclose()
        assert manager.is_closed
        async with aio.open_manager([tmp_path]) as manager:
            assert {} == await manager.topics()
        with pytest.raises(LogClosedError):
            await manager.topics()
        with pytest.raises(LogClosedError):
            manager.consumer()

    asyncio.run(main())


def test_open_manager_cancelled_is_closed(tmp_path: Path, disk: HeldDisk) -> None:
    """Also if the loop is closed before the opening ends."""
    with LogManager([tmp_path]) as blocking:
        blocking.create_topic("t")
        blocking.log("t").append([Record(value=b"v")])
    (tmp_path / ".kafka_cleanshutdown").unlink()

    async def main() -> None:
        with disk.held("create") as held:
            task = asyncio.create_task(open_and_close(tmp_path, disk))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            threading.Timer(0.05, held.release).start()

    asyncio.run(main())

    async def reopen() -> None:
        for _ in range(1000):
            try:
                manager = await aio.open_manager([tmp_path])
            except LogLockedError:
                await asyncio.sleep(0.01)
                continue
            assert {"t": (0,)} == await manager.topics()
            await manager.aclose()
            return
        pytest.fail("the directory stays locked")

    asyncio.run(reopen())


async def open_and_close(path: Path, disk: HeldDisk) -> None:
    """Open a manager, wait, and close it."""
    async with aio.open_manager([path], filesystem=disk.filesystem):
        await asyncio.sleep(3600)


def test_topics_are_created_and_deleted(loops: Loops) -> None:
    """With `exist_ok`, and without."""

    async def main(manager: aio.AsyncLogManager) -> None:
        assert await manager.create_topic("u", 2, {"retention.ms": "-1"})
        assert not await manager.create_topic("u", 5, exist_ok=True)
        with pytest.raises(TopicExistsError):
            await manager.create_topic("u")
        assert {"t": (0, 1, 2), "u": (0, 1)} == await manager.topics()
        assert TopicPartition("u", 1) in await manager.partitions()
        await manager.delete_topic("u")
        with pytest.raises(UnknownTopicOrPartitionError):
            await manager.log("u")

    loops.run(main)


def test_flush_and_health(loops: Loops, disk: HeldDisk) -> None:
    """The durable offsets of open logs; an error of the disk."""

    async def main(manager: aio.AsyncLogManager) -> None:
        log = await manager.log("t", 1)
        await log.append([Record(value=b"v")])
        assert {TopicPartition("t", 1): 1} == await manager.flush()
        assert (await manager.health()).is_healthy
        await log.append([Record(value=b"v")], wait="durable")
        await log.append([Record(value=b"v")])
        disk.fail_next_sync()
        with pytest.raises(LogStorageError):
            await manager.flush([("t", 1)])
        assert not (await manager.health()).is_healthy

    loops.run(main)


def test_default_executor_of_the_loop_is_not_used(loops: Loops) -> None:
    """A service keeps all of its threads busy; calls of the manager continue."""

    async def main(manager: aio.AsyncLogManager) -> None:
        free = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, free.wait)
        await manager.create_topic("u")
        async with manager.producer() as producer:
            await producer.send("u", b"v")
        free.set()
        await busy

    loops.run(main)


def test_many_calls_use_few_threads(loops: Loops) -> None:
    """200 calls at once run in four threads, and none is lost."""

    async def main(manager: aio.AsyncLogManager) -> None:
        threads = await asyncio.gather(
            *(manager.run(lambda _blocking: threading.get_ident()) for _ in range(200))
        )
        assert len(threads) == 200
        assert len(set(threads)) <= 4

    loops.run(main)


def test_cancelled_call_ends_without_its_task(loops: Loops) -> None:
    """A topic is created, or is not: the note states which."""

    async def main(manager: aio.AsyncLogManager) -> None:
        begun, free = threading.Event(), threading.Event()

        def hold(blocking: LogManager) -> None:
            begun.set()
            free.wait()
            blocking.create_topic("begun")

        held = asyncio.create_task(manager.run(hold))
        await eventually(begun.is_set)
        held.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await held
        assert "had begun" in caught.value.__notes__[0]
        fillers = [asyncio.create_task(manager.run(lambda _: free.wait())) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(manager.create_topic("waiting"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        assert "had not begun" in caught.value.__notes__[0]
        free.set()
        await asyncio.gather(*fillers)
        await eventually(lambda: "begun" in manager.manager.topics())
        assert "waiting" not in await manager.topics()

    loops.run(main)


def test_errors_of_concurrent_calls_are_separate(loops: Loops) -> None:
    """Each task gets its own object, whose traceback grows with it alone."""

    async def main(manager: aio.AsyncLogManager) -> None:
        shared = UnknownTopicOrPartitionError("shared")

        def fail(_blocking: LogManager) -> None:
            raise shared

        errors = await asyncio.gather(
            *(manager.run(fail) for _ in range(20)), return_exceptions=True
        )
        assert len({id(error) for error in errors}) == 20
        assert {"shared"} == {str(error) for error in errors}

    loops.run(main)


def test_existing_manager_is_used_by_a_loop(tmp_path: Path) -> None:
    """Blocking threads use it at the same time."""
    with LogManager([tmp_path]) as blocking:
        blocking.create_topic("t")

        async def main() -> None:
            manager = aio.AsyncLogManager(blocking)
            async with manager.producer() as producer:
                await producer.send("t", b"aio")

        asyncio.run(main())
        with blocking.producer() as producer:
            producer.send("t", b"blocking")
        values = [record.value for record in blocking.log("t").records()]
        assert [b"aio", b"blocking"] == values
