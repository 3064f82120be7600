"""A disk that is full at any step: calls that need space are refused, and the log stays online.

Calls that need no space, or free some, work without a free sector: reads, transaction markers that
fit into an allocated sector, rolls, deletions, retention, openings. Other calls raise
`DiskFullError`, leave the log unchanged, and work as soon as the disk has space.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kafkalog import DiskFullError, Log, LogClosedError, Record, open_log
from tests.support.crash_rig import PLACES, LogSetup
from tests.support.logs import numbered
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producing import Client, committed_offsets, outcome_of
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

SECTOR = 512
FREE_SECTORS = (0, 1, 2, 3, 5)
YEAR_MS = 365 * 86_400_000


@dataclass
class Scene:
    """A log of several segments and its disk; producer 7 is idle, 8 has a transaction open."""

    place: LogSetup
    disk: SimulatedDisk
    log: Log
    scheduler: ManualScheduler
    idle: Client
    busy: Client

    @classmethod
    def made(cls, place: LogSetup) -> Scene:
        """Return a scene on a disk with space."""
        disk = place.new_disk()
        scheduler = ManualScheduler(ManualClock())
        scene = cls(place, disk, opened(place, disk, scheduler), scheduler, Client(7), Client(8))
        log = scene.log
        for number in range(4):
            scene.idle.send(log, 2, transactional=True)
            log.append(numbered(10 * number, 5))
            scene.idle.end(log, "abort" if number % 2 else "commit")
        log.flush()
        scheduler.advance(0)
        scene.busy.send(log, 2, transactional=True)
        log.append(numbered(50, 3))
        return scene

    def fill(self, free_sectors: int) -> None:
        """Leave a number of free sectors."""
        self.disk.capacity_bytes = self.disk.used_bytes + SECTOR * free_sectors

    def records(self) -> list[Record]:
        """Return all records."""
        return list(self.log.records())

    def base(self, slot: int) -> int:
        """Return the base offset of a segment."""
        return self.log.segments()[slot].base_offset

    def verify(self) -> None:
        """Compare the state of producers with the batches, now and after a crash."""
        outcome = outcome_of(self.log)
        assert outcome.committed == committed_offsets(self.log)
        self.log.flush()
        for kind in ("nothing", "all"):
            disk = self.disk.crash(CrashChoice(kind))
            with opened(self.place, disk, ManualScheduler(ManualClock())) as log:
                assert self.log.log_end_offset == log.log_end_offset
                assert self.log.log_start_offset == log.log_start_offset
                assert outcome == outcome_of(log)
                assert outcome.committed == committed_offsets(log)


def opened(
    place: LogSetup, disk: SimulatedDisk, scheduler: ManualScheduler, *, read_only: bool = False
) -> Log:
    """Open the log of a scene."""
    return open_log(
        place.directory,
        config=place.config.replace(
            segment_bytes=330, retention_bytes=700, file_delete_delay_ms=1000
        ),
        clock=scheduler.clock,
        scheduler=scheduler,
        filesystem=disk,
        read_only=read_only,
    )


def roll_and_flush(scene: Scene) -> None:
    """Roll, with the checkpoint of the recovery point after it."""
    scene.log.roll()
    scene.scheduler.advance(0)


def give_up(scene: Scene) -> None:
    """Abort the open transaction, if it is still open."""
    if scene.log.list_transactions():
        scene.log.abort_transaction(8)


# Calls that must work without a free sector.
NEEDS_NO_SPACE: dict[str, Callable[[Scene], object]] = {
    "abort": give_up,
    "roll": roll_and_flush,
    "flush": lambda scene: scene.log.flush(),
    "delete segments": lambda scene: scene.log.delete_records(scene.base(2)),
    "retention by size": lambda scene: scene.log.apply_retention(),
    "retention of all": lambda scene: scene.log.apply_retention(now_ms=START_MS + YEAR_MS),
    "high watermark": lambda scene: scene.log.set_high_watermark(None),
}
# Calls that may be refused, and then have changed nothing.
NEEDS_SPACE: dict[str, Callable[[Scene], object]] = {
    "append": lambda scene: scene.log.append(numbered(900, 60)),
    "durable append": lambda scene: scene.log.append(numbered(900, 9), wait="durable"),
    "first batch of a producer": lambda scene: Client(9).send(scene.log, 9, transactional=True),
    "truncate within a segment": lambda scene: scene.log.truncate_to(scene.base(2) + 1),
    "truncate to a segment": lambda scene: scene.log.truncate_to(scene.base(2)),
    "truncate the first segment": lambda scene: scene.log.truncate_to(1),
    "begin anew above": lambda scene: scene.log.truncate_fully_and_start_at(500),
    "begin anew below": lambda scene: scene.log.truncate_fully_and_start_at(3),
}


def check_with_space(scene: Scene) -> None:
    """With space, every call works at once, without a reopening of the log."""
    scene.disk.capacity_bytes = None
    scene.log.append(numbered(990, 20), wait="durable")
    give_up(scene)
    Client(11).send(scene.log, 2, transactional=True)
    scene.scheduler.advance(2000)
    scene.verify()
    scene.log.close()


@pytest.mark.parametrize("name", NEEDS_NO_SPACE)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_calls_that_need_no_space_work(place: LogSetup, name: str) -> None:
    """With no sector left, or few; the log stays online, and appends work with space."""
    for free_sectors in FREE_SECTORS:
        scene = Scene.made(place)
        scene.fill(free_sectors)
        NEEDS_NO_SPACE[name](scene)
        assert scene.records() == list(scene.log.records(scene.log.log_start_offset))
        check_with_space(scene)


@pytest.mark.parametrize("name", NEEDS_SPACE)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_calls_that_need_space_are_refused_whole(place: LogSetup, name: str) -> None:
    """Refused at least without a free sector; the same call works with space."""
    refusals = []
    for free_sectors in FREE_SECTORS:
        scene = Scene.made(place)
        before = scene.records()
        scene.fill(free_sectors)
        try:
            NEEDS_SPACE[name](scene)
        except DiskFullError as error:
            assert error.retriable
            refusals.append(free_sectors)
            assert before == scene.records()
            scene.disk.capacity_bytes = None
            NEEDS_SPACE[name](scene)
        check_with_space(scene)
    assert FREE_SECTORS[: len(refusals)] == tuple(refusals)
    assert refusals or name == "first batch of a producer"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_retention_frees_space_for_appends(place: LogSetup) -> None:
    """Retention works without a free sector; appends work after the delayed deletion."""
    scene = Scene.made(place)
    scene.fill(0)
    with pytest.raises(DiskFullError):
        scene.log.append(numbered(900, 12))
    assert scene.log.apply_retention()
    with pytest.raises(DiskFullError):
        scene.log.append(numbered(900, 12))
    scene.scheduler.advance(1000)
    scene.log.append(numbered(900, 12))
    scene.disk.capacity_bytes = None
    scene.verify()
    scene.log.close()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_delete_records_inside_a_segment_deletes_whole_segments(place: LogSetup) -> None:
    """The log start cannot be written: segments below it are deleted, and the call raises."""
    scene = Scene.made(place)
    scene.fill(0)
    base = scene.base(2)
    with pytest.raises(DiskFullError):
        scene.log.delete_records(base + 1)
    assert (base, base) == (scene.log.log_start_offset, scene.base(0))
    with pytest.raises(DiskFullError):
        scene.log.delete_records(base + 1)
    scene.scheduler.advance(1000)
    assert base + 1 == scene.log.delete_records(base + 1)
    check_with_space(scene)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_delete_records_power_cut_leaves_no_hole(place: LogSetup) -> None:
    """Without a checkpoint of the start, segments are deleted one by one, oldest first."""
    starts = set()
    for number in range(1, 200):
        scene = Scene.made(place)
        give_up(scene)
        scene.log.flush()
        before = scene.records()
        scene.fill(0)
        scene.disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            scene.log.delete_records(scene.base(3))
            finished = True
        for _choice, disk in scene.disk.crash_states(3, seed=number):
            disk.capacity_bytes = None
            with opened(place, disk, ManualScheduler(ManualClock())) as log:
                start = log.log_start_offset
                starts.add(start)
                assert () == log.corrupt_ranges()
                assert [each for each in before if each.offset >= start] == list(log.records())
                assert outcome_of(log).committed == committed_offsets(log)
        if finished:
            break
    assert len(starts) == 4


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("kind", ["closed", "killed", "crashed"])
def test_disk_full_open_log_keeps_records_and_producers(place: LogSetup, kind: str) -> None:
    """Files that only save time are not written; producer state is complete without them."""
    for free_sectors in FREE_SECTORS:
        scene = Scene.made(place)
        data = scene.idle.batch()
        first = scene.log.append_batches(data)
        scene.log.flush()
        before = scene.records()
        if kind == "closed":
            scene.log.close()
            disk = scene.disk
        else:
            disk = scene.disk.killed() if kind == "killed" else scene.disk.crash(CrashChoice("all"))
        scene.disk, scene.scheduler = disk, ManualScheduler(ManualClock())
        scene.fill(free_sectors)
        with opened(place, disk, scene.scheduler, read_only=True) as reader:
            assert before == list(reader.records())
        scene.log = opened(place, disk, scene.scheduler)
        assert before == scene.records()
        again = scene.log.append_batches(data)
        assert (first.first_offset, True) == (again.first_offset, again.is_duplicate)
        scene.log.delete_records(scene.base(1))
        check_with_space(scene)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_first_append_needs_space_for_its_leader_epoch(place: LogSetup) -> None:
    """In a new log, and after a truncation; with space the same epoch is written."""
    disk = place.new_disk()
    with opened(place, disk, ManualScheduler(ManualClock())) as log:
        for epoch in range(3):
            start = log.log_end_offset
            disk.capacity_bytes = disk.used_bytes
            with pytest.raises(DiskFullError, match="epoch"):
                log.append(numbered(0, 2))
            assert (start, epoch) == (log.log_end_offset, log.leader_epoch)
            disk.capacity_bytes = None
            log.append(numbered(0, 2))
            assert [epoch] == [b.header.partition_leader_epoch for b in log.batches(start)]
            log.truncate_to(start + 1)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_close_raises_and_loses_nothing(place: LogSetup) -> None:
    """The next opening recovers the state that close could not write."""
    scene = Scene.made(place)
    scene.log.flush()
    before, outcome = scene.records(), outcome_of(scene.log)
    scene.fill(0)
    with pytest.raises(DiskFullError):
        scene.log.close()
    with pytest.raises(LogClosedError):
        scene.log.append(numbered(0, 1))
    scene.disk.capacity_bytes = None
    with opened(place, scene.disk, scene.scheduler) as log:
        assert not log.recovery_report.clean
        assert before == list(log.records())
        assert outcome == outcome_of(log)


def abort_all(scene: Scene) -> None:
    """Abort the transactions whose marker a truncation has removed."""
    for transaction in scene.log.list_transactions():
        scene.log.abort_transaction(transaction.producer_id)


TRUNCATIONS: dict[str, Callable[[Scene], object]] = {
    name: NEEDS_SPACE[name]
    for name in ("truncate within a segment", "truncate the first segment", "begin anew above")
}
TRUNCATIONS["truncate within a batch"] = lambda scene: scene.log.truncate_to(scene.base(2) + 3)
# Calls that use space. A hole uses none; a rename without space marks the log offline.
USES_SPACE = frozenset({"create", "pwrite", "pwritev"})


@pytest.mark.parametrize("name", TRUNCATIONS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_disk_full_at_any_call_of_a_truncation_keeps_the_log_online(
    place: LogSetup, name: str
) -> None:
    """DUR-5: calls that need space precede the first change; the same truncation works later."""
    truncate = TRUNCATIONS[name]
    for number in range(1, 200):
        scene = Scene.made(place)
        before, end_offset = scene.records(), scene.log.log_end_offset
        scene.disk.fail_at(number, errno.ENOSPC, only=USES_SPACE)
        try:
            truncate(scene)
        except DiskFullError:
            assert before == scene.records()
            assert end_offset == scene.log.log_end_offset
            assert not [path for path in scene.disk.snapshot() if path.endswith(".log.tmp")]
            truncate(scene)
        else:
            # Index files that could not be written are kept in memory.
            if scene.disk.faults_waiting:
                scene.disk.clear_faults()
                abort_all(scene)
                check_with_space(scene)
                break
        abort_all(scene)
        check_with_space(scene)
    else:
        raise AssertionError("a truncation has no end of calls")
