"""Cleaning during truncation, deletion, changed settings, close and fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    CleanerConfig,
    ConfigError,
    ForkedLogError,
    LogCleaningAbortedError,
    LogClosedError,
    LogManager,
    LogOfflineError,
    ManagerConfig,
    ThreadScheduler,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from kafkalog.log.log import partition_of
from kafkalog.manager.cleaning.worker import CleanerWorker
from tests.support.fake_cleaner import FakeCleaners, Stage
from tests.support.managers import SMALL_LOG, fail_directory, scheduler_of
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.manager.cleaning.test_background import (
    COMPACTED,
    DATA,
    fill,
    first_round,
    noted,
    one_manager,
)

WAIT_SECONDS = 30
NAME = TopicPartition("table", 0)
# A cleaning that pays with this limit waits until it is aborted.
SLOW = CleanerConfig(io_max_bytes_per_second=1.0)


class Held:
    """A cleaning in a separate thread that continues until it is aborted or released."""

    def __init__(self, manager: LogManager, cleaners: FakeCleaners) -> None:
        self.outcome: list[object] = []
        self._started = threading.Event()
        self._was_aborted = threading.Event()
        self._may_end = threading.Event()
        cleaners.play = self._play
        self._thread = threading.Thread(target=self._compact, args=(manager,))
        self._thread.start()
        assert self._started.wait(WAIT_SECONDS)
        cleaners.play = lambda _stage: None

    def end(self) -> object:
        """Return the result or the exception of the cleaning."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.outcome[0]

    def release(self) -> None:
        """Let the cleaning succeed."""
        self._may_end.set()

    def _compact(self, manager: LogManager) -> None:
        try:
            self.outcome.append(manager.compact("table"))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.outcome.append(error)

    def _play(self, stage: Stage) -> None:
        self._started.set()
        stage.throttle(10**12)
        stage.check()


class Stubborn(Held):
    """A cleaning that checks late whether it was aborted."""

    def wait_until_aborted(self) -> None:
        """Return when the cleaning is aborted."""
        assert self._was_aborted.wait(WAIT_SECONDS)

    def _play(self, stage: Stage) -> None:
        self._started.set()
        stage.throttle(10**12)
        self._was_aborted.set()
        assert self._may_end.wait(WAIT_SECONDS)


class Patient(Held):
    """A cleaning that is not aborted and continues until the test releases it."""

    def _play(self, stage: Stage) -> None:
        self._started.set()
        assert self._may_end.wait(WAIT_SECONDS)


def dirty_manager(**arguments: Any) -> tuple[SimulatedDisk, LogManager]:
    """Return a manager with a dirty log whose cleaning waits for its throttle."""
    disk, manager = one_manager(SLOW, **arguments)
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 6)
    return disk, manager


