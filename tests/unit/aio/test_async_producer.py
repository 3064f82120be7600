"""Tests of `AsyncProducer`: order, cancellation, back-pressure, disks, transactions, shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog import LogManager, Producer, ProducerConfig, SentRange, TopicPartition, aio
from kafkalog._core.murmur2 import partition_of
from kafkalog.aio.async_producer import AsyncProducer
from kafkalog.aio.calls import BlockingCalls
from kafkalog.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ConfigError,
    DeliveryTimeoutError,
    DiskFullError,
    ForkedLogError,
    InvalidTxnStateError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    RecordTooLargeError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops, eventually, values_of
from tests.unit.test_forking import output_of_child


async def begun(held: Any) -> None:
    """Wait until the disk holds a call."""
    await asyncio.to_thread(held.wait_for_first)


@asynccontextmanager
async def full_buffer(
    manager: aio.AsyncLogManager, disk: HeldDisk, **settings: Any
) -> AsyncIterator[tuple[AsyncProducer, asyncio.Task[Any]]]:
    """Return a producer whose memory a first record holds until the disk is released."""
    async with manager.producer(
        wait="durable", buffer_memory=16384, batch_size=1000, **settings
    ) as producer:
        with disk.held() as held:
            first = asyncio.create_task(producer.send("t", bytes(16000), partition=0))
            await begun(held)
            yield producer, first
        await first


# ------------------------------------------------------------------------------- sending


def test_send_returns_position_and_stores_the_record(loops: Loops) -> None:
    """With key, headers and time, in the partition of the key."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable") as producer:
            sent = await producer.send(
                "t", b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000
            )
        assert ("t", partition_of(b"k", 3), 0, 1_700_000_000_000) == sent
        log = await manager.log("t", sent.partition)
        (record,) = [each async for each in log.records()]
        assert (b"k", b"v", (("h", b"1"),)) == (record.key, record.value, record.headers)
        assert (await log.offsets()).durable_offset == 1

    loops.run(main)


def test_send_many_returns_ranges_by_partition(loops: Loops) -> None:
    """Partitions, first offsets and counts, as those of the blocking producer."""
    keys = [b"%d" % each for each in range(50)]

    async def main(manager: aio.AsyncLogManager) -> list[SentRange]:
        async with manager.producer() as producer:
            first = await producer.send_many("t", keys, keys)
            second = await producer.send_many("t", keys, keys)
        assert [(each.partition, each.record_count) for each in first] == [
            (each.partition, each.first_offset) for each in second
        ]
        return first

    sent = loops.run(main)
    counts = {each.partition: each.record_count for each in sent}
    numbers = [partition_of(key, 3) for key in keys]
    assert {number: numbers.count(number) for number in dict.fromkeys(numbers)} == counts
    assert list(dict.fromkeys(numbers)) == [each.partition for each in sent]


@pytest.mark.parametrize("count", [3, 2500])
def test_send_many_columns_are_stored_as_lists_are(loops: Loops, count: int) -> None:
    """Arrow arrays, NumPy arrays, tuples and iterators; timestamps and headers in columns."""
    values = [b"%05d" % each for each in range(count)]
    columns: list[Any] = [
        values,
        tuple(values),
        pa.array(values),
        pa.chunked_array([pa.array(values)]),
        np.array(values),
        np.array(values, dtype=object),
    ]
    times = np.arange(count) + 1_700_000_000_000
    headers = [[("row", b"%d" % each)] for each in range(count)]

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer() as producer:
            for column in columns:
                sent = await producer.send_many("t", column, column, times, headers, partition=1)
                assert [count] == [each.record_count for each in sent]
        records = [each async for each in (await manager.log("t", 1)).records()]
        assert values * len(columns) == [each.value for each in records]
        assert values == [each.key for each in records[-count:]]
        assert times.tolist() == [each.timestamp_ms for each in records[-count:]]
        assert [b"%d" % each for each in range(count)] == [
            each.headers[0][1] for each in records[-count:]
        ]

    loops.run(main)


