"""Order of the steps of a truncation: each is on the disk before the next."""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import LogStorageError
from kafkalog.log.log import partition_of
from tests.support.crash_rig import (
    ALONE,
    MANY_STATES,
    PLACES,
    LogSetup,
    Rig,
    Scenario,
    crashes,
    small_config,
)
from tests.support.model import observe
from tests.support.simulated_disk import SYNCING, CrashChoice

STATES = MANY_STATES


class CutSegments(Scenario):
    """Truncates inside a segment that others follow; all records are durable."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(14, 90)
        rig.flush()

    def run(self, rig: Rig) -> None:
        rig.truncate_to(4)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_truncation_power_cut_at_any_call_leaves_no_hole(place: LogSetup) -> None:
    """Later segments are removed first, newest first: the log left is a prefix of the old log."""
    ends = set()
    for crash in crashes(CutSegments(), place, limit=STATES):
        with crash.reopened() as rig:
            seen = observe(rig.log)
            assert not seen.corrupt_ranges
            assert list(range(seen.end_offset)) == [fact.offset for fact in seen.records]
            ends.add(seen.end_offset)
    assert {4, 14} < ends


class RestartAbove(Scenario):
    """Restarts above the end of a log whose start was moved."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(10, 90)
        rig.flush()
        rig.delete_before(2)

    def run(self, rig: Rig) -> None:
        rig.restart_at(40)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_restart_above_the_end_power_cut_at_any_call_is_atomic(place: LogSetup) -> None:
    """All records, or none and the new start, which is durable before any file is removed."""
    ranges = set()
    for crash in crashes(RestartAbove(), place, limit=STATES):
        with crash.reopened() as rig:
            seen = observe(rig.log)
            found = (seen.start_offset, seen.end_offset, len(seen.records))
            assert found in ((2, 10, 8), (40, 40, 0))
            # No file below the new start is left.
            assert found[1] == 10 or seen.bases == (40,)
            ranges.add(found)
    assert 2 == len(ranges)


class OpenBelowStart(Scenario):
    """Opens a log whose restart above the end was killed after its first step."""

    def prepare(self, rig: Rig) -> None:
        log = rig.open()
        rig.append(10, 90)
        rig.flush()
        partition_of(log).store.write_start_offset(40)
        # Not closed: the process is gone.
        rig.disk = rig.disk.crash()
        rig.release()

    def run(self, rig: Rig) -> None:
        rig.open()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_open_removes_files_below_the_start_before_a_new_segment(place: LogSetup) -> None:
    """Otherwise a later opening could not see that all of these files must be removed."""
    for crash in crashes(OpenBelowStart(), place, limit=STATES):
        with crash.reopened() as rig:
            assert (40,) == observe(rig.log).bases
            assert 40 == rig.log.log_end_offset


class GrowAfterRestart(Scenario):
    """Restarts, and fills several segments without a sync."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(2, durable=True)
        rig.restart_at(40)

    def run(self, rig: Rig) -> None:
        rig.append(8, 90)


class GrowAfterOpening(Scenario):
    """A log's first records, in several segments, without a sync."""

    def prepare(self, rig: Rig) -> None:
        rig.open()

    def run(self, rig: Rig) -> None:
        rig.append(8, 90)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("scenario", [GrowAfterRestart, GrowAfterOpening])
def test_first_segment_name_is_durable_before_later_segments(
    scenario: type[Scenario], place: LogSetup
) -> None:
    """Otherwise later segments could survive alone, and the log would begin with them."""
    for crash in crashes(scenario(), place, limit=STATES):
        with crash.reopened() as rig:
            assert crash.rig.model.start_offset == rig.log.log_start_offset


@pytest.mark.parametrize("kind", ["nothing", "all"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_recovery_point_restart_below_it_lowers_it(place: LogSetup, kind: str) -> None:
    """Otherwise new records lost below the old recovery point would count as damage."""
    rig = Rig(place)
    rig.open()
    rig.append(10, 90)
    rig.close()
    rig.open()
    rig.restart_at(3)
    rig.append(2)
    after = Rig(place, rig.disk.crash(CrashChoice(kind)))
    report = after.open().recovery_report
    assert () == report.corrupt_ranges
    assert (3, 3 if kind == "nothing" else 5) == (
        report.log_start_offset,
        report.log_end_offset,
    )
    for each in (rig, after):
        each.release()


def test_truncation_repeated_leaves_no_record_of_the_first() -> None:
    """The longer copy of the failed one is emptied: its end would come back as records."""
    place = LogSetup(
        "large", ALONE.directory, small_config(segment_bytes=8192, segment_index_bytes=1024)
    )
    rig = Rig(place)
    rig.open()
    rig.append(20, 90)
    assert 1 == len(rig.log.segments())
    rig.disk.fail_at(1, errno.EIO, only=SYNCING, suffix=".tmp")
    with pytest.raises(LogStorageError):
        rig.truncate_to(15)
    rig.model.doubts.clear()
    rig.truncate_to(3)
    expected = rig.model.served()
    assert 3 == len(expected)
    rig.close()
    assert expected == list(observe(rig.open()).records)
    assert rig.log.recovery_report.clean
    rig.release()


class CutBatch(Scenario):
    """Truncates inside a batch, which leaves its first offsets empty; all records are durable."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(7, 0)
        rig.flush()

    def run(self, rig: Rig) -> None:
        rig.truncate_to(3)
        rig.roll()
        rig.flush()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_truncation_inside_a_batch_power_cut_is_not_damage(place: LogSetup) -> None:
    """The batch is removed whole or stays: no byte is damaged, no offset is assigned twice."""
    ends = set()
    for crash in crashes(CutBatch(), place, limit=STATES):
        with crash.reopened() as rig:
            seen = observe(rig.log)
            # Offsets of the batch below the target: their removal looks like a loss.
            assert set(seen.corrupt_ranges) <= {(0, 3)}
            assert not any(corrupt_range.size_bytes for corrupt_range in rig.log.corrupt_ranges())
            assert not [tail for tail in rig.log.recovery_report.cut if tail.kept_in is not None]
            assert [fact.offset for fact in seen.records] in ([], list(range(7)))
            is_done = not crash.rig.model.doubts
            assert not is_done or 3 == seen.end_offset
            ends.add(seen.end_offset)
    # 0: removed before the segment with the new end was made; the call had not returned.
    assert {0, 3, 7} == ends
