"""Supervision of background work: periodic tasks, retries, and a registry of faults.

A periodic task runs one action for each of its subjects (partitions, directories). If an action
fails, the other subjects are not affected: its error is recorded in the fault registry, and the
action is retried after one second, then two, four ... up to the task's period. A success removes
the fault. The scheduler that logs use for their timers records in the same registry.

Thread-safety: every method from any thread. Actions of one task never run twice at once for one
subject; different tasks may run at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from kafkalog.clock import Clock
from kafkalog.manager.health import Fault, Subject, TaskHealth
from kafkalog.scheduler import ScheduledTask, Scheduler, retry_pause_ms

__all__ = ["FaultRegistry", "PeriodicTask", "SupervisedScheduler", "Supervisor"]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Subject)


class FaultRegistry:
    """
    Present faults, by task and subject.

    Args:
        clock: time of the faults.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._faults: dict[tuple[str, Subject], Fault] = {}

    def record_failure(
        self,
        task: str,
        subject: Subject,
        error: BaseException,
        *,
        retry_after_ms: int | None = None,
    ) -> Fault:
        """Record a failure; return the fault."""
        now_ms = self._clock.now_ms()
        retry_ms = None if retry_after_ms is None else now_ms + retry_after_ms
        key = (task, subject)
        with self._guard:
            before = self._faults.get(key)
            if before is None:
                fault = Fault(task, subject, error, 1, now_ms, now_ms, retry_ms)
            else:
                fault = replace(
                    before,
                    error=error,
                    failure_count=before.failure_count + 1,
                    last_ms=now_ms,
                    next_retry_ms=retry_ms,
                )
            self._faults[key] = fault
        if before is None:
            logger.warning("%s of %s failed: %s", task, subject, error)
        return fault

    def clear_error(self, task: str, subject: Subject) -> None:
        """Remove a fault."""
        # Called after every success: without the lock if the fault does not exist.
        if (task, subject) in self._faults:
            with self._guard:
                self._faults.pop((task, subject), None)

    def remove(self, subject: Subject) -> None:
        """Remove all faults of a subject that was removed."""
        with self._guard:
            for key in [key for key in self._faults if key[1] == subject]:
                del self._faults[key]

    def get(self, task: str, subject: Subject) -> Fault | None:
        """Return the fault, None if it does not exist."""
        return self._faults.get((task, subject))

    def all(self) -> tuple[Fault, ...]:
        """Return all faults, by task and subject."""
        with self._guard:
            found = list(self._faults.values())
        return tuple(sorted(found, key=lambda fault: (fault.task, str(fault.subject))))


