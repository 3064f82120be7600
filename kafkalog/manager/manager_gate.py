"""Permission to use a manager: its lock, its process, whether it is closed, whether it may write.

Lock order: cleaning pauses, then `ManagerGate.lock`, then `ManagedPartition.lock`.

Thread-safety: every method from any thread. `lock` is the manager's lock: every change of topics,
partitions or directories holds it. A child after `fork` may use nothing and takes no lock, because
a thread of the parent may have held any of them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence

from kafkalog.errors import ForkedLogError, LogClosedError, ReadOnlyLogError
from kafkalog.manager.cleaning.states import CleaningStates
from kafkalog.manager.registry import ManagedPartition

__all__ = ["ManagerGate"]


class ManagerGate:
    """
    Lock and state of a manager.

    Args:
        states: pauses the cleaning of partitions.
        is_read_only: True to refuse every change.

    Attributes:
        lock: held for every change of topics, partitions or directories.
        is_read_only: as given.
    """

    def __init__(self, states: CleaningStates, *, is_read_only: bool = False) -> None:
        self.lock = threading.RLock()
        self.is_read_only = is_read_only
        self._states = states
        self._process = os.getpid()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True if the manager was closed."""
        return self._is_closed

    @property
    def is_owner_process(self) -> bool:
        """True if this process made the manager: False in a forked child."""
        return os.getpid() == self._process

    def mark_closed(self) -> bool:
        """
        Refuse every use from now on; return whether the manager was open.

        The caller holds `lock`, except in a forked child and in a start that failed.
        """
        was_open, self._is_closed = not self._is_closed, True
        return was_open

    def ensure_open(self) -> None:
        """Raise LogClosedError if the manager was closed."""
        if self._is_closed:
            raise LogClosedError("the manager is closed")

    def ensure_owner_process(self) -> None:
        """Raise ForkedLogError in a process that did not make the manager."""
        if not self.is_owner_process:
            raise ForkedLogError(
                f"the manager was made by process {self._process}, not by this one ({os.getpid()}):"
                " make one here"
            )

    def ensure_not_read_only(self) -> None:
        """Raise ReadOnlyLogError if the manager is read-only, ForkedLogError in a child."""
        self.ensure_owner_process()
        if self.is_read_only:
            raise ReadOnlyLogError(
                "the manager is read-only: it changes nothing in its directories, which another"
                " process may be writing"
            )

    def ensure_writable(self) -> None:
        """Raise if the manager may not change anything: forked, read-only or closed."""
        self.ensure_not_read_only()
        self.ensure_open()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for a change; raise as `ensure_writable` does."""
        self.ensure_writable()
        with self.lock:
            self.ensure_open()
            yield

    @contextlib.contextmanager
    def without_cleaning(self, find: Callable[[], Sequence[ManagedPartition]]) -> Iterator[None]:
        """
        Hold the lock, with the cleaning of the partitions that `find` returns paused.

        The pause waits for cleanings without the lock, because their progress callbacks may take
        it. `find` is called again under the lock; if partitions were added, the pause is repeated.
        """
        self.ensure_writable()
        is_done = False
        while not is_done:
            found = find()
            names = [partition.topic_partition for partition in found]
            with self._states.paused(*names), self.changing():
                if is_done := found == find():
                    yield
