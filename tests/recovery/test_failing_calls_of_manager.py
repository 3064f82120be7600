"""Each call of the disk fails once in the life of a manager: typed errors, all guarantees hold."""

from __future__ import annotations

import contextlib
import errno

import pytest

from kafkalog import KafkaLogError, LogManager, ManagerConfig
from tests.recovery.test_crash_of_manager import (
    CONFIG,
    ZEROS_AHEAD,
    A,
    B,
    Promised,
    Scenario,
    closing,
    coming_again,
    living,
    verify,
)
from tests.support.crash_rig import MANAGER_CALL_STEP
from tests.support.managers import manual_manager
from tests.support.shares import calls
from tests.support.simulated_disk import SimulatedDisk

STEPS = 2_000


def explore(
    scenario: Scenario, error_number: int, step: int, config: ManagerConfig = CONFIG
) -> int:
    """Let every `step`-th call fail, one in each run; return the number of calls of a run."""
    for moment in calls(STEPS, step):
        disk = SimulatedDisk()
        promised = Promised()
        before = disk.call_count
        disk.fail_at(moment, error_number)
        manager: LogManager | None = None
        try:
            with contextlib.suppress(KafkaLogError):
                manager = manual_manager(A, B, config=config, filesystem=disk)
                scenario(manager, promised)
            if manager is not None:
                with contextlib.suppress(KafkaLogError):
                    manager.close()
            failed = disk.faults_waiting == 0
            disk.clear_faults()
            verify(disk, promised, config)
        except BaseException as error:
            error.add_note(f"call {moment} failed with {errno.errorcode[error_number]}")
            raise
        if not failed:
            return disk.call_count - before
    raise AssertionError("the life never ended")


@pytest.mark.sample
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_failing_call_keeps_the_guarantees(scenario: Scenario, error_number: int) -> None:
    """A few of the calls; the slow run has more."""
    assert explore(scenario, error_number, 11) > 50


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_with_zeros_failing_call_keeps_the_guarantees(
    scenario: Scenario, error_number: int
) -> None:
    """Some of the calls, with zeros written ahead of the records."""
    assert explore(scenario, error_number, 41, ZEROS_AHEAD) > 50


@pytest.mark.slow
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", [living, closing, coming_again])
def test_manager_failing_call_of_many_keeps_the_guarantees(
    scenario: Scenario, error_number: int
) -> None:
    """A sixth of the calls, or all of them, reads included."""
    assert explore(scenario, error_number, MANAGER_CALL_STEP) > 50
