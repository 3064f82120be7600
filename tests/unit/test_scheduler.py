"""Tests of both schedulers: order, periods, errors, cancelling, closing, forking; no sleeps."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.scheduler import ScheduledTask, ThreadScheduler
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS = 30


class FailureError(Exception):
    """An error of the tasks of these tests."""


def fail() -> None:
    """A task that always fails."""
    raise FailureError("as asked")


@pytest.fixture(name="scheduler")
def fixture_scheduler() -> Iterator[ThreadScheduler]:
    """A scheduler with a thread, closed at the end."""
    scheduler = ThreadScheduler()
    yield scheduler
    scheduler.close()


def settle(scheduler: ThreadScheduler) -> None:
    """Return once all tasks that were due before have run: tasks run one after another."""
    done = threading.Event()
    scheduler.schedule("settle", done.set, delay_ms=0)
    assert done.wait(WAIT_SECONDS)


# -- the thread --------------------------------------------------------------------------------


def test_thread_scheduler_runs_a_task_once_on_its_own_daemon_thread(
    scheduler: ThreadScheduler,
) -> None:
    """One thread for all tasks, which does not keep the process alive."""
    seen: list[threading.Thread] = []
    first = scheduler.schedule("first", lambda: seen.append(threading.current_thread()), delay_ms=0)
    settle(scheduler)
    scheduler.schedule("second", lambda: seen.append(threading.current_thread()), delay_ms=0)
    settle(scheduler)
    assert 2 == len(seen)
    assert seen[0] is seen[1]
    assert seen[0] is not threading.current_thread()
    assert seen[0].daemon
    assert (1, True, None) == (first.run_count, first.is_cancelled, first.last_error)


def test_thread_scheduler_starts_no_thread_before_the_first_task() -> None:
    """A log that needs no background work has no thread."""
    before = threading.active_count()
    scheduler = ThreadScheduler()
    assert before == threading.active_count()
    scheduler.close()
    scheduler.close()


def test_thread_scheduler_runs_due_tasks_in_order_of_time() -> None:
    """Due times decide, then the order of scheduling; what is not due waits."""
    clock = ManualClock()
    scheduler = ThreadScheduler(clock)
    order: list[str] = []
    for name, delay_ms in (("late", 50_000), ("early", 10_000), ("also early", 10_000)):
        scheduler.schedule(name, functools.partial(order.append, name), delay_ms=delay_ms)
    settle(scheduler)
    assert [] == order
    clock.advance(10_000)
    settle(scheduler)
    assert ["early", "also early"] == order
    clock.advance(40_000)
    settle(scheduler)
    assert ["early", "also early", "late"] == order
    scheduler.close()


def test_thread_scheduler_runs_delayed_tasks_without_a_call(scheduler: ThreadScheduler) -> None:
    """The thread wakes at the due time."""
    done = threading.Event()
    scheduler.schedule("delayed", done.set, delay_ms=5)
    assert done.wait(WAIT_SECONDS)


def test_thread_scheduler_failing_task_is_reported_and_retried() -> None:
    """The error is kept and passed to the handler; the thread and the other tasks continue."""
    clock = ManualClock()
    errors: list[tuple[str, str]] = []
    scheduler = ThreadScheduler(
        clock, on_error=lambda task, error: errors.append((task.name, str(error)))
    )
    task = scheduler.schedule("bad", fail, delay_ms=0, period_ms=1000)
    settle(scheduler)
    assert isinstance(task.last_error, FailureError)
    clock.advance(1000)
    settle(scheduler)
    assert ([("bad", "as asked")] * 2, 2) == (errors, task.run_count)
    assert not task.is_cancelled
    scheduler.close()


def test_thread_scheduler_task_that_ends_the_thread_keeps_other_tasks() -> None:
    """Another thread takes over and is counted; the task runs again at its next period."""
    clock = ManualClock()
    scheduler = ThreadScheduler(clock, thread_name="named")
    ended, runs = threading.Event(), threading.Semaphore(0)
    names: list[str] = []

    class EndError(BaseException):
        """An error that no handler of errors stops."""

    def end() -> None:
        names.append(threading.current_thread().name)
        runs.release()
        if len(names) == 1:
            raise EndError

    hook, threading.excepthook = threading.excepthook, lambda _args: ended.set()
    try:
        assert not scheduler.is_alive
        task = scheduler.schedule("end", end, delay_ms=0, period_ms=10)
        assert ended.wait(WAIT_SECONDS)
        assert (True, 1) == (scheduler.is_alive, scheduler.replaced_count)
        settle(scheduler)
        clock.advance(10)
        settle(scheduler)
        assert (["named", "named"], 2, False) == (names, task.run_count, task.is_cancelled)
    finally:
        threading.excepthook = hook
        scheduler.close()
    assert not scheduler.is_alive


def test_thread_scheduler_last_error_is_cleared_by_a_good_run() -> None:
    """It has the state of the last run."""
    clock = ManualClock()
    scheduler = ThreadScheduler(clock)
    is_broken = threading.Event()
    is_broken.set()

    def work() -> None:
        if is_broken.is_set():
            fail()

    task = scheduler.schedule("mixed", work, delay_ms=0, period_ms=10)
    settle(scheduler)
    errors = [task.last_error]
    is_broken.clear()
    clock.advance(10)
    settle(scheduler)
    errors.append(task.last_error)
    assert (["as asked", "None"], 2) == ([str(error) for error in errors], task.run_count)
    scheduler.close()


def test_thread_scheduler_failing_error_handler_does_not_end_the_thread() -> None:
    """An error in a listener must not stop the flushes of other logs."""

    def on_error(task: ScheduledTask, error: Exception) -> None:
        raise FailureError("in the handler")

    scheduler = ThreadScheduler(on_error=on_error)
    task = scheduler.schedule("bad", fail, delay_ms=0)
    settle(scheduler)
    assert "as asked" == str(task.last_error)
    scheduler.close()


def test_thread_scheduler_cancelled_task_does_not_run() -> None:
    """Before its first run, and between two."""
    clock = ManualClock()
    scheduler = ThreadScheduler(clock)
    runs: list[str] = []
    never = scheduler.schedule("never", lambda: runs.append("never"), delay_ms=10)
    once = scheduler.schedule("once", lambda: runs.append("once"), delay_ms=0, period_ms=10)
    settle(scheduler)
    never.cancel()
    once.cancel()
    once.cancel()
    clock.advance(100)
    settle(scheduler)
    assert ["once"] == runs
    assert "cancelled" in repr(never)
    scheduler.close()


def test_thread_scheduler_task_may_cancel_itself_and_schedule_others() -> None:
    """Calls within a task do not deadlock."""
    clock = ManualClock()
    scheduler = ThreadScheduler(clock)
    runs: list[str] = []
    tasks: list[ScheduledTask] = []

    def work() -> None:
        runs.append("outer")
        tasks[0].cancel()
        scheduler.schedule("inner", lambda: runs.append("inner"), delay_ms=0)

    tasks.append(scheduler.schedule("outer", work, delay_ms=10, period_ms=10))
    clock.advance(50)
    settle(scheduler)
    settle(scheduler)
    clock.advance(50)
    settle(scheduler)
    assert ["outer", "inner"] == runs
    scheduler.close()


def test_thread_scheduler_close_waits_for_the_running_task_and_drops_the_rest() -> None:
    """After close no task runs, and newly scheduled tasks are returned cancelled."""
    scheduler = ThreadScheduler()
    started, release = threading.Event(), threading.Event()
    runs: list[str] = []

    def work() -> None:
        started.set()
        release.wait(WAIT_SECONDS)
        runs.append("running")

    scheduler.schedule("running", work, delay_ms=0)
    scheduler.schedule("waiting", lambda: runs.append("waiting"), delay_ms=0)
    assert started.wait(WAIT_SECONDS)
    closer = threading.Thread(target=scheduler.close)
    closer.start()
    release.set()
    closer.join(WAIT_SECONDS)
    assert not closer.is_alive()
    late = scheduler.schedule("late", lambda: runs.append("late"), delay_ms=0)
    assert late.is_cancelled
    assert ["running"] == runs


def test_thread_scheduler_may_be_closed_by_its_own_task() -> None:
    """Then there is no thread to wait for."""
    scheduler = ThreadScheduler()
    done = threading.Event()

    def work() -> None:
        scheduler.close()
        done.set()

    scheduler.schedule("closes", work, delay_ms=0)
    assert done.wait(WAIT_SECONDS)


def test_cancelled_task_releases_its_function() -> None:
    """A closed log must not stay in memory until its next flush."""

    class Owner:
        def work(self) -> None:
            """Do nothing."""

    scheduler = ManualScheduler()
    owner = Owner()
    alive = weakref.ref(owner)
    task = scheduler.schedule("owned", owner.work, delay_ms=1_000_000)
    del owner
    gc.collect()
    assert alive() is not None
    task.cancel()
    gc.collect()
    assert alive() is None


FORK = """
import os, threading
from kafkalog.scheduler import ThreadScheduler

