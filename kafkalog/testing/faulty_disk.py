"""State of a disk with faults: pending faults, and the bytes that a power cut takes.

All managers of a test share one `FaultyDisk`; each has a `FaultyFileSystem` on it, which asks the
disk before each effect, and reports writes and syncs.

Model of a power cut: bytes and lengths of files return to their last successful sync. Names of
files survive, as on a file system that wrote its journal and not its data. A disk may keep more
than that, and a program must not rely on it.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from kafkalog.files.filesystem import FileHandle

__all__ = ["DiskCall", "DiskFault", "FaultyDisk", "UnsyncedFile"]

# "create" is that of a file or directory; "change" is a rename, a removal or another effect.
DiskCall: TypeAlias = Literal["write", "create", "sync", "change"]


@dataclass(frozen=True, slots=True, eq=False)
class DiskFault:
    """
    A fault of a disk.

    Attributes:
        calls: calls that fail.
        applies_to: returns whether the calls fail for a path.
        error_number: as in `errno`.
        is_once: True if the fault ends with the first call that fails.
    """

    calls: frozenset[DiskCall]
    applies_to: Callable[[Path], bool]
    error_number: int
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """Size of a file, and the bytes at a position, before an unsynced write or truncation."""

    file_size: int
    position: int
    size: int
    # Without zeros at the end: a preallocated tail is millions of them.
    data: bytes


class UnsyncedFile:
    """Unsynced changes of one file, with the data that undoes them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changes: list[_Change] = []
        # Smallest size of the file since the begin of the last sync: to undo later changes above
        # it, the file is only cut.
        self._cut_size: int | None = None

    def write(
        self, handle: FileHandle, position: int, size: int, effect: Callable[[], object]
    ) -> None:
        """Change `size` bytes from a position on by `effect`, and record what was there."""
        with self._lock:
            if self._cut_size is None or position < self._cut_size:
                self._record(handle, position, size)
            effect()

    def sync(self, effect: Callable[[], object]) -> None:
        """Sync by `effect`; the changes before it survive a power cut from then on."""
        with self._lock:
            count, self._cut_size = len(self._changes), None
        effect()
        with self._lock:
            del self._changes[:count]

    def restore(self, path: Path) -> None:
        """Undo all unsynced changes; the file is replaced, so that mappings of it stay valid."""
        with self._lock:
            if not self._changes:
                return
            content = bytearray(path.read_bytes())
            for change in reversed(self._changes):
                content = content[: change.file_size].ljust(change.file_size, b"\0")
                end = change.position + change.size
                content[change.position : end] = change.data.ljust(change.size, b"\0")
            self._changes.clear()
            self._cut_size = None
        replacement = path.with_name(f"{path.name}.before_power_cut")
        replacement.write_bytes(content)
        replacement.replace(path)

    def _record(self, handle: FileHandle, position: int, size: int) -> None:
        """Record the size of a file, and its bytes that a change is about to replace."""
        file_size = handle.size()
        size = max(min(size, file_size - position), 0)
        data = handle.pread(size, position) if size else b""
        self._changes.append(_Change(file_size, position, size, data.rstrip(b"\0")))
        cut_size = file_size if self._cut_size is None else self._cut_size
        self._cut_size = min(cut_size, file_size)


class FaultyDisk:
    """
    A disk with faults.

    Attributes:
        has_failed: whether a fault has made a call fail.
    """

    def __init__(self) -> None:
        self.has_failed = False
        self._lock = threading.Lock()
        self._faults: list[DiskFault] = []
        self._files: dict[int, UnsyncedFile] = {}
        self._power_cuts = 0

    @property
    def boot(self) -> bytes:
        """Id of the time between two power cuts."""
        return self._power_cuts.to_bytes(4)

    def add(self, fault: DiskFault) -> None:
        """Add a fault."""
        with self._lock:
            self._faults.append(fault)

    def remove(self, fault: DiskFault) -> None:
        """Remove a fault; no effect if it has ended."""
        with self._lock, suppress(ValueError):
            self._faults.remove(fault)

    def check(self, call: DiskCall, path: Path) -> None:
        """Raise the OSError of the first fault that a call meets."""
        with self._lock:
            for fault in self._faults:
                if call in fault.calls and fault.applies_to(path):
                    self.has_failed = True
                    if fault.is_once:
                        self._faults.remove(fault)
                    number = fault.error_number
                    raise OSError(number, os.strerror(number), str(path))

    def file(self, file_id: int) -> UnsyncedFile:
        """Return the unsynced changes of a file by its id (`FileFacts.file_id`)."""
        with self._lock:
            return self._files.setdefault(file_id, UnsyncedFile())

    def remove_file(self, file_id: int) -> None:
        """Drop the changes of a file without a name: another file may get its id."""
        with self._lock:
            self._files.pop(file_id, None)

    def cut_power(self, root: Path) -> None:
        """Undo what was not synced of the files below a directory."""
        with self._lock:
            files, self._files = self._files, {}
            self._power_cuts += 1
        for path, file_id in _files_below(root):
            if file_id in files:
                files[file_id].restore(path)


def _files_below(root: Path) -> Iterator[tuple[Path, int]]:
    """Return the files below a directory, with their ids."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path, path.stat().st_ino
