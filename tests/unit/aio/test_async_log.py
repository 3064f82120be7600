"""Tests of `AsyncLog` and `open_log`: appends, shared syncs, reads, cancellation, shutdown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from kafkalog import Record, aio
from kafkalog.errors import (
    CorruptRecordError,
    DiskFullError,
    LogClosedError,
    LogLockedError,
    LogStorageError,
    NotALogError,
    OffsetOutOfRangeError,
)
from kafkalog.testing import ManagerFactory
from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops


def test_open_log_appends_reads_and_closes(tmp_path: Path) -> None:
    """Each form of an append, and of a read."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0") as log:
            first = await log.append([Record(key=b"k", value=b"0")], wait="durable")
            await log.append_lists([b"k"], [b"1"], timestamps=5)
            await log.append_columns(None, pa.array([b"2"]), wait="durable")
            fetched = await log.read(first.first_offset, 1)
            await log.append_batches(bytes(fetched.data))
            assert (0, 4) == (await log.offsets())[:2]
            assert await log.flush() >= 4
            record = await log.get(1)
            assert record is not None
            assert record.timestamp_ms == 5
            assert [b"2", b"0"] == [each and each.value for each in await log.get_many([2, 0])]
            found = await log.offset_for_timestamp(5)
            assert found is not None
            assert b"1" in [each.value async for each in log.records(1)]
            assert [b"1"] == [each.value async for each in log.records(1, 2)]
            assert ("t", 0) == log.topic_partition
            with pytest.raises(OffsetOutOfRangeError):
                await log.get(99)
        with pytest.raises(LogClosedError):
            await log.append([Record(value=b"late")])
        await log.aclose()

    asyncio.run(main())
    with kafkalog.open_log(tmp_path / "t-0", read_only=True) as log:
        assert log.log_end_offset == 4


def test_open_log_awaited_and_refused(tmp_path: Path) -> None:
    """`await` opens as well; a second writer and a missing log are errors."""

    async def main() -> None:
        log = await aio.open_log(tmp_path / "t-0")
        with pytest.raises(LogLockedError):
            await aio.open_log(tmp_path / "t-0")
        with pytest.raises(NotALogError):
            async with aio.open_log(tmp_path / "missing-0", create=False):
                pass
        await log.aclose()
        async with aio.open_log(tmp_path / "t-0", read_only=True) as reader:
            assert (await reader.offsets()).log_end_offset == 0

    asyncio.run(main())


def test_open_log_cancelled_during_the_opening_is_closed(tmp_path: Path, disk: HeldDisk) -> None:
    """The directory is free again for the next opening."""
    path = tmp_path / "t-0"

    async def main() -> None:
        with disk.held("create") as held:
            task = asyncio.create_task(_open(path, disk))
            await asyncio.to_thread(held.wait_for_first)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            held.release()
        for _ in range(1000):
            try:
                log = await aio.open_log(path)
            except LogLockedError:
                await asyncio.sleep(0.01)
                continue
            await log.append([Record(value=b"v")])
            await log.aclose()
            return
        pytest.fail("the log stays locked")

    asyncio.run(main())


async def _open(path: Path, disk: HeldDisk) -> aio.AsyncLog:
    return await aio.open_log(path, filesystem=disk.filesystem)


def test_durable_appends_share_syncs(tmp_path: Path, disk: HeldDisk) -> None:
    """100 appends while the first sync is held are covered by two syncs at most."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0", filesystem=disk.filesystem) as log:
            with disk.held() as held:
                appends = [
                    asyncio.create_task(log.append([Record(value=b"%d" % each)], wait="durable"))
                    for each in range(100)
                ]
                await asyncio.to_thread(held.wait_for_first)
                offsets = await log.offsets()
                assert offsets.durable_offset == 0
            infos = await asyncio.gather(*appends)
            assert list(range(100)) == [info.first_offset for info in infos]
            assert (await log.offsets()).durable_offset == 100
            assert [b"%d" % each for each in range(100)] == [
                each.value async for each in log.records()
            ]

    asyncio.run(main())


def test_failed_sync_is_raised_by_all_that_wait(tmp_path: Path, disk: HeldDisk) -> None:
    """Each with a separate error; the log is offline."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0", filesystem=disk.filesystem) as log:
            disk.fail_next_sync()
            appends = [log.append([Record(value=b"v")], wait="durable") for _ in range(5)]
            errors = await asyncio.gather(*appends, return_exceptions=True)
            assert all(isinstance(error, LogStorageError) for error in errors)
            assert len(set(map(id, errors))) == 5

    asyncio.run(main())