scheduler = ThreadScheduler()
started, release = threading.Event(), threading.Event()
def work():
    started.set()
    release.wait(30)
scheduler.schedule("parent's", work, delay_ms=0)
scheduler.schedule("only the parent's", lambda: print("parent ran it", flush=True), delay_ms=0)
started.wait(30)
child = os.fork()
if child == 0:
    done = threading.Event()
    scheduler.schedule("child's", done.set, delay_ms=0)
    ran = done.wait(30)
    scheduler.close()
    os._exit(0 if ran else 1)
status = os.waitpid(child, 0)[1]
held = os.fork()
if held == 0:
    scheduler.close()
    os._exit(0)
closed = os.waitpid(held, 0)[1]
release.set()
done = threading.Event()
scheduler.schedule("last", done.set, delay_ms=0)
done.wait(30)
scheduler.close()
print(status, closed, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_thread_scheduler_after_fork_restarts_in_the_child() -> None:
    """The child has neither the parent's thread nor its tasks, and does not wait for its lock."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ("parent ran it\n0 0\n", "", 0) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.parametrize(("delay_ms", "period_ms"), [(-1, None), (0, 0), (0, -5)])
def test_schedule_impossible_times_raise(delay_ms: int, period_ms: int | None) -> None:
    """A period of 0 would leave no time for other tasks."""
    for scheduler in (ThreadScheduler(), ManualScheduler()):
        with pytest.raises(ValueError, match="never: delay"):
            scheduler.schedule("never", fail, delay_ms=delay_ms, period_ms=period_ms)


# -- the manual one ----------------------------------------------------------------------------


def test_manual_scheduler_advance_stops_at_every_due_time() -> None:
    """Each task sees the time it was due at; a period counts from the run."""
    scheduler = ManualScheduler()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, scheduler.clock.now_ms() - START_MS))

    scheduler.schedule("periodic", lambda: note("periodic"), delay_ms=10, period_ms=20)
    scheduler.schedule("single", lambda: note("single"), delay_ms=30)
    scheduler.schedule("far", lambda: note("far"), delay_ms=1000)
    assert [("periodic", 10), ("single", 30), ("far", 1000)] == scheduler.pending
    assert 4 == scheduler.advance(55)
    assert [("periodic", 10), ("single", 30), ("periodic", 30), ("periodic", 50)] == seen
    assert [("periodic", 15), ("far", 945)] == scheduler.pending
    assert (START_MS + 55, 55) == (scheduler.clock.now_ms(), scheduler.clock.monotonic_ms())


def test_manual_scheduler_errors_are_kept() -> None:
    """A failing task is visible to the test and stays scheduled."""
    scheduler = ManualScheduler()
    task = scheduler.schedule("bad", fail, delay_ms=0, period_ms=5)
    scheduler.advance(5)
    assert ["bad", "bad"] == [name for name, _error in scheduler.errors]
    assert isinstance(task.last_error, FailureError)
    task.cancel()
    assert [] == scheduler.pending
    assert 0 == scheduler.advance(100)


def test_manual_clock_moves_only_by_calls() -> None:
    """The wall clock may be set back, the monotonic one never goes back."""
    clock = ManualClock()
    clock.advance(7)
    clock.set_now(3)
    assert (3, 7) == (clock.now_ms(), clock.monotonic_ms())
    with pytest.raises(ValueError, match="must be >= 0 ms, got -1"):
        clock.advance(-1)
