"""Exactly-once commits of the sink with crashes and errors at each step.

A schedule is a disk after a crash or an error at one step, and the next actions of the same or
another process. `KAFKALOG_SINK_STATES=40` makes about ten thousand schedules.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from kafkalog.errors import KafkaLogError
from tests.support.simulated_disk import PowerCut, SimulatedDisk
from tests.support.sink_rig import MomentDisk, SinkRig, new_disk

# Disk states after a crash at each step.
STATES = int(os.environ.get("KAFKALOG_SINK_STATES", "3"))
# Only every STRIDE-th error, and crash within a recovery, is tested.
STRIDE = max(1, 12 // STATES)

# The interrupted transaction: files that are appended, and files that become segments.
EARLIER = ((0, 3), (1, 9))
ROWS = ((0, 3), (1, 26), (0, 2), (1, 2), (0, 24))
LATER = ((0, 2), (1, 22))
# A first transaction: a file that an empty log takes as its segment, and appended files.
FIRST = ((0, 3), (1, 4), (0, 2))


@pytest.fixture(scope="module")
def begun() -> SinkRig:
    """A sink that has committed once."""
    rig = SinkRig(MomentDisk.of(new_disk()))
    rig.commit(0, EARLIER)
    return rig


@pytest.fixture(scope="module")
def crashed(begun: SinkRig) -> list[SimulatedDisk]:
    """Disks after crashes in a commit, including its staging and a losing attempt."""
    disk = MomentDisk.of(begun.disk)
    rig = begun.on(disk)
    disk.watch(STATES)
    rig.stage(1, ROWS[:2], attempt=7)
    rig.transaction(1).commit(rig.stage(1, ROWS))
    disk.keep()
    return disk.states


def replay(rig: SinkRig) -> None:
    """Repeat the micro-batch, as Spark does after a restart."""
    rig.commit(1, ROWS)


def recover_and_replay(rig: SinkRig) -> None:
    """Recover, and repeat the micro-batch, which is skipped if it was committed."""
    rig.transaction(1).recover()
    replay(rig)


def abort_and_replay(rig: SinkRig) -> None:
    """Abort the staged files of another attempt, then repeat the micro-batch."""
    files = rig.stage(1, ROWS, attempt=8)
    rig.transaction(1).abort(files)
    replay(rig)


def other_query_first(rig: SinkRig) -> None:
    """Let another query commit first, which must finish the interrupted commit."""
    rig.transaction(5, "other").commit(rig.stage(5, LATER, app="other"))
    rig.expect(5, LATER, app="other")
    replay(rig)


def embedded_writer_first(rig: SinkRig) -> None:
    """Let an embedded writer append first, which does not read intents."""
    rig.append_foreign("foreign")
    replay(rig)


NEXT: tuple[Callable[[SinkRig], None], ...] = (
    replay,
    recover_and_replay,
    abort_and_replay,
    other_query_first,
    embedded_writer_first,
)


@pytest.mark.parametrize("what_next", NEXT, ids=lambda each: each.__name__)
def test_commit_crashed_at_any_step_has_every_row_once(
    begun: SinkRig, crashed: list[SimulatedDisk], what_next: Callable[[SinkRig], None]
) -> None:
    """For any disk state and any next writer, after a replay."""
    assert len(crashed) > 40 * STATES
    for number, state in enumerate(crashed):
        rig = begun.on(state.crash())
        what_next(rig)
        assert [] == rig.problems(), f"state {number}"
        if number % 5 == 0:
            rig.commit(2, LATER)
            assert [] == rig.problems(), f"state {number}, and the next batch"
        if number % 20 == 0:
            assert [] == rig.problems_of_opening(), f"state {number}, opened"


@pytest.mark.parametrize("is_foreign_first", [False, True], ids=["replayed", "foreign first"])
def test_first_commit_crashed_at_any_step_has_every_row_once(is_foreign_first: bool) -> None:
    """A log without records takes a file of any size as its segment; the next is appended."""
    disk = MomentDisk.of(new_disk())
    disk.watch(max(1, STATES // 3))
    rig = SinkRig(disk)
    rig.commit(1, FIRST)
    disk.keep()
    assert len(disk.states) > 20
    for number, state in enumerate(disk.states):
        rig = SinkRig(state.crash())
        if is_foreign_first:
            rig.append_foreign("foreign")
        rig.commit(1, FIRST)
        assert [] == rig.problems(), f"state {number}"
        if number % 10 == 0:
            rig.commit(2, LATER)
            found = rig.problems() + rig.problems_of_opening()
            assert [] == found, f"state {number}, and the next batch"


def test_recovery_crashed_at_any_step_has_every_row_once(
    begun: SinkRig, crashed: list[SimulatedDisk]
) -> None:
    """After a second crash and a replay."""
    committed = [state for state in crashed if has_intent(state)]
    assert committed
    for state in committed[:: 8 * STRIDE]:
        disk = MomentDisk.of(state)
        disk.watch(1)
        begun.on(disk).transaction(1).recover()
        for again in disk.states[::STRIDE]:
            rig = begun.on(again)
            replay(rig)
            assert [] == rig.problems()


def failing_commits(begun: SinkRig, *, kills: bool) -> Iterator[tuple[SinkRig, bool]]:
    """Yield a rig after a commit with one failed call, and whether it raised."""
    calls = begun.on(MomentDisk.of(begun.disk))
    files = calls.stage(1, ROWS)
    before = calls.disk.call_count
    calls.transaction(1).commit(files)
    for number in range(1, calls.disk.call_count - before, STRIDE):
        rig = begun.on(MomentDisk.of(begun.disk))
        files = rig.stage(1, ROWS)
        rig.disk.fail_at(number, errno.EIO, kills=kills)
        raised = False
        try:
            rig.transaction(1).commit(files)
        except (KafkaLogError, PowerCut):
            raised = True
        if kills:
            rig = rig.on(rig.disk.killed())
        elif number % 2 and raised:
            # Spark aborts with all messages, also after everything was published.
            rig.transaction(1).abort(files)
        yield rig, raised


@pytest.mark.parametrize("kills", [False, True], ids=["failed", "killed"])
def test_commit_failed_at_any_call_has_every_row_once(begun: SinkRig, kills: bool) -> None:
    """Aborted or not; the same process or the next one repeats the batch."""
    raised_count = 0
    for number, (rig, raised) in enumerate(failing_commits(begun, kills=kills)):
        raised_count += raised
        replay(rig)
        assert [] == rig.problems(), f"call {number}"
        if number % 3 == 0:
            rig.commit(2, LATER)
            assert [] == rig.problems(), f"call {number}, and the next batch"
    assert raised_count > 100 // STRIDE


def has_intent(disk: SimulatedDisk) -> bool:
    """Return whether a transaction is in progress."""
    return any(path.endswith("intent.json") for path in disk.snapshot())
