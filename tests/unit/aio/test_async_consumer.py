"""Tests of `AsyncConsumer`: iteration, waiting, positions, cancellation, shutdown."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from kafkalog import CommittedOffset, Record, TopicPartition, aio
from kafkalog.errors import (
    ClientClosedError,
    ConfigError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops, eventually

WHERE = TopicPartition("t", 0)


async def committed(consumer: aio.AsyncConsumer) -> int | None:
    """Return the committed offset of the first partition."""
    found = await consumer.committed(WHERE)
    return None if found is None else found.offset


async def fill(manager: aio.AsyncLogManager, count: int, partition: int = 0) -> list[bytes]:
    """Append records with consecutive values; return them."""
    values = [b"%d %d" % (partition, number) for number in range(count)]
    log = await manager.log("t", partition)
    await log.append([Record(value=value) for value in values])
    return values


def test_async_for_yields_records_with_their_positions(loops: Loops) -> None:
    """A commit in the middle is that of the record which was yielded last."""

    async def main(manager: aio.AsyncLogManager) -> None:
        values = await fill(manager, 1500)
        async with manager.consumer("g", auto_offset_reset="earliest") as consumer:
            await consumer.assign([WHERE])
            found: list[Any] = []
            async with aclosing(consumer.records()) as records:
                async for partition, record in records:
                    assert partition == WHERE
                    found.append(record.value)
                    if len(found) == 700:
                        await consumer.commit()
                        break
            assert await committed(consumer) == 700
            assert await consumer.position(WHERE) == 700
            async for _partition, record in consumer:
                found.append(record.value)
                if len(found) == len(values):
                    break
            assert values == found
            assert await consumer.lag(WHERE) == 0

    loops.run(main)


def test_subscribed_consumer_reads_all_partitions_and_later_records(loops: Loops) -> None:
    """An append of another task wakes it; so does a partition that is added."""

    async def main(manager: aio.AsyncLogManager) -> None:
        values = await fill(manager, 10, 0) + await fill(manager, 10, 1)
        found: list[Any] = []

        async def read() -> None:
            async with manager.consumer("g", auto_offset_reset="earliest") as consumer:
                await consumer.subscribe("t")
                async for _partition, records in consumer.batches():
                    found.extend(record.value for record in records)

        task = asyncio.create_task(read())
        await eventually(lambda: len(found) == 20)
        values += await fill(manager, 10, 2)
        await eventually(lambda: len(found) == 30)
        await manager.run(lambda blocking: blocking.create_partition("t", 3))
        values += await fill(manager, 10, 3)
        await eventually(lambda: len(found) == 40)
        assert sorted(values) == sorted(found)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loops.run(main)


def test_poll_without_a_limit_is_woken_by_an_append(loops: Loops) -> None:
    """Of an assigned partition, which is not looked at in between."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([("t", 0)])
            task = asyncio.create_task(consumer.poll(None))
            await asyncio.sleep(0.05)
            assert not task.done()
            async with manager.producer() as producer:
                await producer.send("t", b"v", partition=0)
            found = await task
            assert [b"v"] == [record.value for record in found[WHERE]]

    loops.run(main)


def test_poll_timeout_and_limits(loops: Loops) -> None:
    """It returns nothing in time, and at most so many records."""

    async def main(manager: aio.AsyncLogManager) -> None:
        await fill(manager, 2000)
        async with manager.consumer(auto_offset_reset="earliest", max_poll_records=1500) as reader:
            await reader.assign([WHERE])
            assert [7] == [len(each) for each in (await reader.poll(0, 7)).values()]
            assert [1000] == [len(each) for each in (await reader.poll(0)).values()]
            assert [993] == [len(each) for each in (await reader.poll(0)).values()]
            assert {} == await reader.poll(0)
            assert {} == await reader.poll(0.01)

    loops.run(main)


