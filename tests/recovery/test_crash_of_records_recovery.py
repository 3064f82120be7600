"""Power cuts and failures at every step of the recovery of records from a commit journal."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import KafkaLogError
from tests.support.crash_rig import MANY_STATES
from tests.support.journaled_records import CONFIG, Journal, texts_of, unclean_disk
from tests.support.managers import manual_manager
from tests.support.shares import calls
from tests.support.simulated_disk import PowerCut, SimulatedDisk

A = Path("/disks/a")
CALLS_MAX = 2_000
FIRST = A / "t-0" / "00000000000000000000.log"
TEXTS = [letter * 600 for letter in "abcdefgh"]


def lacking() -> SimulatedDisk:
    """The log has none of the records."""
    disk = unclean_disk().crash()
    journal = Journal(disk)
    journal.add(1, *TEXTS[:2])
    journal.add(3, *TEXTS[2:6])
    return disk


def torn() -> SimulatedDisk:
    """The log has some of the records, and a part of the next batch."""
    disk = unclean_disk(*TEXTS[:3])
    journal = Journal(disk)
    journal.add(1, *TEXTS[:2])
    journal.add(3, *TEXTS[2:6])
    handle = disk.open(FIRST, write=True)
    handle.truncate(handle.size() - 100)
    handle.close()
    return disk


def lost() -> SimulatedDisk:
    """A batch is lost below others, in its segment and in the next."""
    disk = unclean_disk(*TEXTS)
    journal = Journal(disk)
    for offset, text in enumerate(TEXTS[:6], 1):
        journal.add(offset, text)
    handle = disk.open(FIRST, write=True)
    handle.pwrite(bytes(100), 800)
    handle.close()
    return disk


STATES = [lacking, torn, lost]
EXPECTED = ["kept", *TEXTS[:6]]
State = Callable[[], SimulatedDisk]


def fixed(state: State) -> SimulatedDisk:
    """Return a disk that has all of a state."""
    disk = state()
    disk.make_durable()
    return disk.crash()


def explore(state: State, states: int, step: int) -> int:
    """Cut the power at calls of a start, and start again; return the number of checks."""
    count = 0
    original = fixed(state)
    for moment in calls(CALLS_MAX, step):
        disk = original.crash()
        disk.crash_at(moment)
        finished = False
        with contextlib.suppress(PowerCut):
            manual_manager(A, config=CONFIG, filesystem=disk)
            finished = True
        for choice, left in disk.crash_states(states, seed=moment):
            count += 1
            try:
                assert texts_of(left) == EXPECTED
            except BaseException as error:
                error.add_note(f"call {moment}, {choice}")
                raise
        if finished:
            return count
    raise AssertionError("the start never ended")


def explore_failures(state: State, error_number: int, step: int) -> int:
    """Let a call of a start fail, then cut the power, or close; return the number of runs."""
    original = fixed(state)
    for count, moment in enumerate(calls(CALLS_MAX, step)):
        disk = original.crash()
        disk.fail_at(moment, error_number)
        manager = None
        with contextlib.suppress(KafkaLogError):
            manager = manual_manager(A, config=CONFIG, filesystem=disk)
        has_failed = not disk.faults_waiting
        disk.clear_faults()
        try:
            assert texts_of(disk.crash()) == EXPECTED
            if manager is not None:
                with contextlib.suppress(KafkaLogError):
                    manager.close()
                # A power cut, not a kill: faults of this process refer to mappings of its files.
                for _choice, left in disk.crash_states(2, seed=moment):
                    assert texts_of(left) == EXPECTED
        except BaseException as error:
            error.add_note(f"call {moment} failed with {errno.errorcode[error_number]}")
            raise
        if not has_failed:
            return count
    raise AssertionError("the start never ended")


@pytest.mark.sample
@pytest.mark.parametrize("state", STATES)
def test_power_cut_in_the_recovery_of_records_loses_none(state: State) -> None:
    """Some of its calls; the slow run has all of them."""
    assert explore(state, 3, 7) > 10


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_power_cut_at_any_call_of_the_recovery_of_records_loses_none(state: State) -> None:
    """Every call, and many states."""
    assert explore(state, MANY_STATES, 1) > 100


@pytest.mark.sample
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("state", STATES)
def test_failing_call_of_the_recovery_of_records_loses_none(
    state: State, error_number: int
) -> None:
    """Some of its calls; the slow run has all of them."""
    assert explore_failures(state, error_number, 19) > 3


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("state", STATES)
def test_any_failing_call_of_the_recovery_of_records_loses_none(
    state: State, error_number: int
) -> None:
    """Every third call, from a random first one; all calls as in the others."""
    assert explore_failures(state, error_number, 3) > 20
