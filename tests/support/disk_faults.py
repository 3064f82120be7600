"""Calls that are counted, and fail or lose power at the n-th: the base of the simulated disk.

Thread-safety: none; the disk's lock is held around every call.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MUTATING", "SYNCING", "Fault", "FaultyCalls", "Killed", "PowerCut", "disk_error"]

SYNCING = frozenset({"sync", "sync_directory", "sync_filesystem"})
MUTATING = SYNCING | {
    "create",
    "make_directory",
    "pwrite",
    "pwritev",
    "remove_directory",
    "rename",
    "set_modified_ms",
    "truncate",
    "unlink",
}


class PowerCut(BaseException):
    """The power went. Not an Exception: no handler of the code under test may outlive it."""


class Killed(PowerCut):
    """The process was killed in a call that failed: the error was consumed without effect."""


@dataclass(slots=True)
class Fault:
    """A fault that waits for a call: `remaining` of those in `names` (None: of any) to go."""

    remaining: int
    names: frozenset[str] | None
    error_number: int = 0
    short_write_bytes: int | None = None
    kills: bool = False
    suffix: str = ""
    forgets: bool = False

    def is_due(self, name: str, path: Path | str) -> bool:
        """Count a call; return whether it is the one."""
        if self.names is not None and name not in self.names:
            return False
        if not str(path).endswith(self.suffix):
            return False
        self.remaining -= 1
        return self.remaining == 0


def disk_error(number: int, path: Path | str) -> OSError:
    """Return the OSError that a system would raise."""
    return OSError(number, os.strerror(number), str(path))


class FaultyCalls:
    """
    Counter of calls, with faults among them.

    Attributes:
        calls: how often each call was made, by name; opening to create a new file is "create".
        history: (name, path) of each call, where a test has set it to a list.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.history: list[tuple[str, str]] | None = None
        self._is_off = False
        self._power_cut: Fault | None = None
        self._faults: list[Fault] = []

    @property
    def is_off(self) -> bool:
        """True after a power cut."""
        return self._is_off

    @property
    def mutation_count(self) -> int:
        """The number of changing calls so far."""
        return sum(self.calls[name] for name in MUTATING)

    @property
    def call_count(self) -> int:
        """The number of calls so far, reads included."""
        return self.calls.total()

    def crash_at(self, number: int, *, only: frozenset[str] = MUTATING) -> None:
        """Let the power go at the n-th call from now of those in `only` (`SYNCING`, for one)."""
        self._power_cut = Fault(_positive(number), only)

    def fail_at(
        self,
        number: int,
        error_number: int = errno.EIO,
        *,
        only: frozenset[str] | None = None,
        short_write_bytes: int | None = None,
        kills: bool = False,
        suffix: str = "",
    ) -> None:
        """
        Let the n-th call from now fail with an OSError, once.

        Args:
            number: 1 for the next call.
            error_number: as in `errno`.
            only: names of the calls to count; all calls, reads too, where None.
            short_write_bytes: how much of the data is written before the error, where the call
                is a write.
            kills: the process gets no further: no call after this one has an effect.
            suffix: how the names of the files end whose calls are counted.
        """
        self._faults.append(
            Fault(_positive(number), only, error_number, short_write_bytes, kills, suffix)
        )

    def forget_sync_at(self, number: int) -> None:
        """Let the n-th sync from now, of a file, a directory or all, succeed without effect."""
        self._faults.append(Fault(_positive(number), SYNCING, forgets=True))

    @property
    def faults_waiting(self) -> int:
        """The number of pending faults, the power cut included."""
        return len(self._faults) + (self._power_cut is not None and not self._is_off)

    def clear_faults(self) -> None:
        """Forget the faults and the power cut that have not happened yet."""
        self._faults.clear()
        self._power_cut = None

    def enter_call(self, name: str, path: Path | str) -> Fault | None:
        """Count a call; raise what a fault wants, or return the fault that wants no error."""
        if self._is_off:
            raise PowerCut(f"{name} {path}: the power is off")
        if self._power_cut is not None and self._power_cut.is_due(name, path):
            self._is_off = True
            raise PowerCut(f"the power goes before {name} {path}")
        self.calls[name] += 1
        if self.history is not None:
            self.history.append((name, str(path)))
        due = [fault for fault in self._faults if fault.is_due(name, path)]
        if not due:
            return None
        self._faults = [fault for fault in self._faults if fault not in due]
        if due[0].forgets or (
            due[0].short_write_bytes is not None and name in ("pwrite", "pwritev")
        ):
            return due[0]
        if due[0].kills:
            self._is_off = True
            raise Killed(f"{name} {path} failed, and the process was killed in it")
        raise disk_error(due[0].error_number, path)


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError("calls are counted from 1")
    return number
