"""`BackgroundThreads`: parallel tasks, the limit of threads, and their end at close."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from kafkalog.clock import SystemClock
from kafkalog.manager.background import BackgroundThreads
from kafkalog.manager.supervision import Supervisor
from kafkalog.model import TopicPartition
from tests.support.manual_time import ManualClock

WAIT_SECONDS = 30


@pytest.fixture(name="threads")
def fixture_threads() -> Iterator[BackgroundThreads]:
    """Two threads, closed after the test."""
    threads = BackgroundThreads(SystemClock(), 2)
    yield threads
    threads.close()


class Blocker:
    """A task that waits until it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()

    def run(self) -> None:
        """Wait for the release."""
        self.started.set()
        assert self.release.wait(WAIT_SECONDS)


def test_slow_task_does_not_delay_other_tasks(threads: BackgroundThreads) -> None:
    """Also with the same subject, and for each run of a periodic task."""
    supervisor = Supervisor(threads, SystemClock())
    slow, others = Blocker(), threading.Semaphore(0)
    subjects = [TopicPartition("orders", 0)]
    supervisor.every("slow", 1, lambda: subjects, lambda _: slow.run(), delay_ms=0)
    assert slow.started.wait(WAIT_SECONDS)
    supervisor.every("quick", 1, lambda: subjects, lambda _: others.release(), delay_ms=0)
    for _ in range(3):
        assert others.acquire(timeout=WAIT_SECONDS)
    slow.release.set()
    supervisor.close()


def test_tasks_beyond_the_thread_limit_wait_in_order(
    threads: BackgroundThreads,
) -> None:
    """They run when a thread is free or when the limit rises."""
    blockers = [Blocker() for _ in range(4)]
    for blocker in blockers:
        threads.schedule("blocks", blocker.run, delay_ms=0)
    assert all(blocker.started.wait(WAIT_SECONDS) for blocker in blockers[:2])
    assert not any(blocker.started.is_set() for blocker in blockers[2:])
    blockers[1].release.set()
    assert blockers[2].started.wait(WAIT_SECONDS)
    assert not blockers[3].started.is_set()
    threads.set_thread_count(4)
    last = Blocker()
    threads.schedule("blocks", last.run, delay_ms=0)
    assert blockers[3].started.wait(WAIT_SECONDS)
    for blocker in (*blockers, last):
        blocker.release.set()


def test_lower_thread_limit_ends_idle_threads(threads: BackgroundThreads) -> None:
    """A thread ends after its current task."""
    seen: list[str] = []
    for blockers in ([Blocker(), Blocker()], [Blocker()]):
        for blocker in blockers:
            threads.schedule("blocks", blocker.run, delay_ms=0)
        assert all(blocker.started.wait(WAIT_SECONDS) for blocker in blockers)
        workers = [each for each in threading.enumerate() if each.name == "kafkalog-background"]
        seen.append(str(len(workers)))
        threads.set_thread_count(1)
        for blocker in blockers:
            blocker.release.set()
        if len(workers) == 2:
            # The first idle thread ends; the other one stays.
            while all(worker.is_alive() for worker in workers):
                workers[0].join(0.001)
    assert ["2", "1"] == seen


def test_failed_task_runs_again_and_cancelled_task_does_not() -> None:
    """The task keeps its last error until it succeeds."""
    clock = ManualClock()
    threads = BackgroundThreads(clock, 3)
    runs, failing = threading.Semaphore(0), threading.Event()

    def work() -> None:
        runs.release()
        if failing.is_set():
            raise ValueError("as asked")

    failing.set()
    task = threads.schedule("periodic", work, delay_ms=0, period_ms=10)
    assert runs.acquire(timeout=WAIT_SECONDS)
    settle(threads)
    assert "as asked" == str(task.last_error)
    failing.clear()
    clock.advance(10)
    settle(threads)
    assert runs.acquire(timeout=WAIT_SECONDS)
    settle(threads)
    assert (None, 2) == (task.last_error, task.run_count)
    task.cancel()
    clock.advance(10)
    settle(threads)
    assert 2 == task.run_count
    threads.close()


def settle(threads: BackgroundThreads) -> None:
    """Return when all due tasks have been started and every thread was free once."""
    blockers = [Blocker() for _ in range(threads.thread_count)]
    for blocker in blockers:
        threads.schedule("settle", blocker.run, delay_ms=0)
    for blocker in blockers:
        assert blocker.started.wait(WAIT_SECONDS)
    for blocker in blockers:
        blocker.release.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_task_that_ends_its_thread_runs_again_on_another_thread() -> None:
    """`GeneratorExit` does not end a periodic task."""
    threads = BackgroundThreads(SystemClock(), 1)
    runs, ended = threading.Semaphore(0), list[threading.Thread]()

    def work() -> None:
        ended.append(threading.current_thread())
        runs.release()
        raise GeneratorExit

    threads.schedule("deadly", work, delay_ms=0, period_ms=1)
    for _ in range(3):
        assert runs.acquire(timeout=WAIT_SECONDS)
    threads.close()
    for thread in ended:
        thread.join(WAIT_SECONDS)
    assert len(ended) == len(set(ended))


def test_close_waits_for_running_tasks_and_drops_the_others() -> None:
    """A task that is scheduled after it is returned cancelled."""
    threads = BackgroundThreads(SystemClock(), 1)
    running, waiting = Blocker(), Blocker()
    threads.schedule("running", running.run, delay_ms=0)
    assert running.started.wait(WAIT_SECONDS)
    threads.schedule("waiting", waiting.run, delay_ms=0)
    closer = threading.Thread(target=threads.close)
    closer.start()
    while not threads.schedule("late", waiting.run, delay_ms=10**9).is_cancelled:
        closer.join(0.001)
    running.release.set()
    closer.join(WAIT_SECONDS)
    assert not closer.is_alive()
    assert not waiting.started.is_set()
    assert threads.schedule("late", waiting.run, delay_ms=0).is_cancelled
    threads.close()


def test_close_by_a_task_does_not_wait_for_itself() -> None:
    """The task continues after `close`."""
    threads, done = BackgroundThreads(SystemClock(), 1), threading.Event()

    def work() -> None:
        threads.close()
        done.set()

    threads.schedule("closes", work, delay_ms=0)
    assert done.wait(WAIT_SECONDS)


def test_schedule_invalid_delay_or_period_is_refused(threads: BackgroundThreads) -> None:
    """As by every scheduler."""
    for delay_ms, period_ms in ((-1, None), (0, 0), (0, -5)):
        with pytest.raises(ValueError, match=r"never: .*period (must be )?at least 1 ms, got"):
            threads.schedule("never", lambda: None, delay_ms=delay_ms, period_ms=period_ms)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_starts_new_threads(threads: BackgroundThreads) -> None:
    """It has no threads, tasks or held locks of its parent."""
    blocker = Blocker()
    threads.schedule("parent's", blocker.run, delay_ms=0)
    assert blocker.started.wait(WAIT_SECONDS)
    child = os.fork()
    if not child:
        done = threading.Event()
        threads.schedule("child's", done.set, delay_ms=0)
        ran = done.wait(WAIT_SECONDS)
        threads.close()
        os._exit(0 if ran else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    blocker.release.set()
