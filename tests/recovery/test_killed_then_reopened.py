"""Tests of logs of a killed process, opened again on the same running machine.

The page cache is unchanged; the sync journal has the position of the last sync, whose error may
have been reported to the killed process. All records that the log serves afterwards are on the
disk, and only uncertain bytes are written again.
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
from tests.support.crash_rig import ALONE, INSIDE, PLACES, LogSetup, Rig
from tests.support.model import observe
from tests.support.simulated_disk import MUTATING, CrashChoice, PowerCut, SimulatedDisk

SYNC = frozenset({"sync"})
Steps = list[Callable[[Rig], None]]


def steps() -> Steps:
    """Return the steps of a writer: syncs of both kinds, rolls, truncations."""
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


def journal_of(place: LogSetup) -> Path:
    """Return the path of a place's sync journal."""
    return place.directory / SYNC_JOURNAL


def logs_of(place: LogSetup, disk: SimulatedDisk) -> list[Path]:
    """Return the segments on a disk."""
    parsed = [(name, try_parse_segment_file(name)) for name in disk.list(place.directory)]
    return [
        place.directory / name
        for name, parts in parsed
        if parts is not None and parts[1:3] == (FileKind.LOG, "")
    ]


def work_until_killed(rig: Rig, prepare: Callable[[SimulatedDisk], None]) -> bool:
    """Run all steps; return whether the process lived. Each step writes the journal back."""
    rig.open()
    rig.append(1, durable=True)
    prepare(rig.disk)
    try:
        for step in steps():
            with contextlib.suppress(OSError):
                rig.disk.write_back(journal_of(rig.place))
            step(rig)
    except PowerCut:
        return False
    return True


def lose_journal(place: LogSetup, disk: SimulatedDisk) -> None:
    """Let the write-back of the journal's last state fail, and evict it from the cache."""
    with contextlib.suppress(OSError):
        disk.fail_write_back(journal_of(place))
        disk.evict(journal_of(place))


def verify_next_process(rig: Rig, *, lose: bool) -> Rig:
    """Open the log in the next process: its records are legal, and a power cut loses none."""
    disk = rig.disk.killed()
    if lose:
        lose_journal(rig.place, disk)
    again = Rig(rig.place, disk, rig.model.copy())
    log = again.open()
    seen = observe(log)
    again.model.verify(seen)
    assert seen.end_offset == log.durable_offset == log.log_end_offset
    verify_on_disk(rig.place, disk, again)
    return again


def verify_on_disk(place: LogSetup, disk: SimulatedDisk, again: Rig) -> None:
    """Check that the records of the open log survive every power cut."""
    served = observe(again.log)
    for choice in (CrashChoice("nothing"), CrashChoice("contents"), CrashChoice("random", seed=3)):
        after = Rig(place, disk.crash(choice))
        assert served.records == observe(after.open()).records
        after.release()


