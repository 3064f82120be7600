"""A process is killed, and the log is opened again on the same running machine.

The page cache is what it was; the sync journal says what a sync may have been told of. Whatever the
log serves afterwards is on the disk, and no more is written again for it than is in doubt.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog._core.crc32c import value
from kafkalog.errors import LogStorageError
from kafkalog.files.names import SYNC_JOURNAL, FileKind, try_parse_segment_file
from kafkalog.log.checkpoint_store import FileCheckpointStore, make_sync_journal
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.state import sync_journal
from tests.support.crash_rig import ALONE, INSIDE, PLACES, Place, Rig
from tests.support.model import observe
from tests.support.simulated_disk import MUTATING, CrashChoice, PowerCut, SimulatedDisk

SYNC = frozenset({"sync"})
Steps = list[Callable[[Rig], None]]


def steps() -> Steps:
    """Return what a writer does: syncs of both kinds, rolls, truncations."""
    return [
        lambda rig: rig.append(3),
        lambda rig: rig.append(2, durable=True),
        lambda rig: rig.append(4, 60),
        lambda rig: rig.flush(),
        lambda rig: rig.append(12, 90),
        lambda rig: rig.work(),
        lambda rig: rig.append(2, durable=True),
        lambda rig: rig.truncate_to(rig.model.end_offset - 9),
        lambda rig: rig.append(7),
        lambda rig: rig.append(1, durable=True),
        lambda rig: rig.append(5, 90),
    ]


def note_of(place: Place) -> Path:
    """Return the path of a place's sync journal."""
    return place.directory / SYNC_JOURNAL


def logs_of(place: Place, disk: SimulatedDisk) -> list[Path]:
    """Return the segments on a disk."""
    parsed = [(name, try_parse_segment_file(name)) for name in disk.list(place.directory)]
    return [
        place.directory / name
        for name, parts in parsed
        if parts is not None and parts[1:3] == (FileKind.LOG, "")
    ]


def work_until_killed(rig: Rig, prepare: Callable[[SimulatedDisk], None]) -> bool:
    """Do all steps; say whether the process lived. The note reaches the disk as it goes."""
    rig.open()
    rig.append(1, durable=True)
    prepare(rig.disk)
    try:
        for step in steps():
            with contextlib.suppress(OSError):
                rig.disk.write_back(note_of(rig.place))
            step(rig)
    except PowerCut:
        return False
    return True


def lose_note(place: Place, disk: SimulatedDisk) -> None:
    """Let the disk refuse the note's last state, and the cache forget it."""
    with contextlib.suppress(OSError):
        disk.fail_write_back(note_of(place))
        disk.evict(note_of(place))


def verify_next_process(rig: Rig, *, lose: bool) -> Rig:
    """Open the log in the next process: what it serves is legal, and a power cut takes none."""
    disk = rig.disk.killed()
    if lose:
        lose_note(rig.place, disk)
    again = Rig(rig.place, disk, rig.model.copy())
    log = again.open()
    seen = observe(log)
    again.model.verify(seen)
    assert seen.end_offset == log.durable_offset == log.log_end_offset
    verify_on_disk(rig.place, disk, again)
    return again


def verify_on_disk(place: Place, disk: SimulatedDisk, again: Rig) -> None:
    """Whatever a power cut takes now, all that the open log serves is there."""
    served = observe(again.log)
    for choice in (CrashChoice("nothing"), CrashChoice("contents"), CrashChoice("random", seed=3)):
        after = Rig(place, disk.crash(choice))
        assert served.records == observe(after.open()).records
        after.let_go()


