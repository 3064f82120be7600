"""Write-backs that fail on a disk whose blocks then stay unwritten, as in ext4 (DUR-2).

The uncertain bytes must be written to new blocks before any record is called durable: the rig cuts
the power at every call of the opening that copies them, and once more afterwards.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kafkalog.errors import LogStorageError
from tests.support.crash_rig import ALONE, PLACES, LogSetup, Rig, verify_reopening
from tests.support.model import observe
from tests.support.simulated_disk import MUTATING, CrashChoice, PowerCut, SimulatedDisk


def failed(place: LogSetup, count: int = 12, *, reads_past_cache: bool = True) -> Rig:
    """Return a killed writer's log, two records durable, and write-backs that failed unseen."""
    rig = Rig(place)
    rig.disk.reads_past_cache = reads_past_cache
    rig.open()
    rig.append(2, durable=True)
    rig.append(count, 90)
    disk = rig.disk.killed()
    for path in logs_of(place, disk):
        disk.fail_write_back(path)
    return Rig(place, disk, rig.model)


def logs_of(place: LogSetup, disk: SimulatedDisk) -> list[Path]:
    """Return the segments on a disk."""
    return [place.directory / name for name in disk.list(place.directory) if name.endswith(".log")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("reads_past_cache", [True, False])
def test_copy_to_new_blocks_power_cut_at_any_call_loses_nothing(
    place: LogSetup, reads_past_cache: bool
) -> None:
    """DUR-2: during the copy, its sync, the rename and the sync of the directory."""
    for number in range(1, 200):
        rig = failed(place, reads_past_cache=reads_past_cache)
        rig.disk.crash_at(number, only=MUTATING)
        finished = False
        with contextlib.suppress(PowerCut):
            log = rig.open()
            assert 14 == log.durable_offset == log.log_end_offset
            rig.model.became_durable(14)
            finished = True
        for count, (_choice, state) in enumerate(rig.disk.crash_states(2, seed=number)):
            if (number + count) % 6 == 0:
                verify_reopening(place, state, rig.model.copy())
            else:
                after = Rig(place, state)
                rig.model.verify(observe(after.open()))
                after.release()
        rig.release()
        if finished:
            assert number > 12
            return
    raise AssertionError("the opening does not end")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_copy_to_new_blocks_killed_is_repeated_by_the_next_opening(place: LogSetup) -> None:
    """The page cache stays, and the errors were reported to the killed process."""
    for number in range(1, 30, 2):
        rig = failed(place)
        rig.disk.crash_at(number, only=MUTATING)
        with contextlib.suppress(PowerCut):
            rig.open()
        again = Rig(place, rig.disk.killed(), rig.model.copy())
        log = again.open()
        assert 14 == len(observe(log).records) == log.durable_offset
        assert not [name for name in again.disk.list(place.directory) if name.endswith(".tmp")]
        after = Rig(place, again.disk.crash(CrashChoice("nothing")))
        assert 14 == len(observe(after.open()).records)
        after.release()
        again.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_append_after_uncertain_bytes_reaches_the_disk(place: LogSetup) -> None:
    """DUR-2: neighbours in the same block were lost with them, though their sync succeeded."""
    rig = failed(place, 1)
    rig.open()
    rig.append(3, durable=True)
    after = Rig(place, rig.disk.crash(CrashChoice("nothing")))
    assert rig.model.served() == list(observe(after.open()).records)
    after.release()
    rig.close()
    # As a clean unmount and mount: everything is read from the disk.
    for path in logs_of(place, rig.disk):
        rig.disk.evict(path)
    assert rig.model.served() == list(observe(rig.open()).records)
    assert rig.log.recovery_report.clean
    rig.release()


def test_copy_to_new_blocks_reader_continues_without_a_gap() -> None:
    """A read-only log opened before the rename keeps the old file and then reads the new one."""
    rig = failed(ALONE)
    reader = Rig(ALONE, rig.disk)
    log = reader.open(read_only=True)
    held = log.read(0)
    before = [observe(log).records, bytes(held.data)]
    ids = [rig.disk.stat(path) for path in logs_of(ALONE, rig.disk)]
    rig.open()
    assert ids != [rig.disk.stat(path) for path in logs_of(ALONE, rig.disk)]
    assert before == [observe(log).records, bytes(held.data)]
    rig.append(5, durable=True)
    assert rig.model.served() == list(observe(log).records)
    reader.release()
    rig.release()


def test_uncertain_transaction_index_is_durable_before_the_recovery_point() -> None:
    """A broker trusts the file after an orderly close."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(2)
    path = rig.log.segments()[0].path.with_suffix(".txnindex")
    entry = bytes(34)
    rig.disk.open(path, create=True).pwrite(entry, 0)
    disk = rig.disk.killed()
    disk.fail_write_back(path)
    again = Rig(ALONE, disk)
    again.open()
    after = disk.crash(CrashChoice("nothing"))
    content = after.snapshot().get(str(path))
    assert content in (entry, b"")
    assert content == disk.snapshot()[str(path)]
    again.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_unreadable_sector_raises_and_is_not_damage(place: LogSetup) -> None:
    """After an I/O error the opening raises and truncates nothing; later it serves all records."""
    rig = Rig(place)
    rig.open()
    rig.append(2, durable=True)
    rig.append(6, 90)
    disk = rig.disk.killed()
    before = {path: disk.snapshot()[str(path)] for path in logs_of(place, disk)}
    for path in before:
        disk.fail_reads(path, 0)
        with pytest.raises(LogStorageError):
            Rig(place, disk).open()
        disk.heal_reads(path)
    assert before == {path: disk.snapshot()[str(path)] for path in before}
    again = Rig(place, disk)
    assert rig.model.served() == list(observe(again.open()).records)
    assert not again.log.corrupt_ranges()
    again.release()