def test_send_many_of_many_records_is_one_result(loops: Loops) -> None:
    """Parts of a call are joined: one range for each partition, with all rows in order."""
    keys = [b"%d" % each for each in range(5000)]

    async def main(manager: aio.AsyncLogManager) -> None:
        receipt = aio.SendReceipt()
        async with manager.producer() as producer:
            sent = await producer.send_many("t", keys, keys, receipt=receipt)
        assert sorted({partition_of(key, 3) for key in keys}) == sorted(
            each.partition for each in sent
        )
        assert (5000, {0}) == (
            sum(each.record_count for each in sent),
            {each.first_offset for each in sent},
        )
        assert (sent, [], True) == (receipt.delivered, receipt.failed_rows, receipt.is_done)

    loops.run(main)
    assert sorted(keys) == sorted(each for each in loops.values() if each is not None)


def test_send_many_large_values_go_in_parts_of_their_size(loops: Loops) -> None:
    """A few values of hundreds of kilobytes, and a value that fills a part."""
    values = [bytes([each]) * size for each, size in enumerate([700_000, 500_000, 900_000, 10])]

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer() as producer:
            assert [SentRange(0, 0, 4)] == await producer.send_many("t", None, values, partition=0)

    loops.run(main)
    assert values == loops.values()


def test_send_many_of_nothing_returns_nothing(loops: Loops) -> None:
    """Without a topic, even."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer() as producer:
            assert [] == await producer.send_many("missing", [], [])

    loops.run(main)


@pytest.mark.parametrize(
    ("keys", "values", "arguments", "error"),
    [
        ([b"k"], [b"v", b"v"], {}, ValueError),
        (None, ["text"], {}, TypeError),
        ([7], [b"v"], {}, TypeError),
        (None, b"bytes", {}, TypeError),
        (None, [b"v"] * 3, {"timestamps": [1, 2]}, ValueError),
        (None, [b"v"] * 3, {"headers": [None]}, ValueError),
        (None, [b"v"] * 2999 + ["text"], {}, TypeError),
        ([b"k"], [b"v"], {"partition": 9}, UnknownTopicOrPartitionError),
        ([b"k"], [b"v"], {"timeout": -1}, ValueError),
        (None, [bytes(3 << 20)], {}, RecordTooLargeError),
    ],
)
def test_send_many_bad_input_raises_and_stores_nothing(
    loops: Loops, keys: Any, values: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """Of a call of several parts as well; the next call works, and no byte stays reserved."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(buffer_memory=400_000) as producer:
            receipt = aio.SendReceipt()
            with pytest.raises(error):
                # The memory is used up by no other call: a timeout is checked where it is needed.
                if "timeout" in arguments:
                    values[0] = bytes(300_000)
                    await asyncio.gather(
                        producer.send_many("t", None, [bytes(300_000)], partition=0),
                        producer.send_many("t", keys, values, **arguments),
                    )
                else:
                    await producer.send_many("t", keys, values, receipt=receipt, **arguments)
            assert [] == receipt.delivered
            await producer.flush()
            assert producer.pending_bytes == 0
            await producer.send("t", b"last", partition=0)

    loops.run(main)
    assert [b"last"] == [each for each in loops.values() if each is not None and len(each) < 1000]


def test_concurrent_sends_of_each_task_keep_their_order(loops: Loops) -> None:
    """20 tasks to 3 partitions, with more bytes than the buffer has."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(buffer_memory=4096, batch_size=1000) as producer:

            async def send(task: int) -> None:
                sends = [
                    producer.send("t", b"%d %d" % (task, number), key=b"%d" % task)
                    for number in range(50)
                ]
                # Tasks begin in the order in which they are made.
                await asyncio.gather(*sends)

            await asyncio.gather(*map(send, range(20)))

    loops.run(main)
    stored = [tuple(map(int, value.split())) for value in loops.values() if value is not None]
    assert [(task, number) for task in range(20) for number in range(50)] == sorted(stored)
    for task in range(20):
        assert list(range(50)) == [number for which, number in stored if which == task]


def test_ten_thousand_concurrent_sends_are_all_delivered(loops: Loops) -> None:
    """Each with its own offset, and no byte is left reserved."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable", buffer_memory=256 << 10) as producer:
            sent = await asyncio.gather(
                *(producer.send("t", b"%d" % each, key=b"%d" % each) for each in range(10_000))
            )
            assert len({(each.partition, each.offset) for each in sent}) == 10_000
            assert (0, 0) == (producer.pending_bytes, producer.waiting_count)

    loops.run(main)
    assert {b"%d" % each for each in range(10_000)} == set(loops.values())


