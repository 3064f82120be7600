"""Appends that failed, then a power cut: refused records do not come back."""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import DiskFullError, LogOfflineError, LogStorageError
from tests.support.crash_rig import ALONE, PLACES, LogSetup, Rig
from tests.support.model import observe
from tests.support.simulated_disk import MUTATING, SYNCING, SimulatedDisk

STATES = 16


def verify_nothing_more(rig: Rig, disk: SimulatedDisk) -> None:
    """Check that the log has the records of the model in every crash state, and no more."""
    for choice, state in disk.crash_states(STATES):
        after = Rig(rig.place, state)
        seen = observe(after.open())
        assert tuple(rig.model.served()) == seen.records, choice
        assert (rig.model.end_offset, ()) == (seen.end_offset, seen.corrupt_ranges), choice
        after.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_failed_append_does_not_come_back_after_a_power_cut(place: LogSetup) -> None:
    """A failed append leaves no bytes in its first segment, and no new segments."""
    moments = 0
    for number in range(1, 100):
        rig = Rig(place)
        rig.open()
        rig.append(3, durable=True)
        rig.disk.fail_at(number, errno.ENOSPC, only=MUTATING - SYNCING)
        try:
            rig.append(8, 90)
        except DiskFullError:
            moments += 1
            verify_nothing_more(rig, rig.disk)
        is_last = bool(rig.disk.faults_waiting)
        rig.release()
        if is_last:
            break
    assert 4 <= moments


def test_failed_append_failing_undo_marks_the_log_offline() -> None:
    """The content of the file is unknown, so no record may follow it."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(3, durable=True)
    expected = rig.model.served()
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), short_write_bytes=40)
    rig.disk.fail_at(1, errno.EIO, only=frozenset({"truncate"}))
    with pytest.raises(LogStorageError):
        rig.append(2, 20)
    assert 0 == rig.disk.faults_waiting
    assert rig.is_offline
    with pytest.raises(LogOfflineError):
        rig.append(1)
    assert expected == list(observe(rig.log).records)
    rig.release()
    again = Rig(ALONE, rig.disk)
    report = again.open().recovery_report
    assert [40] == [tail.size_bytes for tail in report.cut]
    assert expected == list(observe(again.log).records)
    again.release()
