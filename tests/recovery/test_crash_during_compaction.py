"""Power cuts and failing calls at any moment and in any phase of a cleaning.

No retained record is lost; no record is back after a reader saw it removed; a second opening finds
nothing to do; another cleaning completes the work of the first.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
from collections.abc import Iterable, Iterator

import pytest

from kafkalog import DiskFullError, KafkaLogError, LogStorageError, Record
from kafkalog.files.names import SESSION_NOTE, FileState
from tests.support.compacted_logs import Scene
from tests.support.compaction_rules import Served
from tests.support.crash_rig import PLACES, LogSetup
from tests.support.simulated_disk import (
    MUTATING,
    SYNCING,
    CrashChoice,
    PowerCut,
    SimulatedDisk,
)

# Distance of the tested moments, which differ by test. All of them, with more states of each, take
# minutes: KAFKALOG_COMPACTION_STRIDE=1 KAFKALOG_CRASH_STATES=20.
STRIDE = int(os.environ.get("KAFKALOG_COMPACTION_STRIDE", "13"))
STATES = int(os.environ.get("KAFKALOG_CRASH_STATES", "2"))
UNFINISHED = (FileState.SWAP, FileState.CLEANED)
EVERY_PLACE = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)


def cleaned(place: LogSetup, entries: int) -> Served:
    """Return the records of a log that was cleaned without a crash."""
    scene = Scene.made(place)
    clean_whole(scene, entries)
    scene.release()
    return scene.seen


def clean_whole(scene: Scene, entries: int) -> None:
    """Clean up to the active segment, in as many cleanings as that takes."""
    while scene.first_dirty < scene.end_offset:
        scene.first_dirty = scene.clean(entries=entries).end_offset
        scene.look()


def verify_reopened(scene: Scene, disk: SimulatedDisk, expected: Served) -> None:
    """Reopen the log and check all rules; reopen it without work; clean it to the end."""
    again = scene.reopened(disk)
    try:
        assert not again.log.recovery_report.corrupt_ranges
        assert not [name for name in disk.list(scene.place.directory) if name.endswith(UNFINISHED)]
        scene.verify(again.seen)
        again.log.close()
        before = disk.snapshot()
        third = scene.reopened(disk)
        assert again.seen == third.seen
        assert third.log.recovery_report.clean
        third.log.close()
        after = disk.snapshot()
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        # Each opening after an orderly close writes the session note again.
        assert changed <= {str(scene.place.directory.parent / SESSION_NOTE)}
        last = scene.reopened(disk)
        clean_whole(last, 400)
        assert expected == last.seen
        last.release()
    finally:
        again.release()


def crashes(
    place: LogSetup, entries: int, first: int, stride: int
) -> Iterator[tuple[Scene, SimulatedDisk, str]]:
    """Cut the power at every `stride`-th changing call; yield the crash states."""
    for number in range(first, 3000, stride):
        scene = Scene.made(place)
        scene.disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            clean_whole(scene, entries)
            finished = True
        for choice, disk in scene.disk.crash_states(STATES, seed=number):
            yield scene, disk, f"crash at call {number}, {choice}"
        scene.release()
        if finished:
            assert number > 20
            return
    raise AssertionError("the cleaning does not end")


@pytest.mark.parametrize("entries", [400, 3])
@EVERY_PLACE
def test_compaction_power_cut_at_any_call_keeps_the_rules(place: LogSetup, entries: int) -> None:
    """With a map for all keys, and with a map that needs several passes and cleanings."""
    expected = cleaned(place, 400)
    stride = STRIDE if entries == 400 else 10 * STRIDE - 9
    count = 0
    for scene, disk, moment in crashes(place, entries, 1 + len(place.name) % stride, stride):
        count += 1
        try:
            verify_reopened(scene, disk, expected)
        except BaseException as error:
            unsynced = "\n".join(f"  {number} {what}" for number, what in scene.disk.unsynced())
            error.add_note(f"{moment}\nunsynced at the crash:\n{unsynced}")
            raise
    assert count > 5


# Failing calls.

FAILURES = {
    "any call": (errno.EIO, None, 6 * STRIDE - 5),
    "any change, disk full": (errno.ENOSPC, MUTATING, 2 * STRIDE - 1),
    "any sync": (errno.EIO, SYNCING, STRIDE),
}


def fail(place: LogSetup, number: int, failure: str, expected: Served) -> bool:
    """Let one call of a cleaning fail, and verify the log after it; return whether one failed."""
    error_number, only, _ = FAILURES[failure]
    scene = Scene.made(place)
    scene.disk.fail_at(number, error_number, only=only)
    raised = None
    try:
        clean_whole(scene, 400)
    except LogStorageError as error:
        raised = error
    # Error and frames refer to each other, and the frames to mappings of files.
    gc.collect()
    failed = not scene.disk.faults_waiting
    scene.disk.clear_faults()
    # A cleaning continues after an unimportant failure.
    scene.verify(Served.of(scene.log))
    if raised is not None and scene.log.offline_error is None:
        assert not unfinished(scene)
        scene.log.append([Record(key=b"another", value=b"record")])
        scene.log.truncate_to(scene.before.end_offset)
        clean_whole(scene, 400)
        assert expected == scene.seen
    verify_reopened(scene, scene.disk.crash(CrashChoice("nothing")), expected)
    scene.release()
    verify_reopened(scene, scene.disk, expected)
    return failed


def unfinished(scene: Scene) -> list[str]:
    """Return the unfinished files that a cleaning has left."""
    return [name for name in scene.disk.list(scene.place.directory) if name.endswith(UNFINISHED)]


@pytest.mark.parametrize("failure", FAILURES)
@EVERY_PLACE
def test_compaction_failing_call_keeps_the_rules(place: LogSetup, failure: str) -> None:
    """A log that is not offline accepts records and the next cleaning."""
    expected = cleaned(place, 400)
    stride = FAILURES[failure][2]
    for number in range(1 + len(failure + place.name) % stride, 3000, stride):
        try:
            if not fail(place, number, failure, expected):
                assert number > 10
                return
        except BaseException as error:
            error.add_note(f"call {number} failed")
            raise
    raise AssertionError("the cleaning does not end")


@EVERY_PLACE
def test_compaction_disk_full_stops_only_the_cleaning(place: LogSetup) -> None:
    """No file of it is left, the log stays online, and a cleaning with space succeeds."""
    expected = cleaned(place, 400)
    refused = 0
    for free_sectors in range(0, 60, 9):
        scene = Scene.made(place)
        scene.disk.capacity_bytes = scene.disk.used_bytes + 512 * free_sectors
        try:
            clean_whole(scene, 400)
        except DiskFullError:
            refused += 1
            assert scene.log.offline_error is None
            assert not unfinished(scene)
        scene.verify(Served.of(scene.log))
        scene.disk.capacity_bytes = None
        clean_whole(scene, 400)
        assert expected == scene.seen
        scene.release()
    assert 0 < refused < 7


# Self-test: the crashes must detect a protocol without one of its syncs.


def changes(place: LogSetup) -> list[tuple[str, str]]:
    """Return the changing calls of a cleaning: name, and name of the file."""
    scene = Scene.made(place)
    scene.disk.history = []
    clean_whole(scene, 400)
    calls = scene.disk.history
    scene.release()
    return [(name, path.rpartition("/")[2]) for name, path in calls if name in MUTATING]


def is_caught(place: LogSetup, sync: int, crash_numbers: Iterable[int], states: int) -> bool:
    """Return whether one of the crashes detects a cleaning whose n-th sync does nothing."""
    expected = cleaned(place, 400)
    for number in crash_numbers:
        scene = Scene.made(place)
        scene.disk.forget_sync_at(sync)
        scene.disk.crash_at(number)
        with contextlib.suppress(PowerCut):
            clean_whole(scene, 400)
        for _choice, disk in scene.disk.crash_states(states, seed=number):
            try:
                verify_reopened(scene, disk, expected)
            except (AssertionError, KafkaLogError):
                return True
        scene.release()
    return False


def test_compaction_without_the_sync_of_a_file_is_detected() -> None:
    """The names are on the disk without the bytes of the records."""
    place = PLACES[0]
    calls = changes(place)
    forgotten = next(
        n
        for n, (name, path) in enumerate(calls)
        if name == "sync" and path.endswith(".log.cleaned")
    )
    sync = sum(name in SYNCING for name, _ in calls[: forgotten + 1])
    end = next(
        n
        for n, (name, path) in enumerate(calls)
        if n > forgotten and name == "unlink" and path.endswith(".covered")
    )
    assert is_caught(place, sync, range(end, forgotten + 2, -3), 1)


def test_compaction_without_the_sync_of_names_is_detected() -> None:
    """The sync between the two renames of a new segment: the second may survive alone."""
    place = PLACES[0]
    calls = changes(place)
    renamed = calls.index(("rename", f"{0:020}.log.cleaned"))
    forgotten = calls.index(("sync_directory", place.directory.name), renamed)
    following = calls.index(("sync_directory", place.directory.name), forgotten + 1)
    sync = sum(name in SYNCING for name, _ in calls[: forgotten + 1])
    assert is_caught(place, sync, range(forgotten + 2, following + 2), 30)
