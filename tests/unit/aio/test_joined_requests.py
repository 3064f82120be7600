"""Requests of tasks that are joined into one call: each gets its own records, errors and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogManager, ManagerConfig, aio
from kafkalog.clients.producer import Producer
from kafkalog.clients.sent_range import SentRange
from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops


@pytest.mark.parametrize("wait", ["written", "durable"])
def test_tasks_get_the_ranges_of_their_own_records(loops: Loops, wait: Any) -> None:
    """Joined ones, ones with a partition in between, of two topics, and a refused request."""

    async def main(manager: aio.AsyncLogManager) -> None:
        await manager.create_topic("other", 2)
        async with manager.producer(wait=wait) as producer:

            async def send(number: int) -> tuple[str, list[bytes], list[SentRange]]:
                values = [b"%d %d" % (number, each) for each in range(number % 13 + 1)]
                keys = [b"%d" % (number * each) for each in range(len(values))]
                topic = "other" if number % 7 == 0 else "t"
                partition = 1 if number % 11 == 0 else None
                sent = await producer.send_many(topic, keys, values, partition=partition)
                return topic, values, sent

            bad: Any = [b"right", "wrong"]
            refused = producer.send_many("t", [b"k", b"k"], bad)
            *results, error = await asyncio.gather(
                *map(send, range(120)), refused, return_exceptions=True
            )
            assert isinstance(error, TypeError)
        for result in results:
            assert isinstance(result, tuple)
            topic, values, sent = result
            found = []
            for partition, first, count, _is_duplicate in sent:
                log = await manager.log(topic, partition)
                found += [each.value async for each in log.records(first, first + count)]
            assert sorted(values) == sorted(each or b"" for each in found)

    loops.run(main)
    expected = [b"%d %d" % (n, each) for n in range(120) for each in range(n % 13 + 1)]
    stored = [each or b"" for topic in ("t", "other") for each in loops.values(topic)]
    assert sorted(expected) == sorted(stored)


def test_requests_that_follow_each_other_are_one_call(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition gets one batch of several tasks, each record once."""
    calls: list[int] = []
    write = Producer.write_prepared

    def counted(producer: Producer, prepared: Any, between: Any) -> Any:
        calls.append(sum(len(share.group) for _accumulator, share in prepared.shares))
        return write(producer, prepared, between)

    monkeypatch.setattr(Producer, "write_prepared", counted)

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable") as producer:
            opened = asyncio.create_task(producer.send("t", b"first", partition=0))
            tasks = [
                asyncio.create_task(producer.send_many("t", [b"k"], [b"%d" % number]))
                for number in range(50)
            ]
            await asyncio.gather(opened, *tasks)
            assert sum(calls) == 50
            assert len(calls) < 50

    loops.run(main)
    assert sorted([b"first", *(b"%d" % each for each in range(50))]) == sorted(
        each or b"" for each in loops.values()
    )


def test_tasks_get_offsets_before_the_logs_have_their_records(
    tmp_path: Path, disk: HeldDisk
) -> None:
    """With a linger of the commit journal; the logs get the records at the close."""
    config = ManagerConfig(journal_enable=True, journal_linger_ms=60_000)
    loops = Loops(tmp_path / "data", disk, config)

    async def main(manager: aio.AsyncLogManager) -> list[list[SentRange]]:
        async with manager.producer(wait="durable") as producer:
            tasks = [producer.send_many("t", [b"%d" % n], [b"%d" % n]) for n in range(100)]
            results = await asyncio.gather(*tasks)
        logs = [await manager.log("t", partition) for partition in range(3)]
        assert [(await log.offsets()).log_end_offset for log in logs] == [0, 0, 0]
        return results

    results = loops.run(main)
    with LogManager([loops.path]) as manager:
        for number, (sent,) in enumerate(results):
            log = manager.log("t", sent.partition)
            (record,) = log.records(sent.first_offset, sent.first_offset + 1)
            assert (record.key, record.value) == (b"%d" % number, b"%d" % number)