def test_linger_is_kept_where_it_is_set(loops: Loops) -> None:
    """The record is written by a flush before the hour is over."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(linger_ms=3_600_000) as producer:
            task = asyncio.create_task(producer.send("t", b"v", partition=0))
            done, _pending = await asyncio.wait([task], timeout=0.05)
            assert not done
            assert await producer.flush() == 0
            assert task.done()

    loops.run(main)


# --------------------------------------------------------------------------- cancellation


def test_cancel_while_waiting_for_space_sends_nothing(loops: Loops, disk: HeldDisk) -> None:
    """The bytes of a waiting call are those of no other."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with full_buffer(manager, disk) as (producer, _first):
            receipt = aio.SendReceipt()
            task = asyncio.create_task(producer.send("t", bytes(9000), receipt=receipt))
            behind = asyncio.create_task(producer.send("t", bytes(5000)))
            await eventually(lambda: producer.waiting_count == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (False, 1) == (receipt.is_accepted, producer.waiting_count)
        await behind

    loops.run(main)
    assert [5000, 16000] == sorted(len(value or b"") for value in loops.values())


def test_cancel_before_the_thread_began_sends_nothing(loops: Loops) -> None:
    """The tasks are cancelled in the next step of the loop; note and receipt have the outcome."""

    async def main(manager: aio.AsyncLogManager) -> list[int]:
        accepted = []
        async with manager.producer(wait="durable") as producer:

            async def send(number: int) -> None:
                receipt = aio.SendReceipt()
                try:
                    await producer.send("t", b"%d" % number, receipt=receipt)
                except asyncio.CancelledError as error:
                    assert receipt.is_accepted is not ("had not begun" in error.__notes__[0])
                    raise
                finally:
                    if receipt.is_accepted:
                        accepted.append(number)

            tasks = [asyncio.create_task(send(number)) for number in range(200)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await producer.flush()
            assert producer.pending_bytes == 0
        return accepted

    accepted = loops.run(main)
    assert sorted(b"%d" % each for each in accepted) == sorted(
        each for each in loops.values() if each
    )


def test_cancel_after_the_write_stores_the_record(loops: Loops, disk: HeldDisk) -> None:
    """Its receipt has the offset later; a flush waits for it."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable") as producer:
            receipt = aio.SendReceipt()
            with disk.held() as held:
                send = producer.send_many("t", [b"k"], [b"v"], receipt=receipt)
                task = asyncio.create_task(send)
                await begun(held)
                task.cancel()
                with pytest.raises(asyncio.CancelledError) as caught:
                    await task
                assert "had begun" in caught.value.__notes__[0]
                assert (True, False, []) == (
                    receipt.is_accepted,
                    receipt.is_done,
                    receipt.delivered,
                )
                assert await producer.flush(0.05) == 1
            assert await producer.flush() == 0
            assert [SentRange(partition_of(b"k", 3), 0, 1)] == receipt.delivered

    loops.run(main)
    assert [b"v"] == loops.values()


def test_timeout_of_asyncio_is_a_cancellation(loops: Loops, disk: HeldDisk) -> None:
    """`asyncio.timeout` raises TimeoutError, whose cause has the note."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable") as producer:
            with disk.held(), pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.05):
                    await producer.send("t", b"v")
            assert caught.value.__cause__ is not None
            assert "had begun" in caught.value.__cause__.__notes__[0]

    loops.run(main)
    assert [b"v"] == loops.values()


# --------------------------------------------------------------------------- back-pressure


def test_full_buffer_timeout_raises_and_zero_does_not_wait(loops: Loops, disk: HeldDisk) -> None:
    """A BufferExhaustedError; the memory is free once the disk has the first record."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with full_buffer(manager, disk) as (producer, _first):
            assert producer.pending_bytes > 16000
            assert producer.available_bytes < 1000
            for timeout in (0, 0.02):
                with pytest.raises(BufferExhaustedError, match=r"buffer\.memory = 16384"):
                    await producer.send("t", bytes(5000), timeout=timeout)
            assert producer.waiting_count == 0
        assert (0, 16384) == (producer.pending_bytes, producer.available_bytes)

    loops.run(main)


def test_full_buffer_default_timeout_is_max_block_ms(loops: Loops, disk: HeldDisk) -> None:
    """Of the settings."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with full_buffer(manager, disk, max_block_ms=20) as (producer, _first):
            with pytest.raises(BufferExhaustedError, match=r"0\.02 s"):
                await producer.send_many("t", None, [bytes(5000)])

    loops.run(main)