def test_positions_are_moved_as_those_of_a_consumer(loops: Loops) -> None:
    """Seeks, pauses, a reset, and positions that are given to a commit."""

    async def main(manager: aio.AsyncLogManager) -> None:
        values = await fill(manager, 20)
        async with manager.consumer("g", auto_offset_reset="none") as consumer:
            await consumer.assign([WHERE])
            assert (WHERE,) == await consumer.assignment()
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.poll()
            await consumer.seek(WHERE, 15)
            assert values[15:] == [each.value for each in (await consumer.poll())[WHERE]]
            await consumer.seek_to_beginning()
            assert await consumer.position(WHERE) == 0
            await consumer.seek_to_end(WHERE)
            assert {WHERE: CommittedOffset(20)} == await consumer.positions()
            await consumer.seek_to_time(0, WHERE)
            await consumer.pause()
            assert {} == await consumer.poll()
            await consumer.resume()
            assert len((await consumer.poll())[WHERE]) == 20
            await consumer.commit({WHERE: 3}, wait="durable")
            assert await committed(consumer) == 3
            assert [WHERE] == list(await consumer.all_committed())
            await consumer.seek(WHERE, 99)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll()
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.assign([("missing", 0)])

    loops.run(main)


def test_cancelled_poll_reads_the_same_records_again(loops: Loops) -> None:
    """Polls are cancelled at any step; none of the records is skipped, and none comes twice."""

    async def main(manager: aio.AsyncLogManager) -> None:
        values = await fill(manager, 3000)
        async with manager.consumer(auto_offset_reset="earliest", max_poll_records=50) as consumer:
            await consumer.assign([WHERE])
            found: list[Any] = []
            cancelled = 0
            for number in range(400):
                task = asyncio.create_task(consumer.poll())
                await asyncio.sleep(0 if number % 3 else 0.0002 * (number % 5))
                task.cancel()
                try:
                    records = (await task).get(WHERE)
                except asyncio.CancelledError:
                    cancelled += 1
                    continue
                if records is None:
                    break
                found.extend(record.value for record in records)
            while records := (await consumer.poll()).get(WHERE):
                found.extend(record.value for record in records)
            assert cancelled >= 1
            assert values == found

    loops.run(main)


def test_wakeup_and_aclose_end_a_waiting_iteration(loops: Loops) -> None:
    """Without an error; later calls are refused, and a second close is none."""

    async def main(manager: aio.AsyncLogManager) -> None:
        consumer = manager.consumer()
        await consumer.subscribe("t")
        for end in (consumer.wakeup, consumer.aclose):
            task = asyncio.create_task(consumer.poll(None))
            await asyncio.sleep(0.02)
            result = end()
            if result is not None:
                await result
            assert {} == await task
        assert [] == [each async for each in consumer]
        with pytest.raises(ClientClosedError):
            await consumer.poll()
        await consumer.aclose()
        assert "closed" in repr(consumer)

    loops.run(main)


def test_auto_commit_at_the_close(loops: Loops) -> None:
    """`enable.auto.commit` commits the positions of earlier polls."""

    async def main(manager: aio.AsyncLogManager) -> None:
        await fill(manager, 5)
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": True}
        async with manager.consumer("g", **settings) as consumer:
            await consumer.assign([WHERE])
            await consumer.poll()
        async with manager.consumer("g") as consumer:
            assert await committed(consumer) == 5

    loops.run(main)


def test_manager_aclose_ends_its_consumers(loops: Loops) -> None:
    """A waiting iteration ends."""

    async def main(manager: aio.AsyncLogManager) -> None:
        consumer = manager.consumer()
        await consumer.subscribe("t")

        async def read() -> list[Any]:
            return [each async for each in consumer]

        task = asyncio.create_task(read())
        await asyncio.sleep(0.02)
        await manager.aclose()
        assert [] == await task
        await consumer.aclose()

    loops.run(main)


def test_waiting_consumers_hold_no_thread(loops: Loops, disk: HeldDisk) -> None:
    """50 of them wait for records; other calls get their threads."""

    async def main(manager: aio.AsyncLogManager) -> None:
        consumers = [manager.consumer(auto_offset_reset="earliest") for _ in range(50)]
        for consumer in consumers:
            await consumer.assign([WHERE])
        tasks = [asyncio.create_task(consumer.poll(None)) for consumer in consumers]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(20):
            assert {"t": (0, 1, 2)} == await manager.topics()
        await fill(manager, 1)
        found = await asyncio.gather(*tasks)
        assert [1] * 50 == [len(each[WHERE]) for each in found]

    loops.run(main)


def test_wrong_settings_are_refused_at_once(loops: Loops) -> None:
    """Before anything is opened."""

    async def main(manager: aio.AsyncLogManager) -> None:
        with pytest.raises(ConfigError):
            manager.consumer(auto_offset_reset="middle")
        with pytest.raises(ValueError, match="at least one name"):
            await manager.consumer().subscribe()

    loops.run(main)
