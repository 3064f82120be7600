"""Power cuts while new segments replace old segments, in a log and in the next opening."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kafkalog.files.names import FileKind, FileState, SegmentFiles
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.replaced_markers import write_replaced_marker
from tests.support.crash_rig import INSIDE, LogSetup, Rig, Scenario, crashes, small_config
from tests.support.model import RecordFact, record_fact
from tests.support.simulated_disk import PowerCut, SimulatedDisk

# One record a batch; four or five batches a segment.
PLACE = LogSetup("inside", INSIDE.directory, small_config(batch_bytes=1))
LARGE = LogSetup(
    "large",
    INSIDE.directory,
    replace(PLACE.config, segment_bytes=4096, segment_index_bytes=1024, preallocate=False),
)
RECORD_COUNT = 12
STATES = 24


def put(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    """Make a file."""
    handle = disk.open(path, create=True)
    handle.pwrite(data, 0)
    handle.close()


class Outputs(Scenario):
    """
    Opens a log next to which a compaction, or a split, has left its new segments.

    Args:
        kept: offsets of the records that the new segments hold.
        bases: their base offsets.
        states: state of each of them: SWAP, or CLEANED.
        is_marked: whether this library made them, which leaves a mark.
    """

    def __init__(
        self,
        kept: Sequence[int],
        bases: Sequence[int],
        states: Sequence[FileState],
        *,
        is_marked: bool = True,
    ) -> None:
        self.is_marked = is_marked
        self.kept = kept
        self.bases = bases
        self.states = states
        self.before: list[RecordFact] = []
        self.old_bases: list[int] = []

    def prepare(self, rig: Rig) -> None:
        log = rig.open()
        rig.append(RECORD_COUNT, 40)
        self.before = rig.model.served()
        self.old_bases = [segment.base_offset for segment in log.segments()]
        batches = {}
        for batch in log.batches(0):
            header = batch.header
            batches[header.base_offset] = bytes(batch.data[: header.size_bytes])
        rig.close()
        ends = [*self.bases[1:], RECORD_COUNT]
        for base, end in zip(self.bases, ends, strict=True):
            files = SegmentFiles(PLACE.directory, base).in_state(FileState.CLEANED)
            held = [batches[offset] for offset in self.kept if base <= offset < end]
            put(rig.disk, files.log, b"".join(held))
            put(rig.disk, files.path(FileKind.OFFSET_INDEX), b"")
            put(rig.disk, files.path(FileKind.TIME_INDEX), b"")
        if self.is_marked:
            write_replaced_marker(rig.disk, PLACE.directory, self.old_bases, self.bases)
        for base, state in zip(self.bases, self.states, strict=True):
            files = SegmentFiles(PLACE.directory, base).in_state(FileState.CLEANED)
            for source, target in zip(files, files.in_state(state), strict=True):
                if rig.disk.stat(source) is not None and source != target:
                    rig.disk.rename(source, target)
        rig.disk.make_durable()

    def run(self, rig: Rig) -> None:
        rig.open()


def verify_finished(rig: Rig) -> None:
    """Assert that nothing is damaged, and that no file of unfinished work is left."""
    assert not rig.log.recovery_report.found_damage
    unfinished = (FileState.SWAP, FileState.CLEANED, FileState.DELETED, FileState.COVERED)
    assert not [name for name in rig.disk.list(PLACE.directory) if name.endswith(unfinished)]


@pytest.mark.parametrize("is_marked", [True, False], ids=["ours", "a broker's"])
@pytest.mark.parametrize(
    "bases",
    [(0,), (0, 6), (0, 3, 6, 9)],
    ids=lambda bases: f"{len(bases)} segments",
)
def test_swap_of_a_finished_compaction_power_cut_installs_all_segments(
    bases: tuple[int, ...], is_marked: bool
) -> None:
    """Every crash state ends with all new segments and without the old segments."""
    if len(bases) > 1 and not is_marked:
        pytest.skip("a broker makes one segment of several, or several of one")
    kept = [*range(0, 9, 2), *range(9, RECORD_COUNT)]
    scenario = Outputs(kept, bases, [FileState.SWAP] * len(bases), is_marked=is_marked)
    states = 0
    for crash in crashes(scenario, PLACE, limit=STATES):
        states += 1
        with crash.reopened() as rig:
            verify_finished(rig)
            assert list(bases) == [segment.base_offset for segment in rig.log.segments()]
            expected = [fact for fact in scenario.before if fact.offset in kept]
            assert expected == [record_fact(record) for record in rig.log.records()]
    assert 50 < states


@pytest.mark.parametrize("states", ["cleaned cleaned cleaned", "cleaned swap swap"])
def test_undo_of_an_unfinished_split_power_cut_keeps_the_old_segments(states: str) -> None:
    """New segments next to old segments would be duplicate records."""
    done = [FileState("." + state) for state in states.split()]
    scenario = Outputs(range(RECORD_COUNT), (0, 4, 8), done)
    for crash in crashes(scenario, PLACE, limit=STATES):
        with crash.reopened() as rig:
            verify_finished(rig)
            assert scenario.old_bases == [segment.base_offset for segment in rig.log.segments()]
            assert scenario.before == [record_fact(record) for record in rig.log.records()]


class Split(Scenario):
    """Replaces one segment by three with the same records."""

    def prepare(self, rig: Rig) -> None:
        log = rig.open()
        rig.append(RECORD_COUNT, 40)
        batches = [bytes(batch.data[: batch.header.size_bytes]) for batch in log.batches(0)]
        rig.roll()
        rig.flush()
        for base in (0, 4, 8):
            files = SegmentFiles(LARGE.directory, base).in_state(FileState.CLEANED)
            put(rig.disk, files.log, b"".join(batches[base : base + 4]))
        rig.disk.make_durable()

    def run(self, rig: Rig) -> None:
        leaving = rig.log.segments()[:1]
        cleaner_access(rig.log).replace_segments(leaving, (0, 4, 8), leaves_offsets_out=False)


def test_split_power_cut_at_any_call_is_atomic() -> None:
    """A later new segment without an earlier one would count as replaced, and be removed."""
    found = set()
    for crash in crashes(Split(), LARGE, limit=2 * STATES):
        with crash.reopened() as rig:
            verify_finished(rig)
            found.add(tuple(segment.base_offset for segment in rig.log.segments()))
            assert crash.rig.model.served() == [record_fact(each) for each in rig.log.records()]
    assert {(0, RECORD_COUNT), (0, 4, 8, RECORD_COUNT)} == found


class Merge(Scenario):
    """Replaces three segments by one or two, which may end below the last of the three."""

    def __init__(self, kept: Sequence[int], bases: Sequence[int]) -> None:
        self.kept = kept
        self.bases = bases

    def prepare(self, rig: Rig) -> None:
        log = rig.open()
        for _ in range(3):
            rig.append(4, 40)
            rig.roll()
        rig.append(2, 40)
        rig.flush()
        batches = [bytes(batch.data[: batch.header.size_bytes]) for batch in log.batches(0)]
        for base, end in pairwise([*self.bases, RECORD_COUNT]):
            files = SegmentFiles(LARGE.directory, base).in_state(FileState.CLEANED)
            held = [batches[offset] for offset in self.kept if base <= offset < end]
            put(rig.disk, files.log, b"".join(held))
            put(rig.disk, files.offset_index, b"")
            put(rig.disk, files.time_index, b"")
        rig.disk.make_durable()

    def run(self, rig: Rig) -> None:
        cleaner_access(rig.log).replace_segments(rig.log.segments()[:3], self.bases)


@pytest.mark.parametrize(
    ("kept", "bases"),
    [((0, 5), (0,)), ((), (0,)), ((1, 11), (0,)), ((0, 5, 6, 7), (0, 6))],
    ids=str,
)
def test_merge_power_cut_at_any_call_is_atomic(
    kept: tuple[int, ...], bases: tuple[int, ...]
) -> None:
    """No removed record is back after a reader may have seen its removal."""
    found = set()
    for crash in crashes(Merge(kept, bases), LARGE, limit=STATES):
        old = crash.rig.model.served()
        new = [fact for fact in old if fact.offset in kept or fact.offset >= RECORD_COUNT]
        was_seen = len(crash.rig.log.segments()) == len(bases) + 1
        with crash.reopened() as rig:
            verify_finished(rig)
            records = [record_fact(each) for each in rig.log.records()]
            assert records == new or (records == old and not was_seen)
            assert 0 == rig.log.log_start_offset
            found.add(len(records))
        with crash.failure_context(), contextlib.closing(Rig(LARGE, crash.disk).open()) as log:
            assert not log.recovery_report.completed_swaps
            assert records == [record_fact(each) for each in log.records()]
    assert {len(kept) + 2, RECORD_COUNT + 2} == found


def test_merge_without_the_sync_of_its_marker_is_detected() -> None:
    """No record is retained, and only the marker shows that this is right."""
    for number in range(1, 30):
        rig = Rig(LARGE)
        scenario = Merge((), (0,))
        scenario.prepare(rig)
        # Otherwise the first sync would be that of a cleaner offset.
        cleaner_access(rig.log).checkpoint_cleaner_offset(0)
        rig.disk.forget_sync_at(1)
        rig.disk.crash_at(number)
        with contextlib.suppress(PowerCut):
            scenario.run(rig)
        for _choice, disk in rig.disk.crash_states(STATES, seed=number):
            with contextlib.closing(Rig(LARGE, disk).open()) as log:
                if log.recovery_report.refused_swaps:
                    return
        rig.release()
    raise AssertionError("no crash shows that the mark was not synced")
