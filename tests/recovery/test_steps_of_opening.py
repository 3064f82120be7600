"""Order of the steps of open and close: each is on the disk before the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.errors import LogStorageError
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.log.log import partition_of
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.crash_rig import ALONE, INSIDE, PLACES, LogSetup, Rig, Scenario, crashes
from tests.support.model import observe
from tests.support.simulated_disk import SYNCING, CrashChoice, SimulatedDisk

ORDERS = TopicPartition("orders", 0)
DATA = INSIDE.directory.parent
STATES = 16


def overwrite(disk: SimulatedDisk, path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file without the log, on the disk too."""
    handle = disk.open(path, write=True)
    handle.pwrite(data, position)
    handle.close()
    disk.make_durable()


def lose_process(rig: Rig) -> None:
    """Continue with the disk unchanged, as after a kill: no file was closed."""
    rig.disk = rig.disk.crash(CrashChoice("all"))
    rig.release()


def marker_of(place: LogSetup) -> Path:
    """Return the path of the clean shutdown marker."""
    directory = place.directory if place is ALONE else DATA
    return directory / CLEAN_SHUTDOWN_MARKER


class OpenTornBeforeEmpty(Scenario):
    """Opens a log whose last batch never reached the disk, with an empty segment after it."""

    def prepare(self, rig: Rig) -> None:
        log = rig.open()
        rig.append(3, durable=True)
        torn = log.segments()[0]
        position = torn.size_bytes
        rig.append(2)
        rig.roll()
        # Zeros are not kept in a side file, whose directory sync would cover the segments too.
        overwrite(rig.disk, torn.path, position, bytes(torn.size_bytes - position))
        lose_process(rig)

    def run(self, rig: Rig) -> None:
        rig.open()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_open_removes_later_segments_before_it_truncates_a_torn_tail(place: LogSetup) -> None:
    """Otherwise the log would end at their base offset, above records that it lost."""
    for crash in crashes(OpenTornBeforeEmpty(), place, limit=STATES):
        with crash.reopened() as rig:
            assert (3, (0,)) == (rig.log.log_end_offset, observe(rig.log).bases)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("count", [0, 3])
def test_truncated_tail_does_not_come_back_after_an_orderly_close(
    count: int, place: LogSetup
) -> None:
    """The truncation syncs the file, because no later append may."""
    rig = Rig(place)
    segment = rig.open().segments()[0]
    rig.append(count, durable=True)
    overwrite(rig.disk, segment.path, segment.size_bytes, b"torn" * 10)
    lose_process(rig)
    assert 1 == len(rig.open().recovery_report.cut)
    rig.close()
    for choice, state in rig.disk.crash_states(STATES):
        again = Rig(place, state)
        report = again.open().recovery_report
        assert (True, False) == (report.clean, report.found_damage), choice
        again.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_deleted_segments_do_not_come_back_after_an_orderly_close(place: LogSetup) -> None:
    """The first segment then gives the log start, and no checkpoint hides deleted segments."""
    rig = Rig(place)
    log = rig.open()
    rig.append(10, 90)
    rig.flush()
    start = log.segments()[2].base_offset
    rig.delete_before(start)
    rig.close()
    marks = OffsetCheckpoint(
        rig.disk, partition_of(log).paths.state_directory / LOG_START_OFFSET_CHECKPOINT
    )
    assert marks.read().get(ORDERS) is None
    for choice, state in rig.disk.crash_states(STATES):
        again = Rig(place, state)
        again.open()
        assert start == again.log.log_start_offset == observe(again.log).bases[0], choice
        again.release()


def test_recovery_point_of_an_earlier_log_of_the_name_is_ignored() -> None:
    """A foreign recovery point would turn unsynced records that a crash removes into damage."""
    rig = Rig(INSIDE)
    OffsetCheckpoint(rig.disk, DATA / RECOVERY_POINT_CHECKPOINT).update({ORDERS: 100})
    rig.open()
    rig.append(3)
    for kind, end in (("nothing", 0), ("all", 3)):
        again = Rig(INSIDE, rig.disk.crash(CrashChoice(kind)))
        again.open()
        assert (end, ()) == (again.log.log_end_offset, again.log.corrupt_ranges())
        again.release()
    rig.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_recovery_checkpoints_the_recovery_point(place: LogSetup) -> None:
    """The scanned batches are below the recovery point once the log is open."""
    rig = Rig(place)
    rig.open()
    rig.append(9, 90)
    lose_process(rig)
    assert 9 == rig.open().recovery_report.scanned_batches
    assert 9 == partition_of(rig.log).store.read_recovery_point()
    rig.release()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("lost", ["power", "sync"])
def test_recovery_leaves_the_index_files_of_an_orderly_close(lost: str, place: LogSetup) -> None:
    """A broker trusts the files without a check: they are rebuilt even if no look-up needs them."""
    expected, recovered = Rig(place), Rig(place)
    for rig in (expected, recovered):
        rig.open()
        rig.append(10, 90)
    if lost == "power":
        recovered.flush()
        recovered.disk = recovered.disk.crash(CrashChoice("nothing"))
    else:
        recovered.disk.fail_at(1, only=SYNCING, suffix=".log")
        with pytest.raises(LogStorageError):
            recovered.flush()
    recovered.release()
    recovered.open()
    files = []
    for rig in (expected, recovered):
        rig.close()
        content = rig.disk.crash(CrashChoice("nothing")).snapshot()
        files.append({path: data for path, data in content.items() if path.endswith("index")})
    assert 8 <= len(files[0])
    assert any(files[0].values())
    assert files[0] == files[1]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_log_end_below_the_recovery_point_is_reported(place: LogSetup) -> None:
    """Durable records are gone without a bad byte: their offsets are not assigned again."""
    rig = Rig(place)
    rig.open()
    rig.append(2)
    segment = rig.log.segments()[0]
    kept = segment.size_bytes
    rig.append(2)
    rig.close()
    handle = rig.disk.open(segment.path, write=True)
    handle.truncate(kept)
    handle.close()
    rig.disk.unlink(marker_of(place))
    report = rig.open().recovery_report
    assert [(2, 4)] == [
        (corrupt_range.first_offset, corrupt_range.next_offset)
        for corrupt_range in report.corrupt_ranges
    ]
    assert report.found_damage
    assert 4 == rig.log.append(rig.records(1)).first_offset
    assert [0, 1, 4] == [record.offset for record in rig.log.records(on_corrupt="skip")]
    rig.release()


def test_read_only_clean_log_syncs_nothing() -> None:
    """A reader does not write to the disk."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(9, 90)
    rig.close()
    rig.disk.calls.clear()
    with rig.open(read_only=True) as reader:
        assert reader.recovery_report.clean
        assert 9 == reader.durable_offset
    assert not {name for name, count in rig.disk.calls.items() if count} & SYNCING