@contextmanager
def in_background(action: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run an action in a thread; join the thread at the end."""
    thread = threading.Thread(target=action)
    thread.start()
    yield thread
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("way", ["truncate_to", "truncate_fully_and_start_at"])
def test_truncation_aborts_the_cleaning_and_lowers_its_checkpoint(
    cleaners: FakeCleaners, way: str
) -> None:
    """New records above the new end have not been cleaned."""
    disk, manager = dirty_manager()
    log = manager.log("table")
    log.flush()
    manager.compact("table")
    assert {"table-0": 5} == noted(disk)
    fill(manager, "table", 2)
    held = Held(manager, cleaners)
    getattr(log, way)(3)
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert ({"table-0": 3}, 3) == (noted(disk), log.log_end_offset)
    fill(manager, "table", 3)
    manager.compact("table")
    assert ("table-0", 3, 5) == cleaners.spans[-1]


def test_truncation_waits_for_the_aborted_cleaning_to_end(cleaners: FakeCleaners) -> None:
    """It waits without the lock of the log, so appends succeed."""
    _disk, manager = dirty_manager()
    log = manager.log("table")
    held = Stubborn(manager, cleaners)
    with in_background(lambda: log.truncate_to(2)):
        held.wait_until_aborted()
        assert 6 == log.log_end_offset
        fill(manager, "table", 1)
        held.release()
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert 2 == log.log_end_offset


def test_truncation_by_the_cleaning_thread_is_refused(cleaners: FakeCleaners) -> None:
    """A progress callback would wait for its own cleaning."""
    disk, manager = dirty_manager()
    log = manager.log("table")
    cleaners.play = lambda stage: stage.log.truncate_to(2)
    with pytest.raises(LogCleaningAbortedError, match="by this thread"):
        manager.compact("table")
    assert (6, {}) == (log.log_end_offset, noted(disk))
    cleaners.play = lambda _stage: None
    manager.compact("table")
    assert {"table-0": 5} == noted(disk)


def test_delete_records_does_not_abort_a_cleaning(cleaners: FakeCleaners) -> None:
    """The replacement checks whether the segments still exist."""
    disk, manager = dirty_manager()
    held = Patient(manager, cleaners)
    manager.log("table").delete_records(3)
    held.release()
    assert not isinstance(held.end(), Exception)
    assert {"table-0": 5} == noted(disk)


@pytest.mark.parametrize("what", ["topic", "partition"])
def test_deletion_of_a_partition_aborts_its_cleaning(cleaners: FakeCleaners, what: str) -> None:
    """A new partition with the same name is cleaned from its beginning."""
    disk, manager = dirty_manager()
    held = Held(manager, cleaners)
    if what == "topic":
        manager.delete_topic("table")
    else:
        manager.delete_partition("table", 0)
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert {} == noted(disk)
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.compact("table")
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 2)
    manager.compact("table")
    assert (("table-0", 0, 1), {"table-0": 1}) == (cleaners.spans[-1], noted(disk))


def test_deletion_waits_for_a_cleaning_without_the_manager_lock(cleaners: FakeCleaners) -> None:
    """A progress callback can create a topic during the wait."""
    _disk, manager = dirty_manager()
    start = threading.Event()
    made: list[str] = []

    def play(stage: Stage) -> None:
        start.set()
        stage.throttle(10**12)
        manager.create_topic("within")
        made.append("within")

    cleaners.play = play
    outcome: list[Exception] = []

    def compact() -> None:
        try:
            manager.compact("table")
        except LogCleaningAbortedError as error:
            outcome.append(error)

    with in_background(compact):
        assert start.wait(WAIT_SECONDS)
        manager.delete_topic("table")
    assert (["within"], 1) == (made, len(outcome))
    assert {"within": (0,)} == manager.topics()


@pytest.mark.parametrize("by_default", [False, True])
def test_policy_without_compaction_aborts_the_cleaning(
    cleaners: FakeCleaners, by_default: bool
) -> None:
    """For the policy of a topic and for the default; other changes do not abort it."""
    disk, manager = dirty_manager()
    if by_default:
        manager.reconfigure_defaults({"log.cleanup.policy": "compact"})
        manager.reconfigure("table", {"cleanup.policy": None})
    held = Held(manager, cleaners)
    manager.reconfigure("table", {"min.cleanable.dirty.ratio": "0.7"})
    assert not manager.health().cleaner.under_way[0].is_aborted
    if by_default:
        manager.reconfigure_defaults({"log.cleanup.policy": "delete"})
    else:
        manager.reconfigure("table", {"cleanup.policy": "delete"})
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert {} == noted(disk)
    with pytest.raises(ConfigError, match=r"table-0 is not compacted: .* = delete"):
        manager.compact("table")


def test_policy_changed_by_the_cleaning_thread_aborts_the_cleaning(cleaners: FakeCleaners) -> None:
    """The next check of the cleaning raises."""
    _disk, manager = dirty_manager()
    cleaners.play = lambda _stage: manager.reconfigure("table", {"cleanup.policy": "delete"})
    with pytest.raises(LogCleaningAbortedError, match="was aborted"):
        manager.compact("table")


def test_close_aborts_running_and_waiting_cleanings(cleaners: FakeCleaners) -> None:
    """One waits for its throttle, the other one to begin."""
    disk, manager = dirty_manager()
    held = Held(manager, cleaners)
    second: list[BaseException] = []

    def compact() -> None:
        try:
            manager.compact("table")
        except LogClosedError as error:
            second.append(error)

    with in_background(compact):
        manager.close()
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert (1, {}) == (len(second), noted(disk))
    with pytest.raises(LogClosedError):
        manager.compact("table")


def test_close_by_the_cleaning_thread_does_not_wait_for_itself(cleaners: FakeCleaners) -> None:
    """The next check of the cleaning raises."""
    disk, manager = dirty_manager()
    cleaners.play = lambda _stage: manager.close()
    with pytest.raises(LogCleaningAbortedError):
        manager.compact("table")
    assert (True, {}) == (manager.is_closed, noted(disk))
    assert [] == cleaners.threads[1:]


def test_cleaner_thread_that_cannot_start_is_a_fault_and_retried(
    cleaners: FakeCleaners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds of the existing threads retry the start."""
    _disk, manager = one_manager(CleanerConfig(threads=2))
    refusals = ["table"]
    start = CleanerWorker.start

    def start_or_refuse(worker: CleanerWorker, delay_ms: int) -> None:
        if worker.name.endswith("-1") and refusals:
            raise RuntimeError(f"no thread for {refusals.pop()}")
        start(worker, delay_ms)

    monkeypatch.setattr(CleanerWorker, "start", start_or_refuse)
    manager.create_topic("table", 2, COMPACTED)
    (fault,) = manager.health().faults
    assert ("kafka-log-cleaner-thread-1", 1) == (
        fault.task,
        manager.health().cleaner.thread_count,
    )
    first_round(manager)
    assert 2 == manager.health().cleaner.thread_count
    scheduler_of(manager).advance(15_000)
    assert ((), []) == (manager.health().faults, cleaners.spans)


def test_disk_error_aborts_a_cleaning_without_waiting(
    cleaners: FakeCleaners,
) -> None:
    """`bring_online` waits for its end."""
    disk, manager = dirty_manager()
    held = Stubborn(manager, cleaners)
    fail_directory(disk, manager, "table")
    with in_background(lambda: manager.bring_online(DATA)):
        held.wait_until_aborted()
        held.release()
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert (True, {}) == (manager.health().directories[0].is_online, noted(disk))
    manager.compact("table")
    assert {"table-0": 5} == noted(disk)


def test_offline_log_is_reopened_after_its_cleaning_has_ended(
    cleaners: FakeCleaners,
) -> None:
    """Recovery during the cleaning would read files that are being written."""
    _disk, manager = dirty_manager()
    old = manager.log("table")
    held = Stubborn(manager, cleaners)
    partition_of(old).gate.mark_offline(OSError("as asked"), notify=False)
    found: list[object] = []
    with in_background(lambda: found.append(manager.log("table"))):
        held.wait_until_aborted()
        assert [] == found
        held.release()
    assert isinstance(held.end(), LogCleaningAbortedError)
    assert [manager.log("table")] == found
    assert old is not found[0]
    with pytest.raises(LogClosedError):
        old.truncate_to(0)


def test_compact_during_a_cleaning_waits_and_cleans_the_rest(cleaners: FakeCleaners) -> None:
    """With `include_active` it then cleans the newest records."""
    disk, manager = dirty_manager()
    held = Patient(manager, cleaners)
    answers: list[Any] = []
    with in_background(lambda: answers.append(manager.compact("table", include_active=True))):
        held.release()
    assert ("table-0", 0, 5) == cleaners.spans[0]
    assert not isinstance(held.end(), Exception)
    assert (5, 6) == (answers[0].first_dirty, answers[0].end_offset)
    assert {"table-0": 6} == noted(disk)
    assert ["compact"] == list(manager.health().cleaner.last_cleanings)


def test_background_skips_a_log_that_is_being_cleaned(cleaners: FakeCleaners) -> None:
    """The other logs are cleaned."""
    _disk, manager = dirty_manager()
    manager.create_topic("other", 1, COMPACTED)
    fill(manager, "other", 3)
    held = Patient(manager, cleaners)
    first_round(manager)
    assert ["table-0", "other-0"] == [name for name, _, _ in cleaners.spans]
    held.release()
    held.end()


def test_compact_raises_the_error_of_its_callback(cleaners: FakeCleaners) -> None:
    """The partition is free afterwards and has no fault."""
    _disk, manager = dirty_manager()
    steps: list[object] = []

    def on_progress(progress: object) -> None:
        steps.append(progress)
        raise ZeroDivisionError("as asked")

    cleaners.play = lambda stage: stage.tell("begun")
    with pytest.raises(ZeroDivisionError):
        manager.compact("table", on_progress=on_progress)
    assert (["begun"], ()) == (steps, manager.health().faults)
    manager.compact("table", on_progress=steps.append)
    assert ["begun", "begun"] == steps


def test_cleaner_threads_run_in_parallel_and_are_replaced_on_errors(cleaners: FakeCleaners) -> None:
    """They have the names of a broker's threads; `health` counts the replacements."""
    ended, meeting = threading.Event(), threading.Event()
    both = threading.Barrier(2)
    done = threading.Semaphore(0)

    class EndError(BaseException):
        """Not an `Exception`, so no handler catches it."""

    def play(_stage: Stage) -> None:
        if not meeting.is_set():
            both.wait(WAIT_SECONDS)
            meeting.set()
            if threading.current_thread().name.endswith("-0"):
                raise EndError
        done.release()

    cleaners.play = play
    hook, threading.excepthook = threading.excepthook, lambda _args: ended.set()
    config = ManagerConfig(
        log=SMALL_LOG,
        log_initial_task_delay_ms=0,
        cleaner=CleanerConfig(threads=2, backoff_ms=1),
    )
    try:
        with LogManager([DATA], config, filesystem=SimulatedDisk()) as manager:
            manager.create_topic("table", 2, {**COMPACTED, "min.cleanable.dirty.ratio": "0"})
            fill(manager, "table", 3, 0)
            fill(manager, "table", 3, 1)
            assert ended.wait(WAIT_SECONDS)
            names = {name for name in cleaners.threads if name.startswith("kafka-log-cleaner")}
            assert {f"kafka-log-cleaner-thread-{number}" for number in (0, 1)} == names
            health = manager.health().cleaner
            assert (2, 2, 1) == (health.thread_count, health.alive_count, health.replaced_count)
            assert done.acquire(timeout=WAIT_SECONDS)
            manager.create_topic("more", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "0"})
            fill(manager, "more", 3)
            assert done.acquire(timeout=WAIT_SECONDS)
        left = [each.name for each in threading.enumerate() if "cleaner" in each.name]
        assert [] == left
    finally:
        threading.excepthook = hook


