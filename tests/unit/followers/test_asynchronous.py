"""Followers of coroutines: the same records, cancellation without a loss, and their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

import kafkalog
import kafkalog.aio
from kafkalog import (
    ClientClosedError,
    CommittedOffset,
    CorruptRecordError,
    LogManager,
    Record,
    TopicPartition,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.testing.faults import Faults
from kafkalog.testing.faulty_disk import FaultyDisk

T0 = TopicPartition("t", 0)


def run(
    scenario: Callable[[LogManager, Path], Coroutine[None, None, None]], directory: Path
) -> None:
    """Run a scenario with a topic of one partition."""
    with LogManager([directory]) as manager:
        manager.create_topic("t")
        asyncio.run(scenario(manager, directory))


def append(manager: LogManager, *values: bytes) -> None:
    """Append records, a batch for each."""
    for value in values:
        manager.log("t").append([Record(value=value)])


def test_records_are_yielded_as_they_arrive(tmp_path: Path) -> None:
    """The iteration waits in between, while other tasks run."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        found: list[bytes | None] = []
        arrived = asyncio.Event()

        async def read(follower: kafkalog.aio.AsyncFollower) -> None:
            async for piece in follower:
                found.extend(record.value for record in piece.records)
                arrived.set()

        async with kafkalog.aio.follow(directory) as follower:
            assert (T0,) == follower.partitions()
            assert [] == follower.lost
            task = asyncio.create_task(read(follower))
            for number in range(20):
                arrived.clear()
                append(manager, b"%d" % number)
                await asyncio.wait_for(arrived.wait(), 30)
                assert number + 1 == len(found)
            assert {T0: CommittedOffset(20, leader_epoch=0)} == await follower.positions()
            await follower.aclose()
            await asyncio.wait_for(task, 30)
        assert follower.is_closed
        assert [b"%d" % number for number in range(20)] == found

    run(scenario, tmp_path)


def test_poll_returns_after_its_time(tmp_path: Path) -> None:
    """Or with what is there; a bound counts."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        follower = kafkalog.aio.follow(directory, "t", start="start")
        assert {} == await follower.poll(10)
        append(manager, b"a", b"b", b"c")
        assert 2 == len((await follower.poll(30_000, 2))[T0])
        assert 1 == len((await follower.poll(30_000))[T0])
        assert [] == [piece async for piece in follower.pieces(timeout_ms=10)]
        await follower.seek(T0, 1)
        assert 2 == len((await follower.poll(30_000))[T0])
        await follower.aclose()

    run(scenario, tmp_path)


def test_cancelled_calls_lose_nothing(tmp_path: Path) -> None:
    """The next call returns the records; positions are those of what was returned."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        found: list[bytes | None] = []
        async with kafkalog.aio.follow(directory) as follower:
            for number in range(60):
                append(manager, b"%d" % number)
                task = asyncio.create_task(follower.poll(60_000))
                for _turn in range(number % 5):
                    await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    for records in (await task).values():
                        found += [record.value for record in records]
                positions = await follower.positions()
                assert len(found) == positions[T0].offset
            while len(found) < 60:
                for records in (await follower.poll(30_000)).values():
                    found += [record.value for record in records]
        assert [b"%d" % number for number in range(60)] == found

    run(scenario, tmp_path)


def test_wakeup_ends_a_wait(tmp_path: Path) -> None:
    """Of a call, and of an iteration."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        async with kafkalog.aio.follow(directory) as follower:
            asyncio.get_running_loop().call_later(0.02, follower.wakeup)
            assert {} == await follower.poll(60_000)
            asyncio.get_running_loop().call_later(0.02, follower.wakeup)
            assert [] == [piece async for piece in follower]

    run(scenario, tmp_path)


def test_errors_are_raised_and_the_next_call_continues(tmp_path: Path) -> None:
    """As those of the blocking form."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        append(manager, b"a", b"b")
        Faults(directory, FaultyDisk(), PosixFileSystem()).damage("t", 0, 0)
        async with kafkalog.aio.follow(directory, start="start") as follower:
            for _turn in range(2):
                with pytest.raises(CorruptRecordError):
                    await follower.poll(30_000)
            await follower.seek(T0, 1)
            assert 1 == len((await follower.poll(30_000))[T0])

    run(scenario, tmp_path)


def test_closed_follower_refuses(tmp_path: Path) -> None:
    """Opened or not; a second close does nothing."""

    async def scenario(manager: LogManager, directory: Path) -> None:
        for opens in (False, True):
            follower = kafkalog.aio.follow(directory)
            assert "not open yet" in repr(follower)
            assert () == follower.partitions()
            if opens:
                await follower.poll()
            await follower.aclose()
            await follower.aclose()
            assert "closed" in repr(follower)
            with pytest.raises(ClientClosedError):
                await follower.poll()
            with pytest.raises(ClientClosedError):
                await follower.seek(T0, 1)
            assert [] == [piece async for piece in follower]
        with pytest.raises(ValueError, match="start"):
            kafkalog.aio.follow(directory, start="now")  # type: ignore[arg-type]

    run(scenario, tmp_path)
