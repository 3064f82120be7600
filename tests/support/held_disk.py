"""Disk of a manager of a test that is full, or holds its writes or syncs, on demand."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.testing.faulty_disk import DiskCall, DiskFault, FaultyDisk
from kafkalog.testing.faulty_filesystem import FaultyFileSystem

__all__ = ["WAIT_SECONDS", "HeldDisk"]

WAIT_SECONDS = 30


class HeldDisk:
    """
    A disk with faults, for `filesystem=` of a manager.

    Attributes:
        filesystem: the file system on it.
    """

    def __init__(self) -> None:
        self._disk = _HoldingDisk()
        disk: Any = self._disk
        made: Any = FaultyFileSystem(disk, PosixFileSystem())
        self.filesystem = cast("FileSystem", made)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Let the disk be full."""
        fault = DiskFault(frozenset({"write", "create"}), lambda _path: True, errno.ENOSPC)
        self._disk.faults.add(fault)
        try:
            yield
        finally:
            self._disk.faults.remove(fault)

    def fail_next_sync(self) -> None:
        """Let the next sync of a segment fail."""
        fault = DiskFault(frozenset({"sync"}), is_segment, errno.EIO, is_once=True)
        self._disk.faults.add(fault)

    @contextmanager
    def held(self, call: DiskCall = "sync") -> Iterator[HeldCalls]:
        """Hold the calls on segments until the end of the block, or a release."""
        calls = HeldCalls(call)
        self._disk.set_held(calls)
        try:
            yield calls
        finally:
            self._disk.set_held(None)
            calls.release()


class _HoldingDisk:
    """A `FaultyDisk` that holds calls before it looks for faults, which it does under its lock."""

    def __init__(self) -> None:
        self.faults = FaultyDisk()
        self._held: HeldCalls | None = None

    def set_held(self, held: HeldCalls | None) -> None:
        """Hold calls from now on, or none."""
        self._held = held

    def check(self, call: DiskCall, path: Path) -> None:
        """Hold a call, then raise if it must fail."""
        held = self._held
        if held is not None:
            held.hold(call, path)
        self.faults.check(call, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.faults, name)


class HeldCalls:
    """
    Calls that wait for a release.

    Args:
        call: their kind.
    """

    def __init__(self, call: DiskCall) -> None:
        self._call = call
        self._begun, self._released = threading.Event(), threading.Event()

    @property
    def has_begun(self) -> bool:
        """True if a call was held."""
        return self._begun.is_set()

    def release(self) -> None:
        """Let all calls continue."""
        self._released.set()

    def wait_for_first(self) -> None:
        """Wait until a call is held; to be called in a thread."""
        assert self._begun.wait(WAIT_SECONDS)

    def hold(self, call: DiskCall, path: Path) -> None:
        """Wait in a call on a segment."""
        if call == self._call and is_segment(path):
            self._begun.set()
            assert self._released.wait(WAIT_SECONDS)


def is_segment(path: Path) -> bool:
    """Return whether a file is a segment."""
    return path.suffix == ".log"