def test_full_buffer_waiting_calls_get_space_in_their_order(loops: Loops, disk: HeldDisk) -> None:
    """A small record does not pass a large record before it."""
    order: list[int] = []

    async def main(manager: aio.AsyncLogManager) -> None:
        async with full_buffer(manager, disk) as (producer, _first):

            async def send(size: int) -> None:
                await producer.send("t", bytes(size), partition=0)
                order.append(size)

            tasks = [asyncio.create_task(send(size)) for size in (12000, 10, 20)]
            await eventually(lambda: producer.waiting_count == 3)
            assert producer.available_bytes == 0
        await asyncio.gather(*tasks)

    loops.run(main)
    assert [12000, 10, 20] == order
    assert [16000, 12000, 10, 20] == [len(value or b"") for value in loops.values()]


def test_request_above_the_buffer_is_accepted_alone(loops: Loops) -> None:
    """As by the blocking producer: its caller has the memory already."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(buffer_memory=2000, batch_size=1000) as producer:
            many = producer.send_many("t", None, [bytes(1000)] * 10, partition=0)
            results = await asyncio.gather(many, producer.send("t", b"v", partition=0))
            assert ([SentRange(0, 0, 10)], 10) == (results[0], results[1].offset)

    loops.run(main)


def test_flood_of_calls_holds_no_more_than_the_buffer(loops: Loops, disk: HeldDisk) -> None:
    """2,000 calls while the disk holds all syncs: one buffer of bytes, and the others wait."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with full_buffer(manager, disk) as (producer, _first):
            tasks = [asyncio.create_task(producer.send("t", bytes(500))) for _ in range(2000)]
            await eventually(lambda: producer.waiting_count == 2000)
            assert producer.pending_bytes <= 16384
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert producer.waiting_count == 0

    loops.run(main)
    assert [16000] == [len(value or b"") for value in loops.values()]


# ---------------------------------------------------------------------------------- disks


@pytest.mark.parametrize("is_single", [False, True])
def test_errors_of_a_full_disk_leave_no_cycle(
    loops: Loops, disk: HeldDisk, caplog: pytest.LogCaptureFixture, is_single: bool
) -> None:
    """An error is freed with its last reference: a collection of thousands stops all threads."""
    # A captured record would keep its error.
    caplog.set_level(logging.CRITICAL, "kafkalog")

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable", on_full="raise") as producer:
            await producer.send("t", b"before", partition=0)
            references = []
            with disk.full():
                for _ in range(3):
                    try:
                        if is_single:
                            await producer.send("t", b"lost", partition=0)
                        else:
                            await producer.send_many("t", None, [b"lost"] * 3, partition=0)
                    except DiskFullError as error:
                        references.append(weakref.ref(error))
                await producer.flush()
            await eventually(lambda: not any(each() for each in references))
            assert len(references) == 3

    gc.disable()
    try:
        loops.run(main)
    finally:
        gc.enable()


