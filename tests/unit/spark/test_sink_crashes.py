"""Every row once, whatever happens: the sink under crashes and errors at each step of a commit.

A schedule is a disk as a crash, or an error, at one step left it, and what the next process, or the
same one, does then. `KAFKALOG_SINK_STATES=40` makes some ten thousand of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from kafkalog.errors import KafkaLogError
from tests.support.simulated_disk import PowerCut, SimulatedDisk
from tests.support.sink_rig import MomentDisk, SinkRig, new_disk

# States of each moment of a crash.
STATES = int(os.environ.get("KAFKALOG_SINK_STATES", "3"))
# One of so many errors, and of so many crashes within a recovery.
STRIDE = max(1, 12 // STATES)

# Of the transaction that is disturbed: files that are appended, and files that become segments.
EARLIER = ((0, 3), (1, 9))
ROWS = ((0, 3), (1, 26), (0, 2), (1, 2), (0, 24))
LATER = ((0, 2), (1, 22))
# Of a first one: what an empty log takes over, and what is appended behind it.
FIRST = ((0, 3), (1, 4), (0, 2))


@pytest.fixture(scope="module")
def begun() -> SinkRig:
    """Return a sink that has committed once."""
    rig = SinkRig(MomentDisk.of(new_disk()))
    rig.commit(0, EARLIER)
    return rig


@pytest.fixture(scope="module")
def crashed(begun: SinkRig) -> list[SimulatedDisk]:
    """Return what crashes in a commit may leave, its staging and a losing attempt included."""
    disk = MomentDisk.of(begun.disk)
    rig = begun.on(disk)
    disk.watch(STATES)
    rig.stage(1, ROWS[:2], attempt=7)
    rig.transaction(1).commit(rig.stage(1, ROWS))
    disk.keep()
    return disk.states


def replay(rig: SinkRig) -> None:
    """Do the micro-batch again, as Spark does after a restart."""
    rig.commit(1, ROWS)


def recover_and_replay(rig: SinkRig) -> None:
    """Finish what was begun, and do the micro-batch again: what was finished is passed over."""
    rig.transaction(1).recover()
    replay(rig)


def abort_and_replay(rig: SinkRig) -> None:
    """Abort what another attempt has staged, then do the micro-batch again."""
    files = rig.stage(1, ROWS, attempt=8)
    rig.transaction(1).abort(files)
    replay(rig)


def other_query_first(rig: SinkRig) -> None:
    """Let another query commit before, which has to finish the first one's work."""
    rig.transaction(5, "other").commit(rig.stage(5, LATER, app="other"))
    rig.expect(5, LATER, app="other")
    replay(rig)


def embedded_writer_first(rig: SinkRig) -> None:
    """Let a writer append before, who knows nothing of intents."""
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
def test_commit_that_crashed_anywhere_has_every_row_once(
    begun: SinkRig, crashed: list[SimulatedDisk], what_next: Callable[[SinkRig], None]
) -> None:
    """Whatever a crash left, and whoever comes next: after a replay all rows are there once."""
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
def test_first_commit_that_crashed_anywhere_has_every_row_once(is_foreign_first: bool) -> None:
    """A log without a record takes over a file of any size; the one behind it is appended."""
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


def test_recovery_that_crashed_anywhere_has_every_row_once(
    begun: SinkRig, crashed: list[SimulatedDisk]
) -> None:
    """A crash within the recovery of a crash is one more crash."""
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
    """Yield a rig after a commit in which one call failed, and whether it raised."""
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
            # Spark aborts with all messages, also where everything was published before.
            rig.transaction(1).abort(files)
        yield rig, raised


@pytest.mark.parametrize("kills", [False, True], ids=["failed", "killed"])
def test_commit_that_failed_anywhere_has_every_row_once(begun: SinkRig, kills: bool) -> None:
    """An error of the disk, aborted or not: the same process, or the next, replays the batch."""
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
    """Say whether a transaction is under way."""
    return any(path.endswith("intent.json") for path in disk.snapshot())