@pytest.fixture(params=[False, True], ids=["small syncs", "large syncs"])
def _size_of_syncs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every sync as small, or many as large."""
    if request.param:
        monkeypatch.setattr(sync_journal, "LARGE_SYNC_BYTES", 300)


@pytest.mark.usefixtures("_size_of_syncs")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("lose", [False, True], ids=["note kept", "note lost"])
def test_reopen_after_a_kill_in_a_failed_sync_makes_records_durable(
    place: LogSetup, lose: bool
) -> None:
    """The error was reported to the killed process only; a later sync would succeed."""
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
            rig.release()
            return
        verify_next_process(rig, lose=lose).release()
    raise AssertionError("the work has no end")


@pytest.mark.usefixtures("_size_of_syncs")
@pytest.mark.parametrize("number", range(1, 60, 2))
def test_reopen_after_a_kill_and_failed_write_backs_makes_records_durable(number: int) -> None:
    """The first sync of the next opening reports the error, or the journal shows it."""
    place = PLACES[number // 2 % 2]
    rig = Rig(place)
    work_until_killed(rig, lambda disk: disk.crash_at(number, only=MUTATING))
    rig.disk.clear_faults()
    for path in logs_of(place, rig.disk.killed()):
        rig.disk.fail_write_back(path)
    verify_next_process(rig, lose=bool(number % 4 == 1)).release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("number", range(1, 14))
def test_reopen_killed_after_a_failed_write_back_makes_records_durable(
    place: LogSetup, number: int
) -> None:
    """The error was reported to the killed opening; the next one reads it from the journal."""
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
    verify_next_process(opening, lose=False).release()


@pytest.mark.parametrize("lose", [False, True], ids=["note kept", "note lost"])
def test_sync_journal_failing_sync_makes_all_bytes_uncertain(lose: bool) -> None:
    """The journal is removed, since it has no sync; without it more bytes are rewritten."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    rig.disk.write_back(journal_of(ALONE))
    rig.disk.fail_at(1, errno.EIO, only=SYNC, suffix=SYNC_JOURNAL)
    rig.disk.fail_at(1, errno.EIO, only=SYNC, kills=True, suffix=".log")
    with pytest.raises(PowerCut):
        rig.flush()
    again = verify_next_process(rig, lose=lose)
    report = again.log.recovery_report
    # In place, and then in new blocks: the first write fails as its write-back did.
    assert report.rewritten_bytes == 2 * report.scanned_bytes
    again.release()


def test_failed_append_killed_in_its_undo_makes_earlier_bytes_uncertain() -> None:
    """The sync of the truncation covers all bytes before it too."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3)
    rig.disk.fail_at(
        1, errno.ENOSPC, only=frozenset({"pwrite"}), short_write_bytes=20, suffix=".log"
    )
    rig.disk.fail_at(1, errno.EIO, only=SYNC, kills=True, suffix=".log")
    with pytest.raises(PowerCut):
        rig.append(1)
    verify_next_process(rig, lose=False).release()


def test_sync_journal_neither_synced_nor_removed_allows_no_sync() -> None:
    """A failed sync could not be reported to the next process."""
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
    rig.release()


# Bytes that are written again.


def killed_after_appends(place: LogSetup, *, durable: bool = False) -> tuple[Rig, int]:
    """Return a rig with records that were not synced, and the position of their first byte."""
    rig = Rig(place)
    rig.open()
    if durable:
        rig.append(2, durable=True)
    position = rig.log.segments()[-1].size_bytes
    rig.append(3)
    return rig, position


def reopened(rig: Rig, disk: SimulatedDisk) -> tuple[int, int]:
    """Open the log; return the numbers of rewritten and of scanned bytes."""
    again = Rig(rig.place, disk)
    report = again.open().recovery_report
    assert not report.clean
    assert 0 < report.scanned_bytes
    assert again.log.log_end_offset == again.log.durable_offset == rig.model.end_offset
    verify_on_disk(rig.place, disk, again)
    again.release()
    return report.rewritten_bytes, report.scanned_bytes


def test_reopen_after_a_kill_without_a_sync_rewrites_nothing() -> None:
    """The page cache has no errors, or the sync reports them: one sync a file."""
    rig, _position = killed_after_appends(ALONE)
    disk = rig.disk.killed()
    disk.history = []
    again = Rig(ALONE, disk)
    report = again.open().recovery_report
    assert (0, 1) == (report.rewritten_bytes, report.scanned_segments)
    synced = [Path(path) for call, path in disk.history if call == "sync"]
    assert [journal_of(ALONE), *logs_of(ALONE, disk)] == synced[:2]
    assert 1 == sum(path.suffix == ".log" for path in synced)
    verify_on_disk(ALONE, disk, again)
    again.release()


def test_reopen_after_a_kill_rewrites_bytes_after_a_small_sync() -> None:
    """Small syncs leave the journal at "trying"; bytes of the last sync are certain."""
    rig, position = killed_after_appends(ALONE, durable=True)
    written, scanned = reopened(rig, rig.disk.killed())
    assert 0 < position < scanned
    assert scanned - position == written


def test_reopen_after_a_kill_and_a_large_sync_rewrites_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal shows that no sync was tried since."""
    monkeypatch.setattr(sync_journal, "LARGE_SYNC_BYTES", 100)
    rig, position = killed_after_appends(ALONE, durable=True)
    assert position > 100
    written, _scanned = reopened(rig, rig.disk.killed())
    assert 0 == written