def test_full_disk_raise_fails_at_once_and_health_reports_it(loops: Loops, disk: HeldDisk) -> None:
    """Each call gets a separate error; the receipt has the rows; later records are stored."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(wait="durable", on_full="raise") as producer:
            await producer.send("t", b"before", partition=0)
            with disk.full():
                receipt = aio.SendReceipt()
                errors = await asyncio.gather(
                    producer.send("t", b"lost", partition=0),
                    producer.send("t", b"lost", partition=0),
                    producer.send_many("t", None, [b"lost"] * 3, partition=0, receipt=receipt),
                    return_exceptions=True,
                )
                assert [DiskFullError] * 3 == [type(error) for error in errors]
                assert len(set(map(id, errors))) == 3
                assert ([0, 1, 2], []) == (receipt.failed_rows, receipt.delivered)
                health = await manager.health()
                assert (TopicPartition("t", 0),) == health.partitions
            await producer.send("t", b"after", partition=0)
            assert (await manager.health()).is_healthy

    loops.run(main)
    assert [b"before", b"after"] == loops.values()


def test_full_disk_wait_continues_by_itself(loops: Loops, disk: HeldDisk) -> None:
    """Records wait for space, in order, and calls for the buffer; all are delivered."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(
            wait="durable", buffer_memory=4096, batch_size=500, retry_backoff_ms=5
        ) as producer:
            await producer.send("t", b"first", partition=0)
            with disk.full():
                tasks = [
                    asyncio.create_task(producer.send("t", b"%400d" % each, partition=0))
                    for each in range(50)
                ]
                await eventually(lambda: producer.waiting_count > 0)
                assert not any(task.done() for task in tasks)
                await eventually(lambda: not manager.manager.health().is_healthy)
            await asyncio.gather(*tasks)

    loops.run(main)
    assert [b"first", *(b"%400d" % each for each in range(50))] == loops.values()


def test_full_disk_delivery_timeout_is_raised(loops: Loops, disk: HeldDisk) -> None:
    """After `delivery.timeout.ms`; the producer can be used again."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(delivery_timeout_ms=30, retry_backoff_ms=5) as producer:
            await producer.send("t", b"first", partition=0)
            with disk.full(), pytest.raises(DeliveryTimeoutError):
                await producer.send("t", b"lost", partition=0)
            await producer.send("t", b"last", partition=0)

    loops.run(main)
    assert [b"first", b"last"] == loops.values()


def test_failed_sync_fails_its_records_and_later_ones(loops: Loops, disk: HeldDisk) -> None:
    """The log is offline, as with the blocking producer; nothing was acknowledged."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer(wait="durable")
        await producer.send("t", b"durable", partition=0)
        disk.fail_next_sync()
        with pytest.raises(LogStorageError):
            await producer.send("t", b"unknown", partition=0)
        with pytest.raises((LogOfflineError, LogClosedError)):
            await producer.send("t", b"refused", partition=0)
        await producer.aclose()

    loops.run(main)
    assert b"durable" in loops.values()
    assert b"refused" not in loops.values()


@pytest.fixture(name="small_disk")
def fixture_small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    target = tmp_path / "disk"
    target.mkdir()
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount a file system of its own")
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(target)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: this system permits no mount")
    try:
        yield target
    finally:
        gc.collect()
        subprocess.run(["umount", str(target)], check=True)


def test_full_tmpfs_all_acknowledged_records_are_stored(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A real file system: writers run into its end, get space, and continue."""
    # A captured record would keep its error, and the files that are open in its traceback.
    caplog.set_level(logging.CRITICAL, "kafkalog")
    acknowledged: set[bytes] = set()

    async def send(producer: AsyncProducer, task: int) -> None:
        for number in range(15):
            value = b"%d %d " % (task, number) + bytes(16000)
            await producer.send("t", value, partition=task % 2)
            acknowledged.add(value)

    async def main() -> None:
        async with aio.open_manager([small_disk / "data"]) as manager:
            await manager.create_topic("t", 2)
            (small_disk / "filler").write_bytes(bytes(2 << 20))
            producer = manager.producer(wait="durable", buffer_memory=1 << 20, retry_backoff_ms=5)
            tasks = [asyncio.create_task(send(producer, task)) for task in range(30)]
            await eventually(lambda: not manager.manager.health().is_healthy)
            count = len(acknowledged)
            assert 0 < count < 450
            (small_disk / "filler").unlink()
            await eventually(lambda: len(acknowledged) > count)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await producer.aclose(0.5)

    asyncio.run(main())
    stored = values_of(small_disk / "data")
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))


# --------------------------------------------------------------------------- transactions


def committed(manager: aio.AsyncLogManager) -> list[bytes | None]:
    """Return the committed values of `t`; in a thread, or where a block is no matter."""
    return [
        record.value
        for number in range(3)
        for record in manager.manager.log("t", number).records(isolation="read_committed")
    ]


def test_transaction_is_committed_at_the_end_of_the_block(loops: Loops) -> None:
    """Records and positions of a group, together."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx") as producer:
            async with producer.transaction():
                await producer.send_many("t", [b"a", b"b"], [b"1", b"2"])
                await producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
                assert [] == committed(manager)
            assert [b"1", b"2"] == sorted(committed(manager))  # type: ignore[type-var]
        async with manager.consumer("g") as consumer:
            found = await consumer.committed(TopicPartition("t", 0))
            assert found is not None
            assert found.offset == 5

    loops.run(main)


