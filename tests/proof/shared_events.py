"""Events of a writer in memory that outlives it: one file, mapped by both sides.

The writer adds events; the length is raised after the bytes, so that a reader sees whole events
only, whatever kills the writer. The judge reads the length at a moment of its choice: what is below
it had happened by then.

Thread-safety: `add` from any thread of one process; everything else from one thread.
"""

from __future__ import annotations

import marshal
import mmap
import threading
from pathlib import Path
from typing import Any

__all__ = ["Event", "SharedEvents"]

Event = tuple[Any, ...]
_SIZE = 64 << 20


class SharedEvents:
    """A bounded list of events that two processes share."""

    def __init__(self, path: Path, size: int = _SIZE) -> None:
        self._size = size
        with path.open("wb+") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)
        # One store of eight bytes: `struct.pack_into` fills with zeros first, and a reader or a
        # kill in between would find a length of 0.
        self._length = memoryview(self._memory)[:8].cast("q")
        self._lock = threading.Lock()
        self._end = 8

    def clear(self) -> None:
        """Begin again; no other process may use it."""
        self._lock = threading.Lock()
        self._end = 8
        self._length[0] = 8

    def add(self, *event: Any) -> None:
        """Add an event of plain values."""
        data = marshal.dumps(event)
        with self._lock:
            end = self._end + 4 + len(data)
            if end > self._size:
                raise MemoryError("the file of shared events is full")
            self._memory[self._end : end] = len(data).to_bytes(4, "little") + data
            self._end = end
            self._length[0] = end

    def length(self) -> int:
        """Return how much there is now."""
        return self._length[0]

    def content(self, end: int) -> bytes:
        """Return the bytes below a length as they are."""
        return self._memory[:end]

    def events(self, start: int, end: int) -> list[Event]:
        """
        Return the events between two lengths; the first is 8.

        Raises:
            ValueError: there is something else between them.
        """
        found = []
        while start < end:
            size = int.from_bytes(self._memory[start : start + 4], "little")
            try:
                found.append(marshal.loads(self._memory[start + 4 : start + 4 + size]))
            except (EOFError, ValueError, TypeError) as error:
                raise ValueError(f"no event at {start}: {error}") from error
            start += 4 + size
        return found
