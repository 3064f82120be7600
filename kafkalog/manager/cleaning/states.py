"""Cleaning states of partitions, which exclude cleaning from truncation, deletion and moves.

The states of Kafka's LogCleanerManager, under one lock:

    event              none          in progress         aborted             paused n
    begin              in progress   refused             refused             refused
    abort_and_pause    paused 1      aborted, then wait  one more, wait (*)  paused n + 1
    done               error         none                paused (**)         error
    resume             error         error               error               paused n - 1, or none

(*) An error in Kafka, where only one thread at a time pauses; here several threads may truncate and
delete. (**) With the number of pauses that were requested.

Retention skips a partition in any state, and sets no state, unlike Kafka: the log's lock excludes
it from a swap of segments, and a cleaning whose segments were deleted ends. A deletion callback may
therefore use the log without a limit.

A pause waits until the cleaning notices it: a cleaning checks after every chunk and segment, and
while it waits for the throttle. A thread that waits here must hold no lock of a log, a partition or
the manager, because the progress callback of the cleaning may take any of them.

Thread-safety: every method from any thread; the lock is held for moments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalog.cleaner.cleaning import CleaningProgress
from kafkalog.errors import LogCleaningAbortedError, LogClosedError
from kafkalog.model import TopicPartition

__all__ = ["CleaningRun", "CleaningState", "CleaningStates", "Phase"]


class Phase(Enum):
    """Phases of a partition."""

    NONE = "none"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class CleaningState(NamedTuple):
    """
    State of a partition.

    Attributes:
        phase: its phase.
        pause_count: number of its pauses.
    """

    phase: Phase
    pause_count: int = 0


class CleaningRun:
    """
    One running cleaning. Made by `CleaningStates.begin`.

    Attributes:
        topic_partition: the partition.
        thread_name: name of the cleaning thread.
        is_aborted: whether it must end.
        progress: its progress, None before the first report.
    """

    def __init__(self, topic_partition: TopicPartition, condition: threading.Condition) -> None:
        self.topic_partition = topic_partition
        # The object, because another thread may get the same number.
        self._thread = threading.current_thread()
        self.thread_name = self._thread.name
        self.is_aborted = False
        self.progress: CleaningProgress | None = None
        self._condition = condition

    @property
    def is_own(self) -> bool:
        """True if the calling thread runs it."""
        return self._thread is threading.current_thread()

    def abort(self) -> None:
        """Request the end; the condition is held, and notified by the caller."""
        self.is_aborted = True

    def record_progress(self, progress: CleaningProgress) -> None:
        """Record the progress; called by the cleaning thread."""
        self.progress = progress

    def check(self) -> None:
        """Raise LogCleaningAbortedError if it must end."""
        if self.is_aborted:
            raise LogCleaningAbortedError(f"the cleaning of {self.topic_partition} was aborted")

    def wait(self, duration_ms: float) -> None:
        """Return after a duration or when it must end; spurious earlier returns are possible."""
        with self._condition:
            if not self.is_aborted:
                self._condition.wait(min(duration_ms / 1000, threading.TIMEOUT_MAX))


@dataclass(slots=True)
class _Entry:
    """State of one partition that is being cleaned or paused; the condition is held."""

    run: CleaningRun | None = None
    pause_count: int = 0

    def pause(self) -> None:
        """Count one more pause; a running cleaning is aborted."""
        self.pause_count += 1
        if self.run is not None:
            self.run.abort()

    def unpause(self) -> bool:
        """Count one pause less; return whether neither a pause nor a cleaning is left."""
        self.pause_count -= 1
        return not self.pause_count and self.run is None

    def finish(self) -> bool:
        """End the cleaning; return whether no pause is left."""
        self.run = None
        return not self.pause_count


class CleaningStates:
    """The states of all partitions of a manager."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._entries: dict[TopicPartition, _Entry] = {}
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """True if no cleaning may begin any more."""
        return self._is_stopped

    def state_of(self, name: TopicPartition) -> CleaningState:
        """Return the state of a partition."""
        with self._condition:
            entry = self._entries.get(name)
            if entry is None:
                return CleaningState(Phase.NONE)
            if entry.run is None:
                return CleaningState(Phase.PAUSED, entry.pause_count)
            phase = Phase.ABORTED if entry.run.is_aborted else Phase.IN_PROGRESS
            return CleaningState(phase, entry.pause_count)

    def is_busy(self, name: TopicPartition) -> bool:
        """Return whether a partition is being cleaned or paused."""
        return name in self._entries

    def under_way(self) -> tuple[CleaningRun, ...]:
        """Return the running cleanings, by partition."""
        with self._condition:
            runs = [entry.run for entry in self._entries.values() if entry.run is not None]
        return tuple(sorted(runs, key=lambda run: run.topic_partition))

    # ------------------------------------------------------------------- by cleaning threads

    def begin(self, name: TopicPartition) -> CleaningRun | None:
        """Begin a cleaning, which `finish` ends; None if the partition is cleaned or paused."""
        with self._condition:
            if self._is_stopped or name in self._entries:
                return None
            run = CleaningRun(name, self._condition)
            self._entries[name] = _Entry(run)
            return run

    def begin_when_free(self, name: TopicPartition) -> CleaningRun:
        """
        Wait until the partition is neither cleaned nor paused, and begin a cleaning.

        Raises:
            LogClosedError: no cleaning may begin any more.
            LogCleaningAbortedError: the calling thread is cleaning the partition.
        """
        with self._condition:
            while True:
                if self._is_stopped:
                    raise LogClosedError("the manager is closed")
                run = self.begin(name)
                if run is not None:
                    return run
                self._ensure_not_own(name)
                self._condition.wait()

    def finish(self, run: CleaningRun) -> bool:
        """End a cleaning; return whether it was not aborted."""
        with self._condition:
            entry = self._entries.get(run.topic_partition)
            if entry is None or entry.run is not run:
                raise RuntimeError(f"{run.topic_partition} is not in progress")
            if entry.finish():
                del self._entries[run.topic_partition]
            self._condition.notify_all()
            return not run.is_aborted

    # ------------------------------------------------------ by threads that exclude cleaning

    def abort_and_pause(self, *names: TopicPartition) -> None:
        """
        Abort the cleanings of partitions, wait for their end, and pause cleaning until `resume`.

        Raises:
            LogCleaningAbortedError: the calling thread is cleaning one of them: it is in the
                progress callback.
        """
        with self._condition:
            for name in names:
                self._ensure_not_own(name)
            for name in names:
                self._entries.setdefault(name, _Entry()).pause()
            self._condition.notify_all()
            try:
                for name in names:
                    while self._entries[name].run is not None:
                        self._condition.wait()
            except BaseException:
                for name in names:
                    self._unpause(name)
                raise

    def resume(self, *names: TopicPartition) -> None:
        """End one pause of each partition."""
        with self._condition:
            for name in names:
                entry = self._entries.get(name)
                if entry is None or entry.run is not None:
                    raise RuntimeError(f"{name} is not paused")
                self._unpause(name)

    def abort(self, *names: TopicPartition) -> None:
        """Abort the cleanings of partitions; wait for those of other threads."""
        with self._condition:
            others = []
            for name in names:
                entry = self._entries.get(name)
                if entry is not None and entry.run is not None and entry.run.is_own:
                    entry.run.abort()
                else:
                    others.append(name)
        with self.paused(*others):
            pass

    @contextmanager
    def paused(self, *names: TopicPartition) -> Iterator[None]:
        """Pause the cleaning of partitions in a `with` block; see `abort_and_pause`."""
        self.abort_and_pause(*names)
        try:
            yield
        finally:
            self.resume(*names)

    def stop(self) -> None:
        """Begin no more cleanings, abort all, and wait for those of other threads."""
        with self._condition:
            self._is_stopped = True
            for run in _runs(self._entries.values()):
                run.abort()
            self._condition.notify_all()
            while any(not run.is_own for run in _runs(self._entries.values())):
                self._condition.wait()

    # ------------------------------------------------------------------ private, the lock is held

    def _ensure_not_own(self, name: TopicPartition) -> None:
        entry = self._entries.get(name)
        if entry is not None and entry.run is not None and entry.run.is_own:
            raise LogCleaningAbortedError(
                f"{name} is being cleaned by this thread: call from another thread"
            )

    def _unpause(self, name: TopicPartition) -> None:
        if self._entries[name].unpause():
            del self._entries[name]
        self._condition.notify_all()


def _runs(entries: Iterable[_Entry]) -> list[CleaningRun]:
    return [entry.run for entry in entries if entry.run is not None]