def test_transaction_is_aborted_by_an_exception(loops: Loops) -> None:
    """The exception is raised; the next transaction is committed."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx") as producer:
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await producer.send("t", b"aborted")
                    raise KeyError
            async with producer.transaction():
                await producer.send("t", b"committed")
            assert [b"committed"] == committed(manager)

    loops.run(main)


def test_transaction_is_aborted_by_a_cancellation(loops: Loops) -> None:
    """Of its block; the next transaction begins after the abort."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx") as producer:
            inside = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    await producer.send("t", b"aborted")
                    inside.set()
                    await asyncio.sleep(3600)

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send("t", b"committed")
            assert [b"committed"] == committed(manager)

    loops.run(main)


def test_transaction_cancelled_during_its_commit_is_whole(loops: Loops, disk: HeldDisk) -> None:
    """The commit has begun, and ends without its task: all records are visible."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx") as producer:

            async def work() -> None:
                async with producer.transaction():
                    await producer.send_many("t", [b"a", b"b", b"c"], [b"1", b"2", b"3"])

            with disk.held() as held:
                task = asyncio.create_task(work())
                await begun(held)
                task.cancel()
                with pytest.raises(asyncio.CancelledError) as caught:
                    await task
                assert "had begun" in caught.value.__notes__[0]
            async with producer.transaction():
                await producer.send("t", b"4")
            assert {b"1", b"2", b"3", b"4"} == set(committed(manager))

    loops.run(main)


def test_transaction_steps_are_refused_out_of_order(loops: Loops) -> None:
    """InvalidTxnStateError; also of a producer without a transactional.id."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx") as producer:
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(InvalidTxnStateError):
                    await call()
            with pytest.raises(InvalidTxnStateError):
                await producer.send("t", b"v")
            await producer.begin_transaction()
            with pytest.raises(InvalidTxnStateError):
                await producer.begin_transaction()
            await producer.abort_transaction()
        async with manager.producer() as producer:
            with pytest.raises(InvalidTxnStateError):
                await producer.begin_transaction()

    loops.run(main)