@dataclass(slots=True)
class _TaskRuns:
    """Count and times of a task's runs."""

    count: int = 0
    last_ms: int | None = None
    ended_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Count a run that begins."""
        self.count += 1
        self.last_ms = now_ms

    def end(self, now_ms: int) -> None:
        """Record the end of a run."""
        self.ended_ms = now_ms


class PeriodicTask(Generic[S]):
    """
    Periodic action for each of many subjects. Made by `Supervisor.every`.

    Attributes:
        name: its name.
        period_ms: time from the end of one run to the next.
    """

    def __init__(
        self,
        name: str,
        supervisor: Supervisor,
        subjects: Callable[[], Iterable[S]],
        action: Callable[[S], object],
        *,
        delay_ms: int,
        period_ms: int,
    ) -> None:
        self.name = name
        self.period_ms = period_ms
        self._supervisor = supervisor
        self._subjects = subjects
        self._action = action
        self._delay_ms = delay_ms
        self._runs = _TaskRuns()
        self._started_ms = supervisor.clock.now_ms()
        # Held during an action; reentrant, because an action may close the supervisor.
        self._busy = threading.RLock()

    def run(self) -> None:
        """Run the action for every subject, except subjects that wait for a retry."""
        supervisor = self._supervisor
        self._runs.begin(supervisor.clock.now_ms())
        try:
            subjects = list(self._subjects())
        except Exception as error:  # noqa: BLE001 - recorded as a fault
            supervisor.faults.record_failure(self.name, None, error, retry_after_ms=self.period_ms)
            return
        supervisor.faults.clear_error(self.name, None)
        for subject in subjects:
            if supervisor.is_closed:
                return
            # A subject that failed has a separate retry, which comes before the next run.
            if supervisor.faults.get(self.name, subject) is None:
                self._do(subject)
        self._runs.end(supervisor.clock.now_ms())

    def health(self) -> TaskHealth:
        """Return the health of the task."""
        faults = [fault for fault in self._supervisor.faults.all() if fault.task == self.name]
        latest = max(faults, key=lambda fault: fault.last_ms, default=None)
        error = None if latest is None else latest.error
        runs = self._runs
        if runs.last_ms is None:
            next_ms = self._started_ms + self._delay_ms
        else:
            next_ms = (runs.ended_ms or runs.last_ms) + self.period_ms
        return TaskHealth(
            name=self.name,
            period_ms=self.period_ms,
            run_count=runs.count,
            last_run_ms=runs.last_ms,
            next_run_ms=next_ms,
            last_error=error if isinstance(error, Exception) else None,
            failure_count=len(faults),
        )

    def wait(self) -> None:
        """Return when no action of this task runs in another thread."""
        with self._busy:
            pass

    def _do(self, subject: S) -> None:
        faults = self._supervisor.faults
        try:
            with self._busy:
                self._action(subject)
        except Exception as error:  # noqa: BLE001 - recorded as a fault
            before = faults.get(self.name, subject)
            failures = 1 if before is None else before.failure_count + 1
            pause_ms = min(retry_pause_ms(failures), max(self.period_ms, 1))
            faults.record_failure(self.name, subject, error, retry_after_ms=pause_ms)
            self._supervisor.once(f"{self.name}-retry", lambda: self._retry(subject), pause_ms)
        else:
            faults.clear_error(self.name, subject)

    def _retry(self, subject: S) -> None:
        # Without the fault, the subject was removed in the meantime.
        if self._supervisor.faults.get(self.name, subject) is not None:
            self._do(subject)


class _SupervisedTask(Protocol):
    """A task with any kind of subjects."""

    def health(self) -> TaskHealth: ...
    def wait(self) -> None: ...


class Supervisor:
    """
    Runs periodic tasks on a scheduler, and has the fault registry.

    Args:
        scheduler: runs the tasks.
        clock: time of runs and faults.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self.clock = clock
        self.faults = FaultRegistry(clock)
        self.is_closed = False
        self._scheduler = scheduler
        self._tasks: list[_SupervisedTask] = []
        self._scheduled: list[ScheduledTask] = []

    def every(
        self,
        name: str,
        period_ms: int,
        subjects: Callable[[], Iterable[S]],
        action: Callable[[S], object],
        *,
        delay_ms: int,
    ) -> PeriodicTask[S]:
        """Run `action` for each present subject, first after `delay_ms`, then periodically."""
        task = PeriodicTask(
            name, self, subjects, action, delay_ms=delay_ms, period_ms=max(period_ms, 1)
        )
        self._tasks.append(task)
        self._scheduled.append(
            self._scheduler.schedule(name, task.run, delay_ms=delay_ms, period_ms=max(period_ms, 1))
        )
        return task

    def once(self, name: str, action: Callable[[], object], delay_ms: int) -> None:
        """Run an action after a delay, unless the supervisor is closed then."""
        self._scheduler.schedule(
            name, lambda: None if self.is_closed else action(), delay_ms=delay_ms
        )

    def scheduler_for(self, subject: Subject) -> SupervisedScheduler:
        """Return a scheduler whose failures are faults of `subject`."""
        return SupervisedScheduler(self._scheduler, self.faults, subject)

    def health(self) -> tuple[TaskHealth, ...]:
        """Return the health of the tasks, by name."""
        return tuple(sorted((task.health() for task in self._tasks), key=lambda each: each.name))

    def close(self) -> None:
        """Run no more tasks; a task in another thread ends with its present subject."""
        self.is_closed = True
        for scheduled in self._scheduled:
            scheduled.cancel()
        for task in self._tasks:
            task.wait()


class SupervisedScheduler:
    """A `Scheduler` that records exceptions of its tasks as faults of one subject."""

    __slots__ = ("_faults", "_scheduler", "_subject")

    def __init__(self, scheduler: Scheduler, faults: FaultRegistry, subject: Subject) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._subject = subject

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """See `Scheduler.schedule`."""

        def supervised() -> None:
            try:
                task()
            except Exception as error:
                self._faults.record_failure(name, self._subject, error, retry_after_ms=period_ms)
                raise
            self._faults.clear_error(name, self._subject)

        return self._scheduler.schedule(name, supervised, delay_ms=delay_ms, period_ms=period_ms)
