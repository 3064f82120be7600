"""The first, second, third ... call to the disk fails, until a scenario passes untouched.

After any call: a typed error or none, reads that work, writes that work or are refused until a
reopening, and a log that reopens with its guarantees.
"""

from __future__ import annotations

import errno
import gc
from dataclasses import dataclass

import pytest

from kafkalog.errors import DiskFullError, LogOfflineError, LogStorageError
from tests.recovery.scenarios import SCENARIOS
from tests.support.crash_rig import (
    ALONE,
    INSIDE,
    LogSetup,
    Rig,
    Scenario,
    verify_once,
    verify_reopening,
)
from tests.support.manual_time import START_MS
from tests.support.model import observe, record_fact
from tests.support.shares import calls
from tests.support.simulated_disk import MUTATING, SYNCING, CrashChoice

STRIDE = 5
# Of the calls without every fifth, every third fails in a run.
STEP = 3
WRITING = frozenset({"pwrite", "pwritev"})


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of the n-th call of those in `only` (None: of all, reads too)."""

    name: str
    place: LogSetup
    error_number: int
    only: frozenset[str] | None = None
    short_write_bytes: int | None = None


FAILURES = (
    Failure("error-of-any-call", ALONE, errno.EIO),
    Failure("disk-full", INSIDE, errno.ENOSPC, MUTATING),
    Failure("short-write", ALONE, errno.ENOSPC, WRITING, 37),
)


class OpenAndRead(Scenario):
    """Opens a closed log, reads it by every read API, and again read-only."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(9, 90)
        rig.close()

    def run(self, rig: Rig) -> None:
        for read_only in (False, True):
            log = rig.open(read_only=read_only)
            expected = rig.model.served()
            assert expected == [record_fact(record) for record in log.records()]
            for offset in (0, 4, 8):
                assert expected[offset].value == next(log.read(offset).records()).value
            found = log.offset_for_timestamp(START_MS + 45)
            assert found is not None
            assert 4 == found.offset
            rig.close()


def fail(scenario: Scenario, failure: Failure, number: int, seen: set[tuple[bytes, str]]) -> bool:
    """Let call `number` of a scenario fail and check the log; return False if no call failed."""
    rig = Rig(failure.place)
    scenario.prepare(rig)
    rig.disk.fail_at(
        number,
        failure.error_number,
        only=failure.only,
        short_write_bytes=failure.short_write_bytes,
    )
    raised = False
    try:
        scenario.run(rig)
    except LogStorageError:
        raised = True
    # Error and frames refer to each other, and the frames to mappings of the file.
    gc.collect()
    failed = not rig.disk.faults_waiting
    rig.disk.clear_faults()
    if not failed:
        assert not raised
        rig.release()
        return False
    if rig.opened is not None and not rig.opened.is_closed and not rig.opened.is_read_only:
        check_open_log(rig)
    verify_once(failure.place, rig.disk.crash(CrashChoice("nothing")), rig.model, seen)
    rig.release()
    # The same disk, no power cut: bytes that a failed sync left in memory only are written again.
    verify_reopening(failure.place, rig.disk, rig.model)
    return True


def fail_each(name: str, failure: Failure, *, quick: bool) -> int:
    """Fail every fifth call of a scenario, or a share of the others; return the number of calls.

    The fifths begin with another call for each scenario. Both runs together fail every call.
    """
    first = 1 + len(name) % STRIDE
    seen: set[tuple[bytes, str]] = set()
    fifths = [number for number in range(1, 1000) if (number - first) % STRIDE == 0]
    others = [number for number in range(1, 1000) if (number - first) % STRIDE]
    for number in fifths if quick else [others[each - 1] for each in calls(len(others), STEP)]:
        if not fail((SCENARIOS | {"look": OpenAndRead})[name](), failure, number, seen):
            return number
    raise AssertionError(f"{name} does not end")


def check_open_log(rig: Rig) -> None:
    """Check that a log serves its records after a failure, and accepts records or is offline."""
    log = rig.log
    seen = observe(log)
    rig.model.verify(seen)
    if rig.is_offline:
        for write in (lambda: log.append(rig.records(1)), log.flush, log.roll):
            with pytest.raises(LogOfflineError):
                write()
    elif not rig.model.doubts:
        assert rig.model.served() == list(seen.records)
        rig.append(2)
        assert rig.model.served() == list(observe(log).records)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
@pytest.mark.parametrize("name", [*SCENARIOS, "look"])
def test_scenario_failing_call_leaves_a_legal_log(name: str, failure: Failure) -> None:
    """A typed error or none; the log works or is offline; a reopened log has its guarantees."""
    fail_each(name, failure, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
@pytest.mark.parametrize("name", [*SCENARIOS, "look"])
def test_scenario_failing_call_of_many_leaves_a_legal_log(name: str, failure: Failure) -> None:
    """The same for the other calls: every third, or all of them."""
    assert 2 <= fail_each(name, failure, quick=False)


@pytest.mark.parametrize("place", [ALONE, INSIDE], ids=lambda place: place.name)
@pytest.mark.parametrize("number", range(1, 40))
def test_append_disk_full_at_any_call_may_be_repeated(place: LogSetup, number: int) -> None:
    """No record of it is kept, in this process and after a crash; the same append works later."""
    rig = Rig(place)
    rig.open()
    rig.append(3, durable=True)
    before = observe(rig.log)
    rig.disk.fail_at(number, errno.ENOSPC, only=MUTATING - SYNCING)
    try:
        rig.append(12, 100)
    except DiskFullError as error:
        assert error.retriable
        assert before.records == observe(rig.log).records
        assert before.end_offset == rig.log.log_end_offset
        after = Rig(place, rig.disk.crash(CrashChoice("all")))
        after.open()
        assert before.records == observe(after.log).records
        after.release()
    rig.disk.clear_faults()
    rig.append(12, 100, durable=True)
    verify_reopening(place, rig.disk.crash(CrashChoice("nothing")), rig.model)
    rig.release()


@pytest.mark.parametrize("wait", [True, False])
def test_failing_sync_marks_the_log_offline(wait: bool) -> None:
    """No retry reports "durable"; writes are refused, reads work, a reopening recovers."""
    rig = Rig(ALONE)
    rig.open()
    rig.append(2, durable=True)
    rig.append(2)
    rig.disk.fail_at(1, errno.EIO, only=SYNCING)
    with pytest.raises(LogStorageError) as caught:
        rig.append(1, durable=True) if wait else rig.flush()
    assert errno.EIO == caught.value.errno
    assert isinstance(caught.value.__cause__, OSError)
    assert 2 == rig.log.durable_offset
    for write in (rig.flush, rig.roll, rig.append, lambda: rig.truncate_to(1)):
        with pytest.raises(LogOfflineError):
            write()
    assert rig.model.end_offset == rig.log.log_end_offset
    assert rig.model.served() == list(observe(rig.log).records)
    assert 2 == rig.log.durable_offset
    rig.model.doubts.clear()
    verify_reopening(ALONE, rig.disk.crash(CrashChoice("nothing")), rig.model)
    rig.release()
    verify_reopening(ALONE, rig.disk, rig.model)
