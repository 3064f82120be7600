"""Whether a manager may be used: not once it is closed, nor in a process that was forked off.

Thread-safety: `_lock` is the manager's lock; everything that changes what there is holds it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence

from kafkalog.errors import ForkedLogError, LogClosedError
from kafkalog.manager.cleaning.states import CleaningStates
from kafkalog.manager.registry import ManagedPartition

__all__ = ["ManagerStanding"]


class ManagerStanding:
    """What a manager knows of its own right to work; the base of `LogManager`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_closed = False
        self._cleaning_states = CleaningStates()

    @property
    def is_closed(self) -> bool:
        """Whether the manager was closed."""
        return self._is_closed

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock for a change of what there is."""
        self._ensure_owner_process()
        with self._lock:
            self._ensure_open()
            yield

    @contextlib.contextmanager
    def _without_cleaning(self, find: Callable[[], Sequence[ManagedPartition]]) -> Iterator[None]:
        """Hold the lock, and let nobody clean the partitions that `find` returns."""
        self._ensure_owner_process()
        is_done = False
        while not is_done:
            # Their cleanings are waited for without the lock, which whoever is told of their
            # progress may ask for. Meanwhile there may come others.
            found = find()
            names = [partition.topic_partition for partition in found]
            with self._cleaning_states.paused(*names), self._changing():
                if is_done := found == find():
                    yield

    def _ensure_owner_process(self) -> None:
        if os.getpid() != self._process:
            raise ForkedLogError(
                f"the manager was made by process {self._process}, not by this one ({os.getpid()}):"
                " make one here"
            )

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise LogClosedError("the manager is closed")
