"""`CleaningStates`: the table of its docstring, event by event, and many threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from kafkalog import LogCleaningAbortedError, LogClosedError, TopicPartition
from kafkalog.manager.cleaning.states import CleaningState, CleaningStates, Phase

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
WAIT_SECONDS = 30

NONE = CleaningState(Phase.NONE)
IN_PROGRESS = CleaningState(Phase.IN_PROGRESS)


def paused(count: int) -> CleaningState:
    """Return the state of a partition with `count` pauses."""
    return CleaningState(Phase.PAUSED, count)


def aborted(count: int) -> CleaningState:
    """Return the state of a cleaning with `count` waiting threads."""
    return CleaningState(Phase.ABORTED, count)


class Partition:
    """A partition in a given state, with the threads that clean it and wait for it."""

    def __init__(self, state: CleaningState) -> None:
        self.states = CleaningStates()
        self.run = None
        self._waiting: list[threading.Thread] = []
        if state.phase in (Phase.IN_PROGRESS, Phase.ABORTED):
            # In another thread, because no thread waits for its own cleaning.
            self._in_thread(lambda: setattr(self, "run", self.states.begin(NAME)))
        for _ in range(state.pause_count):
            if state.phase is Phase.PAUSED:
                self.states.abort_and_pause(NAME)
            else:
                self.pause_in_background()
        assert state == self.state

    @property
    def state(self) -> CleaningState:
        """The current state."""
        return self.states.state_of(NAME)

    def pause_in_background(self) -> None:
        """Pause it in another thread; return when that thread waits."""
        count = self.state.pause_count
        thread = threading.Thread(target=self.states.abort_and_pause, args=(NAME,))
        thread.start()
        self._waiting.append(thread)
        deadline = time.monotonic() + WAIT_SECONDS
        while self.state.pause_count <= count:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def begin(self) -> object:
        """Call `begin`; return whether the cleaning has begun."""
        return self.states.begin(NAME) is not None

    def resume(self) -> None:
        """Call `resume`."""
        self.states.resume(NAME)

    def done(self) -> object:
        """Call `finish`, with a run of other states if none is running here."""
        run = self.run
        if run is None:
            other = CleaningStates()
            run = other.begin(NAME)
        assert run is not None
        return self.states.finish(run)

    def settle(self) -> None:
        """Return when the waiting threads have ended."""
        for thread in self._waiting:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()

    @staticmethod
    def _in_thread(action: Callable[[], object]) -> None:
        thread = threading.Thread(target=action)
        thread.start()
        thread.join(WAIT_SECONDS)


@pytest.mark.parametrize(
    ("event", "before", "answer", "after"),
    [
        ("begin", NONE, True, IN_PROGRESS),
        ("begin", IN_PROGRESS, False, IN_PROGRESS),
        ("begin", aborted(1), False, aborted(1)),
        ("begin", paused(1), False, paused(1)),
        ("done", NONE, RuntimeError, NONE),
        ("done", IN_PROGRESS, True, NONE),
        ("done", aborted(1), False, paused(1)),
        ("done", aborted(3), False, paused(3)),
        ("done", paused(1), RuntimeError, paused(1)),
        ("resume", NONE, RuntimeError, NONE),
        ("resume", IN_PROGRESS, RuntimeError, IN_PROGRESS),
        ("resume", aborted(1), RuntimeError, aborted(1)),
        ("resume", paused(1), None, NONE),
        ("resume", paused(3), None, paused(2)),
        ("pause_in_background", NONE, None, paused(1)),
        ("pause_in_background", IN_PROGRESS, None, aborted(1)),
        ("pause_in_background", aborted(1), None, aborted(2)),
        ("pause_in_background", paused(1), None, paused(2)),
    ],
)
def test_event_leads_to_the_state_in_the_table(
    event: str, before: CleaningState, answer: object, after: CleaningState
) -> None:
    """Every field of the table in the module docstring."""
    partition = Partition(before)
    action = getattr(partition, event)
    if answer is RuntimeError:
        with pytest.raises(RuntimeError, match="is not"):
            action()
    else:
        assert answer == action()
    assert after == partition.state
    if after.phase is Phase.ABORTED and partition.run is not None:
        partition.states.finish(partition.run)
    partition.settle()


def test_abort_and_pause_waits_for_the_end_of_the_cleaning() -> None:
    """The files of the cleaning must be removed from the directory first."""
    partition = Partition(IN_PROGRESS)
    assert partition.run is not None
    partition.run.check()
    partition.pause_in_background()
    with pytest.raises(LogCleaningAbortedError, match="orders-0"):
        partition.run.check()
    assert not partition.states.finish(partition.run)
    partition.settle()
    assert paused(1) == partition.state


def test_paused_with_two_partitions_pauses_both() -> None:
    """Deletion of a topic pauses all its partitions."""
    states = CleaningStates()
    states.abort_and_pause(OTHER)
    with states.paused(NAME, OTHER):
        assert (paused(1), paused(2)) == (states.state_of(NAME), states.state_of(OTHER))
    assert (NONE, paused(1)) == (states.state_of(NAME), states.state_of(OTHER))


def test_wait_of_an_aborted_cleaning_ends() -> None:
    """The wait for the throttle must not delay the abort."""
    states = CleaningStates()
    ended: list[bool] = []
    started = threading.Event()

    def clean() -> None:
        run = states.begin(NAME)
        assert run is not None
        started.set()
        while not run.is_aborted:
            run.wait(1e12)
        ended.append(states.finish(run))

    thread = threading.Thread(target=clean)
    thread.start()
    assert started.wait(WAIT_SECONDS)
    states.abort(NAME)
    thread.join(WAIT_SECONDS)
    assert ([False], NONE) == (ended, states.state_of(NAME))


def test_abort_and_pause_by_the_cleaning_thread_raises() -> None:
    """A progress callback must not truncate the log; `abort` without a wait is allowed."""
    states = CleaningStates()
    run = states.begin(NAME)
    assert run is not None
    for action in (states.abort_and_pause, states.begin_when_free):
        with pytest.raises(LogCleaningAbortedError, match="by this thread"):
            action(NAME)
    assert IN_PROGRESS == states.state_of(NAME)
    states.abort(NAME)
    assert aborted(0) == states.state_of(NAME)
    assert not states.finish(run)
    assert NONE == states.state_of(NAME)


def test_begin_when_free_waits_for_all_pauses() -> None:
    """It begins after the second of two pauses."""
    partition = Partition(paused(2))
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(partition.states.begin_when_free(NAME)))
    thread.start()
    partition.resume()
    assert [] == got
    partition.resume()
    thread.join(WAIT_SECONDS)
    assert (1, IN_PROGRESS) == (len(got), partition.state)


def test_stop_aborts_all_cleanings_and_begins_none() -> None:
    """It waits for the cleanings of other threads."""
    partition = Partition(IN_PROGRESS)
    states, run = partition.states, partition.run
    assert run is not None
    own = states.begin(OTHER)
    assert own is not None
    closing = threading.Thread(target=states.stop)
    waiting = threading.Thread(target=partition.settle)
    closing.start()
    waiting.start()
    while not run.is_aborted:
        run.wait(1e12)
    assert own.is_aborted
    states.finish(run)
    states.finish(own)
    closing.join(WAIT_SECONDS)
    waiting.join(WAIT_SECONDS)
    assert states.begin(NAME) is None
    with pytest.raises(LogClosedError, match="closed"):
        states.begin_when_free(NAME)
    # Truncation still works, because no cleaning can begin.
    with states.paused(NAME):
        assert paused(1) == states.state_of(NAME)


def test_many_threads_never_clean_a_paused_partition() -> None:
    """Random cleanings and pauses of two partitions in four threads."""
    states = CleaningStates()
    names = (NAME, OTHER)
    cleaning, quiet = Counter[TopicPartition](), Counter[TopicPartition]()
    failures: list[str] = []
    guard = threading.Lock()
    counts = Counter[str]()

    def count(counter: Counter[TopicPartition], name: TopicPartition, step: int) -> None:
        with guard:
            counter[name] += step
            if cleaning[name] > 1 or (cleaning[name] and quiet[name]):
                failures.append(f"{name}: {cleaning[name]} clean with {quiet[name]}")

    def clean(random: Random) -> None:
        name = random.choice(names)
        run = states.begin_when_free(name) if random.random() < 0.5 else states.begin(name)
        if run is None:
            return
        count(cleaning, name, 1)
        for _ in range(random.randrange(5)):
            if not run.is_aborted:
                run.wait(0)
        count(cleaning, name, -1)
        counts["cleaned" if states.finish(run) else "aborted"] += 1

    def keep_quiet(random: Random) -> None:
        chosen = random.sample(names, random.randrange(1, 3))
        with states.paused(*chosen):
            for name in chosen:
                count(quiet, name, 1)
            for name in chosen:
                count(quiet, name, -1)
        counts["paused"] += 1

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(150):
            (clean if random.random() < 0.7 else keep_quiet)(random)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert [] == failures
    assert [NONE, NONE] == [states.state_of(name) for name in names]
    assert counts["cleaned"]
    assert counts["paused"]
