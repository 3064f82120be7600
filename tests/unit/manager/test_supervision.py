"""Background tasks: no silent failures; an error belongs to its subject and is retried."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import TopicPartition
from kafkalog.manager.supervision import Supervisor
from tests.support.manual_time import START_MS, ManualScheduler

ONE, TWO = TopicPartition("orders", 1), TopicPartition("orders", 2)


class Work:
    """An action that fails for chosen subjects, and records its runs."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.supervisor = Supervisor(self.scheduler, self.scheduler.clock)
        self.failing: set[TopicPartition] = set()
        self.done: list[tuple[int, TopicPartition]] = []
        self.subjects: list[TopicPartition] = [ONE, TWO]
        self.supervisor.every("work", 60_000, self.list, self.act, delay_ms=1_000)

    def list(self) -> list[TopicPartition]:
        """Return the subjects; raise if there are none."""
        if not self.subjects:
            raise RuntimeError("no subjects")
        return self.subjects

    def act(self, subject: TopicPartition) -> None:
        """Raise, or record the run."""
        if subject in self.failing:
            raise ValueError(f"no {subject}")
        self.done.append((self.scheduler.clock.monotonic_ms(), subject))


def test_periodic_task_acts_on_every_current_subject() -> None:
    """First after the delay, then a period after the end of each run."""
    work = Work()
    work.scheduler.advance(999)
    assert [] == work.done
    (before,) = work.supervisor.health()
    assert (0, None, START_MS + 1_000) == (
        before.run_count,
        before.last_run_ms,
        before.next_run_ms,
    )
    work.scheduler.advance(1)
    work.subjects = [TWO]
    work.scheduler.advance(60_000)
    assert [(1_000, ONE), (1_000, TWO), (61_000, TWO)] == work.done
    (health,) = work.supervisor.health()
    assert ("work", 60_000, 2, None, 0) == (
        health.name,
        health.period_ms,
        health.run_count,
        health.last_error,
        health.failure_count,
    )
    assert (START_MS + 61_000, START_MS + 121_000) == (health.last_run_ms, health.next_run_ms)


def test_failure_of_a_subject_is_retried_with_longer_pauses() -> None:
    """The others keep their period; the pauses double up to the period."""
    work = Work()
    work.failing = {ONE}
    work.scheduler.advance(1_000)
    assert [(1_000, TWO)] == work.done
    (fault,) = work.supervisor.faults.all()
    assert ("work", ONE, 1, START_MS + 2_000) == (
        fault.task,
        fault.subject,
        fault.failure_count,
        fault.next_retry_ms,
    )
    assert "no orders-1" == str(fault.error)
    (health,) = work.supervisor.health()
    assert isinstance(health.last_error, ValueError)
    assert 1 == health.failure_count
    tries = []
    for _ in range(7):
        (fault,) = work.supervisor.faults.all()
        assert fault.next_retry_ms is not None
        pause = fault.next_retry_ms - fault.last_ms
        tries.append(pause)
        work.scheduler.advance(pause)
    assert [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000] == tries
    work.failing = set()
    work.scheduler.advance(60_000)
    assert () == work.supervisor.faults.all()
    assert ONE in {subject for _time, subject in work.done}
    (health,) = work.supervisor.health()
    assert (None, 0) == (health.last_error, health.failure_count)


def test_failure_to_list_subjects_is_a_fault_of_the_task() -> None:
    """The task runs again, and its success removes the fault."""
    work = Work()
    work.subjects = []
    work.scheduler.advance(1_000)
    (fault,) = work.supervisor.faults.all()
    assert (None, "no subjects") == (fault.subject, str(fault.error))
    work.subjects = [ONE]
    work.scheduler.advance(60_000)
    assert () == work.supervisor.faults.all()
    assert [(61_000, ONE)] == work.done


def test_removed_subject_is_not_retried() -> None:
    """Its faults are removed with it."""
    work = Work()
    work.failing = {ONE}
    work.scheduler.advance(1_000)
    work.supervisor.faults.remove(ONE)
    work.failing = set()
    work.scheduler.advance(1_000)
    assert [(1_000, TWO)] == work.done


def test_closed_supervisor_runs_nothing() -> None:
    """No tasks, retries or single actions."""
    work = Work()
    done: list[str] = []
    work.supervisor.once("once", lambda: done.append("once"), 5_000)
    work.failing = {ONE}
    work.scheduler.advance(1_000)
    work.supervisor.close()
    work.failing = set()
    work.scheduler.advance(1_000_000)
    assert [] == done
    assert [(1_000, TWO)] == work.done


def test_task_that_closes_its_supervisor_ends_after_that_subject() -> None:
    """The close does not wait for its own task."""
    scheduler = ManualScheduler()
    supervisor = Supervisor(scheduler, scheduler.clock)
    done: list[TopicPartition] = []

    def act(subject: TopicPartition) -> None:
        done.append(subject)
        supervisor.close()

    supervisor.every("work", 10, lambda: [ONE, TWO], act, delay_ms=0)
    scheduler.advance(100)
    assert [ONE] == done


def test_scheduler_for_a_subject_records_errors_as_faults() -> None:
    """Until the same task succeeds; the error reaches the scheduler too."""
    scheduler = ManualScheduler()
    supervisor = Supervisor(scheduler, scheduler.clock)
    fails = [True]

    def task() -> None:
        if fails:
            raise OSError("no disk")

    supervisor.scheduler_for(Path("/data")).schedule("flush", task, delay_ms=5, period_ms=10)
    scheduler.advance(5)
    (fault,) = supervisor.faults.all()
    assert ("flush", Path("/data"), START_MS + 15) == (
        fault.task,
        fault.subject,
        fault.next_retry_ms,
    )
    assert ["flush"] == [name for name, _error in scheduler.errors]
    fails.clear()
    scheduler.advance(10)
    assert () == supervisor.faults.all()


@pytest.mark.parametrize("failures", [1, 5, 100])
def test_retry_pause_never_exceeds_ten_minutes(failures: int) -> None:
    """For any number of failures."""
    work = Work()
    work.failing = {ONE}
    work.supervisor.every("slow", 2**40, work.list, work.act, delay_ms=0)
    work.scheduler.advance(0)
    for _ in range(failures):
        fault = work.supervisor.faults.get("slow", ONE)
        assert fault is not None
        assert fault.next_retry_ms is not None
        assert 1_000 <= fault.next_retry_ms - fault.last_ms <= 600_000
        work.scheduler.advance(fault.next_retry_ms - fault.last_ms)
