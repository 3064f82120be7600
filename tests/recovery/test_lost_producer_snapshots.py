"""A power cut after the removal of the last producer snapshot, before a new one is written.

In every crash state a batch of the log is a duplicate, and a batch that was lost is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, Log, LogStorageError
from kafkalog.files.names import SYNC_JOURNAL
from tests.support.disk_faults import PowerCut
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producing import Client
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DIRECTORY = Path("/data-of-one/orders-0")
MOST_CALLS = 80


def opened(disk: SimulatedDisk) -> Log:
    """Open the log, of small segments."""
    return manual_log(DIRECTORY, filesystem=disk, segment_bytes=400, index_interval_bytes=100)


def disk_without_snapshots(how: str) -> tuple[SimulatedDisk, bytes]:
    """
    Return a disk with a producer's batch in the first of many segments, and that batch.

    The recovery point is that of the last segment, and no snapshot is whole. `how` is the end of
    the writer: "crash"; "close"; "foreign", a crash of a writer without a sync journal.
    """
    disk, clock = SimulatedDisk(), ManualClock()
    disk.make_durable(DIRECTORY.parent)
    scheduler = ManualScheduler(clock)
    log = manual_log(
        DIRECTORY, filesystem=disk, clock=clock, scheduler=scheduler, segment_bytes=400
    )
    data = Client(7).batch(2)
    log.append_batches(data, origin=AppendOrigin.CLIENT)
    for number in range(8):
        log.append(numbered(number, 1))
    log.flush()
    scheduler.advance(0)
    if how == "close":
        log.close()
    left = disk.crash(CrashChoice("all"))
    names = [name for name in left.list(DIRECTORY) if name.endswith(".snapshot")]
    assert names
    for name in names:
        handle = left.open(DIRECTORY / name, write=True)
        handle.pwrite(b"\xff" * 6, 0)
        handle.sync()
        handle.close()
    if how == "foreign":
        left.unlink(DIRECTORY / SYNC_JOURNAL)
        left.sync_directory(DIRECTORY)
        for name in names:
            left.unlink(DIRECTORY / name)
        left.sync_directory(DIRECTORY)
    return left, data


def cut_short(start: SimulatedDisk, *, limit: int = 1, step: int = 1) -> Iterator[SimulatedDisk]:
    """Yield up to `limit` crash states of each power cut at changing calls of an opening."""
    for number in range(1, MOST_CALLS, step):
        disk = start.crash(CrashChoice("all"))
        disk.crash_at(number)
        try:
            opened(disk)
        except PowerCut:
            for _choice, left in disk.crash_states(limit, seed=number):
                yield left
        else:
            return
    pytest.fail("it makes more calls than were tried")


def assert_known(disk: SimulatedDisk, data: bytes) -> None:
    """Assert that the producer's batch is a duplicate."""
    with opened(disk) as log:
        assert log.append_batches(data, origin=AppendOrigin.CLIENT).is_duplicate


@pytest.mark.parametrize("how", ["crash", "close", "foreign"])
def test_open_power_cut_keeps_producers(how: str) -> None:
    """At each changing call, with some crash states of each."""
    start, data = disk_without_snapshots(how)
    count = 0
    for left in cut_short(start, limit=2):
        assert_known(left, data)
        count += 1
    assert count > 20


@pytest.mark.parametrize("how", ["crash", "foreign"])
def test_open_second_power_cut_keeps_producers(how: str) -> None:
    """The second opening must not undo the first one's notes before it is complete."""
    start, data = disk_without_snapshots(how)
    for first in cut_short(start, step=5):
        for second in cut_short(first, step=6):
            assert_known(second, data)


def test_open_failing_call_after_a_clean_stop_keeps_producers() -> None:
    """The clean shutdown marker is removed before the last snapshot."""
    start, data = disk_without_snapshots("close")
    failures = 0
    for number in range(1, MOST_CALLS):
        disk = start.crash(CrashChoice("all"))
        disk.fail_at(number)
        try:
            log = opened(disk)
        except LogStorageError:
            failures += 1
            disk.clear_faults()
            assert_known(disk, data)
            continue
        had_failed = not disk.faults_waiting
        disk.clear_faults()
        with log:
            assert log.append_batches(data, origin=AppendOrigin.CLIENT).is_duplicate
        if not had_failed:
            break
    assert failures > 3


def test_truncate_power_cut_keeps_producers() -> None:
    """A cut after the removal of the only snapshot, before that of the new end is written."""
    client = Client(7)
    kept, gone = client.batch(2), client.batch(1)

    def written() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY.parent)
        with opened(disk) as log:
            log.append_batches(kept, origin=AppendOrigin.CLIENT)
            for number in range(9):
                log.append(numbered(number, 1))
            log.append_batches(gone, origin=AppendOrigin.CLIENT)
        for name in disk.list(DIRECTORY):
            # As if the first producer had come after the last roll.
            if name.endswith(".snapshot") and int(name[:20]) < 12:
                disk.unlink(DIRECTORY / name)
        disk.sync_directory(DIRECTORY)
        return disk

    start = written()
    for number in range(1, MOST_CALLS):
        disk = start.crash(CrashChoice("all"))
        log = opened(disk)
        disk.crash_at(number)
        try:
            log.truncate_to(9)
        except PowerCut:
            for _choice, left in disk.crash_states(3, seed=number):
                with opened(left) as again:
                    is_there = again.log_end_offset == 12
                    if not is_there:
                        info = again.append_batches(kept, origin=AppendOrigin.CLIENT)
                        assert info.is_duplicate
                    info = again.append_batches(gone, origin=AppendOrigin.CLIENT)
                    assert is_there is info.is_duplicate
        else:
            return
    pytest.fail("the truncation makes more calls than were tried")
