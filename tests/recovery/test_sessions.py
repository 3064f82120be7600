"""Orderly and other ends of sessions: logs dropped, interrupted, offline and reopened."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import LogStorageError
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER
from tests.support.crash_rig import ALONE, INSIDE, PLACES, LogSetup, Rig
from tests.support.model import record_fact
from tests.support.simulated_disk import CrashChoice


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_reopen_log_dropped_without_close_recovers(place: LogSetup) -> None:
    """In the same process too: its records are served, and are durable from then on."""
    rig = Rig(place)
    rig.open()
    rig.append(3)
    rig.close()
    rig.open()
    rig.append(2)
    rig.opened = None
    gc.collect()
    log = rig.open()
    assert not log.recovery_report.clean
    assert 5 == log.log_end_offset == log.durable_offset
    after = Rig(place, rig.disk.crash(CrashChoice("nothing")))
    rig.release()
    assert 5 == after.open().log_end_offset
    after.release()


def test_reopen_offline_log_with_an_open_neighbour_recovers() -> None:
    """The marker from the start of the session does not cover a partition that failed since."""
    rig = Rig(INSIDE)
    neighbour = Rig(LogSetup("neighbour", Path("/data/orders-1"), INSIDE.config), rig.disk)
    for each in (rig, neighbour):
        each.open()
    for each in (rig, neighbour):
        each.append(2)
        each.close()
    assert rig.disk.stat(Path("/data") / CLEAN_SHUTDOWN_MARKER) is not None
    neighbour.open()
    log = rig.open()
    assert log.recovery_report.clean
    rig.append(1)
    rig.disk.fail_at(1, errno.EIO, only=frozenset({"sync"}), suffix=".log")
    with pytest.raises(LogStorageError):
        rig.flush()
    rig.release()
    log = rig.open()
    assert not log.recovery_report.clean
    assert 3 == log.log_end_offset == log.durable_offset
    for each in (rig, neighbour):
        each.release()
    assert rig.disk.stat(Path("/data") / CLEAN_SHUTDOWN_MARKER) is None


def test_reopen_after_an_interrupted_opening_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery ended by Ctrl-C is not an orderly close."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(2)
    rig.disk = rig.disk.crash(CrashChoice("all"))
    rig.opened = None

    def interrupt(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog.log.opening.load_log", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rig.open()
    log = rig.open()
    assert not log.recovery_report.clean
    assert 2 == log.log_end_offset
    rig.release()


def test_marker_removed_by_a_killed_process_stays_removed() -> None:
    """The next writer syncs the removal by any process."""
    rig = Rig(INSIDE)
    rig.open()
    rig.append(1)
    rig.close()
    # A process removes the marker and is killed before it can sync that.
    rig.disk.unlink(INSIDE.directory.parent / CLEAN_SHUTDOWN_MARKER)
    rig.open()
    rig.append(1, durable=True)
    after = Rig(INSIDE, rig.disk.crash(CrashChoice("nothing")))
    log = after.open()
    assert not log.recovery_report.clean
    assert 2 == log.log_end_offset
    after.release()
    rig.release()


def test_reopen_log_of_another_configuration_is_clean() -> None:
    """Segments and indexes of other sizes than configured stay unchanged."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(12, 90)
    expected = rig.model.served()
    rig.close()
    other = Rig(LogSetup("large", ALONE.directory, kafkalog.LogConfig()), rig.disk)
    log = other.open()
    assert log.recovery_report.clean
    assert [fact.offset for fact in expected] == [record.offset for record in log.records()]
    other.release()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("zeros", [1, 59, 64, 200])
def test_reopen_sealed_segment_with_a_preallocated_tail_is_clean(
    zeros: int, read_only: bool
) -> None:
    """A power cut undid the trim of the roll; a clean start does not scan the segment."""
    rig = Rig(INSIDE)
    rig.open()
    rig.append(12, 90)
    sealed = rig.log.segments()[0]
    rig.close()
    handle = rig.disk.open(sealed.path, write=True)
    handle.truncate(sealed.size_bytes + zeros)
    handle.close()
    with rig.open(read_only=read_only) as log:
        assert log.recovery_report.clean
        assert rig.model.served() == [record_fact(record) for record in log.records()]
        assert not log.corrupt_ranges()