@pytest.fixture(params=[False, True], ids=["small syncs", "large syncs"])
def _size_of_syncs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every sync for a small one, or many for large ones."""
    if request.param:
        monkeypatch.setattr(sync_journal, "LARGE_SYNC_BYTES", 300)


@pytest.mark.usefixtures("_size_of_syncs")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("lose", [False, True], ids=["note kept", "note lost"])
def test_killed_while_any_sync_failed_nothing_that_is_served_is_missing(
    place: Place, lose: bool
) -> None:
    """The error was told to a process that told nobody; a later sync would say "ok"."""
    for number in range(1, 100):
        rig = Rig(place)
        killed = not work_until_killed(
            rig,
            lambda disk, number=number: disk.fail_at(  # type: ignore[misc]
                number, errno.EIO, only=SYNC, kills=True, suffix=".log"
            ),
        )
        if not killed:
            assert number > 10
            rig.let_go()
            return
        verify_next_process(rig, lose=lose).let_go()
    raise AssertionError("the work has no end")


@pytest.mark.usefixtures("_size_of_syncs")
@pytest.mark.parametrize("number", range(1, 60, 2))
def test_killed_anywhere_after_write_backs_that_failed_nothing_is_missing(number: int) -> None:
    """Nobody was told: the first sync of the next opening tells, or the note has said it."""
    place = PLACES[number // 2 % 2]
    rig = Rig(place)
    work_until_killed(rig, lambda disk: disk.crash_at(number, only=MUTATING))
    rig.disk.clear_faults()
    for path in logs_of(place, rig.disk.killed()):
        rig.disk.fail_write_back(path)
    verify_next_process(rig, lose=bool(number % 4 == 1)).let_go()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("number", range(1, 14))
def test_killed_while_opening_after_a_write_back_failed_nothing_is_missing(
    place: Place, number: int
) -> None:
    """The opening was told of the error; the next one is told nothing, and knows from the note."""
    rig = Rig(place)
    rig.open()
    rig.append(2, durable=True)
    rig.close()
    rig.open()
    rig.append(9, 90)
    disk = rig.disk.killed()
    for path in logs_of(place, disk):
        disk.fail_write_back(path)
    opening = Rig(place, disk, rig.model.copy())
    disk.crash_at(number, only=MUTATING)
    with contextlib.suppress(PowerCut):
        opening.open()
    verify_next_process(opening, lose=False).let_go()


@pytest.mark.parametrize("lose", [False, True], ids=["note kept", "note lost"])
def test_note_that_cannot_be_synced_is_given_up_and_all_is_in_doubt(lose: bool) -> None:
    """It would say that no sync was tried; without one, more is written again."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    rig.disk.write_back(note_of(ALONE))
    rig.disk.fail_at(1, errno.EIO, only=SYNC, suffix=SYNC_JOURNAL)
    rig.disk.fail_at(1, errno.EIO, only=SYNC, kills=True, suffix=".log")
    with pytest.raises(PowerCut):
        rig.flush()
    again = verify_next_process(rig, lose=lose)
    report = again.log.recovery_report
    # In place, and then in new blocks: the write-back that failed was the first of these.
    assert report.rewritten_bytes == 2 * report.scanned_bytes
    again.let_go()


def test_append_that_could_not_be_undone_leaves_what_was_there_in_doubt() -> None:
    """The sync of the cut is one of all bytes before it, too."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    rig.disk.fail_at(
        1, errno.ENOSPC, only=frozenset({"pwrite"}), short_write_bytes=20, suffix=".log"
    )
    rig.disk.fail_at(1, errno.EIO, only=SYNC, kills=True, suffix=".log")
    with pytest.raises(PowerCut):
        rig.append(1)
    verify_next_process(rig, lose=False).let_go()


def test_note_that_can_neither_be_synced_nor_removed_lets_nothing_be_synced() -> None:
    """A sync that fails could not be told to the next process."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    syncs = rig.disk.calls["sync"]
    rig.disk.fail_at(1, errno.EIO, only=SYNC, suffix=SYNC_JOURNAL)
    rig.disk.fail_at(1, errno.EROFS, only=frozenset({"unlink"}), suffix=SYNC_JOURNAL)
    with pytest.raises(LogStorageError):
        rig.flush()
    assert syncs + 1 == rig.disk.calls["sync"]
    assert rig.is_offline
    rig.let_go()


# What is written again, and what is not.


def killed_after_appends(place: Place, *, durable: bool = False) -> tuple[Rig, int]:
    """Return a rig with 9 records that nobody synced, and where their bytes begin."""
    rig = Rig(place)
    rig.open()
    if durable:
        rig.append(2, durable=True)
    position = rig.log.segments()[-1].size_bytes
    rig.append(3)
    return rig, position


def reopened(rig: Rig, disk: SimulatedDisk) -> tuple[int, int]:
    """Open the log; return how many bytes it wrote again, and how many it scanned."""
    again = Rig(rig.place, disk)
    report = again.open().recovery_report
    assert not report.clean
    assert 0 < report.scanned_bytes
    assert again.log.log_end_offset == again.log.durable_offset == rig.model.end_offset
    verify_on_disk(rig.place, disk, again)
    again.let_go()
    return report.rewritten_bytes, report.scanned_bytes


def test_kill_without_any_sync_before_writes_nothing_again() -> None:
    """The page cache is clean, or its errors are told: one sync a file."""
    rig, _position = killed_after_appends(ALONE)
    disk = rig.disk.killed()
    disk.history = []
    again = Rig(ALONE, disk)
    report = again.open().recovery_report
    assert (0, 1) == (report.rewritten_bytes, report.scanned_segments)
    synced = [Path(path) for call, path in disk.history if call == "sync"]
    assert [note_of(ALONE), *logs_of(ALONE, disk)] == synced[:2]
    assert 1 == sum(path.suffix == ".log" for path in synced)
    verify_on_disk(ALONE, disk, again)
    again.let_go()


def test_kill_after_a_durable_append_writes_again_what_came_after_it() -> None:
    """Small syncs leave the note at "trying"; what the last one covered is not in doubt."""
    rig, position = killed_after_appends(ALONE, durable=True)
    written, scanned = reopened(rig, rig.disk.killed())
    assert 0 < position < scanned
    assert scanned - position == written


