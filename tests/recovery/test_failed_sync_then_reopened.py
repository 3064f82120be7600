"""Tests of logs with a failed sync, opened again on the same running machine.

The page cache has everything, the disk lacks the bytes of the failed sync, and the next sync
succeeds without writing them. Records that the new log calls durable must still be on the disk.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog.errors import DiskFullError, LogStorageError
from tests.support.crash_rig import ALONE, PLACES, LogSetup, Rig, small_config, verify_reopening
from tests.support.model import observe
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

SYNC = frozenset({"sync"})
BIG = LogSetup("big", Path("/big/orders-0"), small_config(segment_bytes=8192, batch_bytes=3000))


def fail_a_sync(rig: Rig, number: int = 1) -> None:
    """Let the sync of the n-th segment of a flush fail, and release the log."""
    rig.disk.fail_at(number, errno.EIO, only=SYNC, suffix=".log")
    with pytest.raises(LogStorageError):
        rig.flush()
    rig.release()


def verify_all_on_disk(place: LogSetup, disk: SimulatedDisk, count: int) -> None:
    """Check that every crash state has `count` records."""
    for _choice, state in disk.crash_states(12, seed=count):
        rig = Rig(place, state)
        assert count == len(observe(rig.open()).records)
        rig.release()


@pytest.mark.parametrize("place", [*PLACES, BIG], ids=lambda place: place.name)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_reopen_after_a_failed_sync_makes_all_records_durable(place: LogSetup, count: int) -> None:
    """In one segment and in many: all records are durable, and a power cut loses none."""
    rig = Rig(place)
    rig.open()
    rig.append(2, durable=True)
    rig.append(count, 90)
    fail_a_sync(rig)
    again = Rig(place, rig.disk)
    log = again.open()
    assert count + 2 == log.log_end_offset == log.durable_offset == log.durable_offset
    verify_all_on_disk(place, rig.disk, count + 2)
    again.release()


@pytest.mark.parametrize("number", range(1, 8))
def test_reopen_after_a_failed_sync_of_any_segment_recovers(number: int) -> None:
    """Segments before it are on the disk; it is not, and later segments were not synced."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(30, 90)
    assert 8 <= len(rig.log.segments())
    fail_a_sync(rig, number)
    rig.model.doubts.clear()
    verify_reopening(ALONE, rig.disk, rig.model)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_reopen_failing_sync_raises_and_the_next_opening_recovers(
    place: LogSetup,
) -> None:
    """The next opening does not rely on the results of a failed opening.

    The first failure may be old and not reported, so the file is written again, and
    after a second failure copied to new blocks.
    """
    rig = Rig(place)
    rig.open()
    rig.append(5, 90)
    fail_a_sync(rig)
    again = Rig(place, rig.disk)
    for number in (1, 2):
        rig.disk.fail_at(number, errno.EIO, only=SYNC, suffix=".log")
    rig.disk.fail_at(1, errno.EIO, only=SYNC, suffix=".log.tmp")
    with pytest.raises(LogStorageError):
        again.open()
    assert not [name for name in rig.disk.list(place.directory) if name.endswith(".tmp")]
    assert 5 == again.open().durable_offset
    verify_all_on_disk(place, rig.disk, 5)
    again.release()


def failed_on_a_full_disk(*, keeps_unwritten: bool) -> Rig:
    """Return a log of 60 records whose sync failed, on a disk without space for a copy."""
    rig = Rig(BIG)
    rig.disk.keeps_unwritten = keeps_unwritten
    rig.open()
    rig.append(60, 90)
    size = rig.log.segments()[-1].size_bytes
    fail_a_sync(rig)
    held = [content for content in rig.disk.snapshot().values() if content is not None]
    free = 4096
    rig.disk.capacity_bytes = 512 * sum(-(-len(content) // 512) for content in held) + free
    assert free < size
    return rig


def test_reopen_disk_full_rewrites_blocks_in_place() -> None:
    """A full disk is enough if blocks can be written again in place."""
    rig = failed_on_a_full_disk(keeps_unwritten=False)
    again = Rig(BIG, rig.disk)
    assert 60 == again.open().durable_offset
    verify_all_on_disk(BIG, rig.disk, 60)
    again.release()


def test_reopen_disk_full_for_new_blocks_raises_and_loses_nothing() -> None:
    """DUR-2: a typed error at each attempt; readers see all; with space all is durable."""
    rig = failed_on_a_full_disk(keeps_unwritten=True)
    names = rig.disk.list(BIG.directory)
    for _ in range(3):
        with pytest.raises(DiskFullError):
            Rig(BIG, rig.disk).open()
        assert names == rig.disk.list(BIG.directory)
        with Rig(BIG, rig.disk).open(read_only=True) as reader:
            assert 60 == len(observe(reader).records)
    rig.disk.capacity_bytes = None
    again = Rig(BIG, rig.disk)
    assert 60 == again.open().durable_offset
    verify_all_on_disk(BIG, rig.disk, 60)
    again.release()


def test_reopen_rewrites_only_bytes_above_the_recovery_point() -> None:
    """Bytes from before an orderly close were on the disk and are not rewritten."""
    rig = Rig(BIG)
    rig.open()
    rig.append(20, 90)
    rig.close()
    size = rig.open().segments()[-1].size_bytes
    rig.append(3, 90)
    grown = rig.log.segments()[-1].size_bytes
    fail_a_sync(rig)
    report = Rig(BIG, rig.disk).open().recovery_report
    assert grown - size == report.rewritten_bytes
    assert grown == report.scanned_bytes


def facts_of(disk: SimulatedDisk, path: Path) -> tuple[int, int]:
    """Return size and time of last modification of a file."""
    facts = disk.stat(path)
    assert facts is not None
    return facts.size_bytes, facts.modified_ms


def test_reopen_rewrite_keeps_the_modification_time() -> None:
    """Retention uses the time of the file if records have no timestamp."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(30, 90)
    paths = [segment.path for segment in rig.log.segments()]
    fail_a_sync(rig)
    before = [facts_of(rig.disk, path) for path in paths]
    again = Rig(ALONE, rig.disk)
    assert 0 < again.open().recovery_report.rewritten_bytes
    assert before == [facts_of(rig.disk, path) for path in paths]
    again.release()


def test_reopen_clean_or_read_only_rewrites_nothing() -> None:
    """A clean log is trusted, and a reader changes nothing."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(5)
    rig.close()
    assert 0 == rig.open().recovery_report.rewritten_bytes
    rig.append(5)
    before = rig.disk.fingerprint()
    with Rig(ALONE, rig.disk).open(read_only=True) as reader:
        assert not reader.recovery_report.clean
        assert 0 == reader.recovery_report.rewritten_bytes
        assert 5 == reader.durable_offset
    assert before == rig.disk.fingerprint()
    rig.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_reopen_syncs_a_directory_name_that_was_not_synced(place: LogSetup) -> None:
    """The first opening failed between making the directory and syncing its parent."""
    rig = Rig(place)
    rig.disk.fail_at(2, errno.EIO, only=frozenset({"sync_directory"}))
    with pytest.raises(LogStorageError):
        rig.open()
    assert rig.disk.stat(place.directory) is not None
    rig.open()
    rig.append(3, durable=True)
    assert rig.disk.crash(CrashChoice("nothing")).stat(place.directory) is not None
    verify_all_on_disk(place, rig.disk, 3)
    rig.release()