def test_transaction_with_a_refused_record_is_aborted(loops: Loops, disk: HeldDisk) -> None:
    """The record does not fit the disk; the commit raises, and nothing is visible."""

    async def main(manager: aio.AsyncLogManager) -> None:
        async with manager.producer(transactional_id="tx", on_full="raise") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"1", partition=0)
            with disk.full(), pytest.raises(DiskFullError):
                await producer.send("t", b"2", partition=0)
            with pytest.raises(TransactionAbortedError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            assert [] == committed(manager)

    loops.run(main)


# ------------------------------------------------------------------------------- shutdown


def test_aclose_delivers_what_was_sent_and_refuses_more(loops: Loops) -> None:
    """Tasks that sent before get their results; idempotent."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer(wait="durable")
        tasks = [asyncio.create_task(producer.send("t", b"%d" % each)) for each in range(500)]
        await asyncio.sleep(0)
        await asyncio.gather(producer.aclose(), producer.aclose())
        assert all(task.done() for task in tasks)
        await asyncio.gather(*tasks)
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"late")
        with pytest.raises(ClientClosedError):
            await producer.flush()
        await producer.aclose()
        assert producer.is_closed

    loops.run(main)
    assert {b"%d" % each for each in range(500)} == set(loops.values())


def test_aclose_timeout_fails_what_a_full_disk_holds(loops: Loops, disk: HeldDisk) -> None:
    """Records that are written, waiting for the thread, and waiting for the buffer."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer(wait="durable", buffer_memory=4096, batch_size=500)
        await producer.send("t", b"first", partition=0)
        with disk.full():
            tasks = [
                asyncio.create_task(producer.send("t", bytes(400), partition=0)) for _ in range(100)
            ]
            await eventually(lambda: producer.waiting_count > 0)
            await producer.aclose(0.1)
            errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert {ClientClosedError} == {type(error) for error in errors}

    loops.run(main)
    assert [b"first"] == loops.values()


def test_aclose_ends_a_commit_that_waits_for_space(loops: Loops, disk: HeldDisk) -> None:
    """The commit waits in the thread of the producer, whose task gets an error; nothing hangs."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer(transactional_id="tx", retry_backoff_ms=5)
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        with disk.full():
            sent = asyncio.create_task(producer.send("t", b"2", partition=0))
            await eventually(lambda: not manager.manager.health().is_healthy)
            commit = asyncio.create_task(producer.commit_transaction())
            done, _pending = await asyncio.wait([commit], timeout=0.05)
            assert not done
            with suppress(LogStorageError):
                await producer.aclose(0.05)
            errors = await asyncio.gather(sent, commit, return_exceptions=True)
        assert [TransactionAbortedError] * 2 == [type(error) for error in errors]
        assert [] == committed(manager)

    loops.run(main)


def test_aclose_aborts_an_open_transaction(loops: Loops) -> None:
    """As `Producer.close`."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer(transactional_id="tx")
        await producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.aclose()
        assert [] == committed(manager)

    loops.run(main)


def test_manager_aclose_closes_its_producers(loops: Loops) -> None:
    """Their records are stored, and the next call is refused."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer()
        task = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0)
        await manager.aclose()
        await task
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"late")
        await producer.aclose()
        with pytest.raises(LogClosedError):
            manager.producer()

    loops.run(main)
    assert [b"v"] == loops.values()


def test_blocking_close_of_the_manager_refuses_calls(loops: Loops) -> None:
    """By another thread, which does not know of the loop."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer()
        await producer.send("t", b"v")
        await asyncio.to_thread(manager.manager.close)
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"late")
        unopened = AsyncProducer(
            manager.manager.producer, producer.config, *_calls(), writes_at_once=True
        )
        with pytest.raises(LogClosedError):
            await unopened.send("t", b"late")
        await producer.aclose()
        await unopened.aclose()

    loops.run(main)
    assert [b"v"] == loops.values()


def _calls() -> list[Any]:
    from kafkalog.aio.calls import BlockingCalls

    return [BlockingCalls(1, "a test")]


def test_closed_loop_the_next_loop_continues(tmp_path: Path) -> None:
    """The first loop is closed with records in flight; no byte of them is held by the second."""
    with LogManager([tmp_path]) as blocking:
        blocking.create_topic("t")
        manager = aio.AsyncLogManager(blocking)
        producer = manager.producer(wait="durable", buffer_memory=4096, batch_size=500)
        loop = asyncio.new_event_loop()
        task = loop.create_task(producer.send_many("t", None, [b"1"] * 10))
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
        loop.close()
        assert task is not None

        async def main() -> None:
            await producer.send("t", b"2")
            assert producer.pending_bytes == 0
            await producer.aclose()

        asyncio.run(main())
        values = [record.value for record in blocking.log("t").records()]
        assert b"2" == values[-1]
        del task
        gc.collect()


def test_closed_loop_aclose_by_another_loop_ends(tmp_path: Path, disk: HeldDisk) -> None:
    """While the disk holds the records of the first."""
    with LogManager([tmp_path], filesystem=disk.filesystem) as blocking:
        blocking.create_topic("t")
        manager = aio.AsyncLogManager(blocking)
        producer = manager.producer(wait="durable")

        async def send(held: Any) -> None:
            task = asyncio.create_task(producer.send("t", b"v"))
            await begun(held)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        with disk.held() as held:
            asyncio.run(send(held))
            threading.Timer(0.05, held.release).start()
            asyncio.run(producer.aclose())
        assert [b"v"] == [record.value for record in blocking.log("t").records()]