def test_kill_after_a_large_sync_writes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note says that no sync was tried since."""
    monkeypatch.setattr(sync_journal, "LARGE_SYNC_BYTES", 100)
    rig, position = killed_after_appends(ALONE, durable=True)
    assert position > 100
    written, _scanned = reopened(rig, rig.disk.killed())
    assert 0 == written


@pytest.mark.parametrize("durable", [False, True])
def test_power_cut_writes_again_no_more_than_a_kill_would(durable: bool) -> None:
    """After a restart, too, the note errs on the safe side only."""
    rig, position = killed_after_appends(ALONE, durable=durable)
    rig.disk.write_back(note_of(ALONE))
    rig.disk.sync_directory(ALONE.directory)
    written, scanned = reopened(rig, rig.disk.crash(CrashChoice("all")))
    assert (scanned - position if durable else 0) == written


def test_write_back_that_failed_unseen_is_found_by_the_sync_and_written_again() -> None:
    """Nobody was told before; then all above the recovery point is written."""
    rig, _position = killed_after_appends(ALONE)
    disk = rig.disk.killed()
    for path in logs_of(ALONE, disk):
        disk.fail_write_back(path)
    written, scanned = reopened(rig, disk)
    assert 2 * scanned == written


def test_system_that_forgets_errors_has_all_written_again() -> None:
    """Where a sync says nothing of earlier failures, none is believed."""
    rig = Rig(ALONE)
    rig.disk.keeps_unwritten = False
    rig.open()
    rig.append(3)
    disk = rig.disk.killed()
    disk.errors_are_kept = False
    for path in logs_of(ALONE, disk):
        disk.fail_write_back(path)
    written, scanned = reopened(rig, disk)
    assert scanned == written


def spoil_nothing(place: Place, disk: SimulatedDisk) -> None:
    """Remove the note."""
    disk.unlink(note_of(place))


def spoil_version(place: Place, disk: SimulatedDisk) -> None:
    """Make it one of a later version, whole in itself."""
    handle = disk.open(note_of(place), write=True)
    data = bytearray(handle.pread(32, 0))
    data[8] = 2
    data[28:] = value(bytes(data[:28])).to_bytes(4, "big")
    handle.pwrite(data, 0)


def spoil_a_byte(place: Place, disk: SimulatedDisk) -> None:
    """Let one bit of its offset flip."""
    handle = disk.open(note_of(place), write=True)
    byte = handle.pread(1, 27)[0]
    handle.pwrite(bytes([byte ^ 4]), 27)


def spoil_size(place: Place, disk: SimulatedDisk) -> None:
    """Cut it."""
    disk.open(note_of(place), write=True).truncate(16)


def leave_high_watermarks(place: Place, disk: SimulatedDisk) -> None:
    """Let a broker have run in the data directory."""
    path = place.directory.parent / "replication-offset-checkpoint"
    disk.open(path, create=True).pwrite(b"0\n0\n", 0)


def leave_epochs(place: Place, disk: SimulatedDisk) -> None:
    """Let a broker have led the partition."""
    path = place.directory / "leader-epoch-checkpoint"
    disk.open(path, create=True).pwrite(b"0\n0\n", 0)


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_nothing,
        spoil_version,
        spoil_a_byte,
        spoil_size,
        leave_high_watermarks,
        leave_epochs,
    ],
)
def test_note_that_is_not_of_the_last_writer_says_nothing(
    spoil: Callable[[Place, SimulatedDisk], None],
) -> None:
    """All above the recovery point is written again, as if there were none."""
    rig, _position = killed_after_appends(INSIDE)
    disk = rig.disk.killed()
    spoil(INSIDE, disk)
    written, scanned = reopened(rig, disk)
    # Zeros of a preallocated file stay a hole.
    assert 0 < written <= scanned


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_orderly_close_leaves_no_note_and_the_next_writer_is_known_by_it(place: Place) -> None:
    """After it another program may write, fail and be killed; it would leave no note."""
    rig = Rig(place)
    rig.open()
    assert rig.disk.stat(note_of(place)) is not None
    rig.append(3)
    rig.close()
    assert rig.disk.stat(note_of(place)) is None
    rig.open()
    assert rig.disk.stat(note_of(place)) is not None
    rig.let_go()


def test_note_of_an_empty_log_alone_does_not_make_the_directory_another_thing() -> None:
    """Killed between the note and the first segment, a log can be opened again."""
    disk = ALONE.new_disk()
    disk.make_directory(ALONE.directory)
    store = FileCheckpointStore(find_partition_paths(disk, ALONE.directory))
    make_sync_journal(store).record_synced(0)
    with contextlib.closing(Rig(ALONE, disk).open()) as log:
        assert 0 == log.log_end_offset