def test_manager_without_compacted_topics_has_no_cleaner_thread(cleaners: FakeCleaners) -> None:
    """Also if the caller's scheduler has a thread, which the cleaner does not use."""
    scheduler = ThreadScheduler()
    with LogManager([DATA], filesystem=SimulatedDisk(), scheduler=scheduler) as manager:
        manager.create_topic("stream")
        names = [each.name for each in threading.enumerate()]
        assert not any("cleaner" in name for name in names)
        manager.create_topic("table", 1, COMPACTED)
        names = [each.name for each in threading.enumerate()]
        assert "kafka-log-cleaner-thread-0" in names
        manager.reconfigure_defaults({"log.cleaner.threads": "0"})
    scheduler.close()
    assert [] == cleaners.spans


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_refuses_cleaning_and_closes_without_waiting(
    cleaners: FakeCleaners, tmp_path: Path
) -> None:
    """Although the parent forks during a cleaning."""
    config = ManagerConfig(log=SMALL_LOG, cleaner=SLOW)
    manager = LogManager([tmp_path / "data"], config)
    manager.create_topic("table", 1, COMPACTED)
    fill(manager, "table", 4)
    held = Held(manager, cleaners)
    log = manager.log("table")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for action in (
                lambda: manager.compact("table"),
                lambda: log.truncate_to(0),
                lambda: manager.delete_topic("table"),
                lambda: manager.reconfigure("table", {"cleanup.policy": "delete"}),
            ):
                try:
                    action()
                except ForkedLogError:
                    refused += 1
            manager.close()
            code = 0 if refused == 4 else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    manager.close()
    assert isinstance(held.end(), LogCleaningAbortedError)


def test_compact_in_an_offline_directory_is_refused(cleaners: FakeCleaners) -> None:
    """With the error of every other write."""
    disk, manager = dirty_manager()
    fail_directory(disk, manager, "table")
    with pytest.raises(LogOfflineError):
        manager.compact("table")
    assert [] == cleaners.spans