def test_system_without_threads_frees_the_memory(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call raises, and the next one succeeds once a thread starts."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer()
        with monkeypatch.context() as patched:

            def refuse(_thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                await producer.send("t", b"lost")
            assert producer.pending_bytes == 0
        await producer.send("t", b"v")
        assert await producer.flush() == 0

    loops.run(main)
    assert [b"v"] == loops.values()


def test_two_open_loops_are_refused(loops: Loops) -> None:
    """A producer belongs to one loop; aclose may be called by another."""

    async def main(manager: aio.AsyncLogManager) -> None:
        producer = manager.producer()
        await producer.send("t", b"v")

        def other() -> None:
            async def send() -> None:
                with pytest.raises(RuntimeError, match="another event loop"):
                    await producer.send("t", b"w")
                await producer.aclose()

            asyncio.run(send())

        await asyncio.to_thread(other)
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"late")

    loops.run(main)
    assert [b"v"] == loops.values()


def pumps() -> int:
    """Return the number of threads of producers."""
    return sum(each.name == "kafkalog-aio-pump" for each in threading.enumerate())


def test_dropped_producer_ends_its_thread(loops: Loops) -> None:
    """Without `aclose`; its records are stored."""

    async def main(manager: aio.AsyncLogManager) -> None:
        before = pumps()
        producer = manager.producer()
        await producer.send("t", b"v")
        reference = weakref.ref(producer)
        assert pumps() == before + 1
        del producer
        gc.collect()
        assert reference() is None
        await eventually(lambda: pumps() == before)

    loops.run(main)
    assert [b"v"] == loops.values()


def test_dropped_producer_ends_its_thread_after_an_error(loops: Loops) -> None:
    """The frames of the error have the producer; the thread must not keep the error."""

    async def main(manager: aio.AsyncLogManager) -> None:
        before = pumps()
        producer = manager.producer()
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("none", b"v")
        reference = weakref.ref(producer)
        del producer

        def is_dropped() -> bool:
            gc.collect()
            return reference() is None

        await eventually(is_dropped)
        await eventually(lambda: pumps() == before)

    loops.run(main)


def test_producer_that_cannot_be_opened_ends_its_thread() -> None:
    """`async with` does not begin, so no `aclose` follows; also with a reference to it."""

    def fail() -> Producer:
        raise DiskFullError("no space")

    async def main() -> None:
        before = pumps()
        calls = BlockingCalls(1, "a test")
        producer = AsyncProducer(fail, ProducerConfig(), calls, writes_at_once=True)
        with pytest.raises(DiskFullError):
            async with producer:
                pytest.fail("it was opened")
        await eventually(lambda: pumps() == before)
        assert producer.is_closed
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"v")
        await producer.aclose()
        calls.close()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_every_call_is_refused(tmp_path: Path, disk: HeldDisk) -> None:
    """At once, while threads of the parent hold locks; the parent's records are stored."""
    with LogManager([tmp_path], filesystem=disk.filesystem) as blocking:
        blocking.create_topic("t")
        manager = aio.AsyncLogManager(blocking)
        producer = manager.producer(wait="durable")
        consumer = manager.consumer("g")

        async def refused() -> str:
            calls = [
                producer.send("t", b"child"),
                producer.send_many("t", None, [b"child"]),
                producer.flush(),
                consumer.poll(),
                consumer.subscribe("t"),
                manager.topics(),
                manager.create_topic("u"),
                manager.log("t"),
            ]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            await producer.aclose()
            await consumer.aclose()
            await manager.aclose()
            return " ".join(sorted({type(error).__name__ for error in errors}))

        async def main() -> str:
            with disk.held() as held:
                task = asyncio.create_task(producer.send("t", b"v"))
                await begun(held)
                output = await asyncio.to_thread(
                    output_of_child, lambda: asyncio.new_event_loop().run_until_complete(refused())
                )
            await task
            await producer.aclose()
            await consumer.aclose()
            return output

        assert ForkedLogError.__name__ == asyncio.run(main())
        assert [b"v"] == [record.value for record in blocking.log("t").records()]


def test_wrong_settings_are_refused_at_once(loops: Loops) -> None:
    """Before anything is opened."""

    async def main(manager: aio.AsyncLogManager) -> None:
        with pytest.raises(ConfigError):
            manager.producer(batch_size=-1)
        with pytest.raises(ConfigError):
            manager.producer(lingering=1)
        wrong: Any = "soon"
        with pytest.raises(ValueError, match="wait must be"):
            manager.producer(wait=wrong)
        producer = manager.producer()
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("missing", b"v")
        assert (0, 1, 2) == await producer.partitions_for("t")
        assert "open" in repr(producer)

    loops.run(main)