def test_full_disk_is_raised_and_the_log_continues(tmp_path: Path, disk: HeldDisk) -> None:
    """DiskFullError at once."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0", filesystem=disk.filesystem) as log:
            await log.append([Record(value=b"1")])
            with disk.full(), pytest.raises(DiskFullError):
                await log.append([Record(value=b"lost")], wait="durable")
            await log.append([Record(value=b"2")], wait="durable")
            assert [b"1", b"2"] == [each.value async for each in log.records()]

    asyncio.run(main())


def test_cancelled_append_is_whole_or_absent(tmp_path: Path) -> None:
    """Appends of two records are cancelled at any step; the note states which happened."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0") as log:
            expected = 0
            for number in range(300):
                task = asyncio.create_task(log.append([Record(value=b"v")] * 2))
                await asyncio.sleep(0 if number % 2 else 0.0001 * (number % 7))
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError as error:
                    expected += 0 if "had not begun" in error.__notes__[0] else 2
                else:
                    expected += 2
            # After all others.
            last = await log.append([Record(value=b"last")])
            assert expected == last.first_offset

    asyncio.run(main())


def test_cancelled_durable_append_leaves_the_flush_to_others(
    tmp_path: Path, disk: HeldDisk
) -> None:
    """The task that began the sync is cancelled; the other one gets its result."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "t-0", filesystem=disk.filesystem) as log:
            with disk.held() as held:
                one, other = (
                    asyncio.create_task(log.append([Record(value=b"v")], wait="durable"))
                    for _ in range(2)
                )
                await asyncio.to_thread(held.wait_for_first)
                one.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await one
            assert (await other).last_offset == 1
            assert (await log.offsets()).durable_offset == 2

    asyncio.run(main())


def test_records_of_damage_come_before_the_error(tmp_path: Path) -> None:
    """As from the blocking log; with on_corrupt="skip" those after it come, too."""
    with ManagerFactory(tmp_path) as managers:
        blocking = managers.open()
        blocking.create_topic("t")
        for number in range(3):
            blocking.log("t").append([Record(value=b"%d" % number)])
        managers.faults.damage("t", 0, 1)

        async def main() -> None:
            manager = aio.AsyncLogManager(blocking)
            log = await manager.log("t")
            records = log.records()
            assert (await anext(records)).value == b"0"
            with pytest.raises(CorruptRecordError):
                await anext(records)
            skipped = [each.value async for each in log.records(on_corrupt="skip")]
            assert [b"0", b"2"] == skipped

        asyncio.run(main())


def test_records_of_a_long_log_are_read_in_parts(loops: Loops) -> None:
    """2,500 records, and a break in the middle."""

    async def main(manager: aio.AsyncLogManager) -> None:
        log = await manager.log("t", 0)
        values = [b"%d" % each for each in range(2500)]
        await log.append_lists(None, values)
        assert values == [each.value async for each in log.records()]
        async for record in log.records(100):
            assert record.offset == 100
            break
        await log.aclose()
        assert await log.flush() == 2500

    loops.run(main)


def test_log_used_by_two_loops(tmp_path: Path) -> None:
    """One after the other, and side by side."""
    with kafkalog.LogManager([tmp_path]) as blocking:
        blocking.create_topic("t")

        async def main(manager: aio.AsyncLogManager, log: aio.AsyncLog | None) -> aio.AsyncLog:
            log = await manager.log("t") if log is None else log
            await asyncio.gather(
                *(log.append([Record(value=b"v")], wait="durable") for _ in range(20)),
                asyncio.to_thread(
                    lambda: asyncio.run(log.append([Record(value=b"w")], wait="durable"))
                ),
            )
            return log

        manager = aio.AsyncLogManager(blocking)
        log = asyncio.run(main(manager, None))
        asyncio.run(main(manager, log))
        assert blocking.log("t").log_end_offset == blocking.log("t").durable_offset == 42


def test_wrong_wait_is_refused(loops: Loops) -> None:
    """Before anything is appended."""

    async def main(manager: aio.AsyncLogManager) -> None:
        log = await manager.log("t", 0)
        wrong: Any = "soon"
        with pytest.raises(ValueError, match="wait must be"):
            await log.append([Record(value=b"v")], wait=wrong)
        assert (await log.offsets()).log_end_offset == 0

    loops.run(main)