@pytest.mark.parametrize("durable", [False, True])
def test_reopen_after_a_power_cut_rewrites_no_more_than_after_a_kill(durable: bool) -> None:
    """After a restart, too, the journal is only wrong on the safe side."""
    rig, position = killed_after_appends(ALONE, durable=durable)
    rig.disk.write_back(journal_of(ALONE))
    rig.disk.sync_directory(ALONE.directory)
    written, scanned = reopened(rig, rig.disk.crash(CrashChoice("all")))
    assert (scanned - position if durable else 0) == written


def test_reopen_unreported_write_back_failure_rewrites_all_bytes() -> None:
    """The sync reports it first; then all bytes above the recovery point are rewritten."""
    rig, _position = killed_after_appends(ALONE)
    disk = rig.disk.killed()
    for path in logs_of(ALONE, disk):
        disk.fail_write_back(path)
    written, scanned = reopened(rig, disk)
    assert 2 * scanned == written


def test_reopen_on_a_system_without_kept_errors_rewrites_all_bytes() -> None:
    """A sync that does not report earlier failures is not trusted."""
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


def spoil_nothing(place: LogSetup, disk: SimulatedDisk) -> None:
    """Remove the journal."""
    disk.unlink(journal_of(place))


def spoil_version(place: LogSetup, disk: SimulatedDisk) -> None:
    """Make it a valid journal of a later version."""
    handle = disk.open(journal_of(place), write=True)
    data = bytearray(handle.pread(32, 0))
    data[8] = 2
    data[28:] = value(bytes(data[:28])).to_bytes(4, "big")
    handle.pwrite(data, 0)


def spoil_a_byte(place: LogSetup, disk: SimulatedDisk) -> None:
    """Flip one bit of its offset."""
    handle = disk.open(journal_of(place), write=True)
    byte = handle.pread(1, 27)[0]
    handle.pwrite(bytes([byte ^ 4]), 27)


def spoil_size(place: LogSetup, disk: SimulatedDisk) -> None:
    """Truncate it."""
    disk.open(journal_of(place), write=True).truncate(16)


def leave_high_watermarks(place: LogSetup, disk: SimulatedDisk) -> None:
    """Leave a file of a broker in the data directory."""
    path = place.directory.parent / "replication-offset-checkpoint"
    disk.open(path, create=True).pwrite(b"0\n0\n", 0)


def leave_epochs(place: LogSetup, disk: SimulatedDisk) -> None:
    """Leave the leader epochs of a broker in the partition directory."""
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
def test_sync_journal_not_of_the_last_writer_is_ignored(
    spoil: Callable[[LogSetup, SimulatedDisk], None],
) -> None:
    """All bytes above the recovery point are rewritten, as without a journal."""
    rig, _position = killed_after_appends(INSIDE)
    disk = rig.disk.killed()
    spoil(INSIDE, disk)
    written, scanned = reopened(rig, disk)
    # Zeros of a preallocated file stay a hole.
    assert 0 < written <= scanned


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_sync_journal_exists_only_while_a_writer_is_open(place: LogSetup) -> None:
    """Another program that writes after the close, and is killed, leaves no journal."""
    rig = Rig(place)
    rig.open()
    assert rig.disk.stat(journal_of(place)) is not None
    rig.append(3)
    rig.close()
    assert rig.disk.stat(journal_of(place)) is None
    rig.open()
    assert rig.disk.stat(journal_of(place)) is not None
    rig.release()


def test_open_log_with_only_a_sync_journal_is_empty() -> None:
    """Killed between the note and the first segment, a log can be opened again."""
    disk = ALONE.new_disk()
    disk.make_directory(ALONE.directory)
    store = FileCheckpointStore(find_partition_paths(disk, ALONE.directory))
    make_sync_journal(store).record_synced(0)
    with contextlib.closing(Rig(ALONE, disk).open()) as log:
        assert 0 == log.log_end_offset
