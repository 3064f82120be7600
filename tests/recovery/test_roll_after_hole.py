"""Offsets missing at the start of a segment: zeros before it must not look like lost batches."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from kafkalog.errors import DiskFullError, LogOfflineError, LogStorageError
from tests.support.crash_rig import INSIDE, PLACES, LogSetup, Rig, Scenario, crashes
from tests.support.encoded_batches import batch
from tests.support.model import observe
from tests.support.simulated_disk import SYNCING

STATES = 16

# Batches of three records; four fill a segment, and each segment begins after a hole.
FIRST, SECOND, THIRD = (0, 3, 6, 9), (20, 23, 26, 29), (40, 43)
# They look like lost batches, so they are reported; no record is lost.
HOLES = {(12, 20), (32, 40)}


def follow(rig: Rig, *bases: int) -> None:
    """Append batches of another log, with its offsets."""
    data = b"".join(batch(base_offset=base) for base in bases)
    rig.log.append_batches(data, assign_offsets=False)


def offsets_of(*bases: int) -> list[int]:
    """Return the offsets of the records in the batches at `bases`."""
    return [base + delta for base in bases for delta in range(3)]


class Follow(Scenario):
    """Appends batches with a gap of offsets before each segment; the first segment is durable."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        follow(rig, *FIRST)
        rig.flush()

    def run(self, rig: Rig) -> None:
        follow(rig, *SECOND)
        follow(rig, *THIRD)
        rig.flush()


class FollowAtOnce(Follow):
    """The same batches in one append."""

    def run(self, rig: Rig) -> None:
        follow(rig, *SECOND, *THIRD)
        rig.flush()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.parametrize("scenario", [Follow, FollowAtOnce])
def test_offset_gap_at_a_roll_power_cut_keeps_durable_records(
    scenario: type[Scenario], place: LogSetup
) -> None:
    """DUR-4: a hole is reported, and preallocated zeros before it are not damage."""
    bases = set()
    for crash in crashes(scenario(), place, limit=STATES):
        with crash.reopened() as rig:
            seen = observe(rig.log)
            found = [fact.offset for fact in seen.records]
            assert offsets_of(*FIRST) == found[:12]
            # A segment may survive without its predecessor. Without preallocation a roll syncs
            # nothing, so a batch may too.
            lost = (12,) if place.config.preallocate else (12, 20, 23, 26, 29)
            ranges = set(seen.corrupt_ranges) - HOLES
            assert all(first in lost and following == 40 for first, following in ranges)
            bases.add(seen.bases)
    assert {(0,), (0, 20, 40)} <= bases


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A preallocated log whose first segment is full and durable."""
    rig = Rig(INSIDE)
    Follow().prepare(rig)
    yield rig
    rig.release()


def test_offset_gap_failing_sync_of_the_trim_marks_the_log_offline(rig: Rig) -> None:
    """No later sync would be trusted; the next opening has the durable records."""
    rig.disk.fail_at(1, errno.EIO, only=SYNCING, suffix=".log")
    with pytest.raises(LogStorageError):
        follow(rig, *SECOND)
    assert 0 == rig.disk.faults_waiting
    with pytest.raises(LogOfflineError):
        follow(rig, *SECOND)
    assert offsets_of(*FIRST) == [fact.offset for fact in observe(rig.log).records]
    for choice, disk in rig.disk.crash_states(STATES):
        after = Rig(INSIDE, disk)
        seen = observe(after.open())
        assert offsets_of(*FIRST) == [fact.offset for fact in seen.records], choice
        assert set(seen.corrupt_ranges) <= HOLES, choice
        after.release()


def test_offset_gap_failing_trim_may_be_repeated(rig: Rig) -> None:
    """Nothing has changed: the file is still preallocated, and accepts appends."""
    rig.disk.fail_at(1, errno.EIO, only=frozenset({"truncate"}), suffix=".log")
    with pytest.raises(LogStorageError):
        follow(rig, *SECOND)
    assert 0 == rig.disk.faults_waiting
    assert 12 == rig.log.log_end_offset
    follow(rig, *SECOND)
    rig.close()
    seen = observe(rig.open())
    assert offsets_of(*FIRST, *SECOND) == [fact.offset for fact in seen.records]
    assert (0, 20) == seen.bases
    assert set(seen.corrupt_ranges) <= HOLES


def test_offset_gap_failing_create_preallocates_the_segment_again(rig: Rig) -> None:
    """The trimmed tail is preallocated again if the next segment cannot be created."""
    rig.disk.fail_at(1, errno.ENOSPC, only=frozenset({"create"}), suffix=".log")
    with pytest.raises(DiskFullError):
        follow(rig, *SECOND)
    assert 0 == rig.disk.faults_waiting
    facts = rig.disk.stat(rig.log.segments()[-1].path)
    assert facts is not None
    assert INSIDE.config.segment_bytes == facts.size_bytes
