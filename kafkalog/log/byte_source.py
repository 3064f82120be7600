"""Sources of the bytes of one segment: a mapping, a file read by `pread`, an object store.

A source returns windows of one file as memory. It neither parses batches nor handles damage;
`batch_walk.py` decides which windows are read.

Invariants: a window has the requested bytes, fewer only at the end of the bytes. It is valid until
the next window is read, because a source may use its memory again.

Thread-safety: none; a source belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kafkalog.files.filesystem import FileHandle

__all__ = ["ByteSource", "MappedSource", "PreadSource", "RangeSource"]

# Two ranges of an object store that are less than this apart are fetched as one.
MERGE_BYTES: Final = 64 * 1024
NO_BUFFER: Final = memoryview(bytearray())


class ByteSource(Protocol):
    """
    Bytes of one segment, in any storage.

    Attributes:
        size_bytes: the end of the bytes when the source was made; lowered if the file is found to
            be shorter.
        whole_is_free: whether a window of all bytes costs no more than a small one.
    """

    @property
    def size_bytes(self) -> int: ...

    @property
    def whole_is_free(self) -> bool: ...

    def window(self, position: int, size: int) -> memoryview:
        """Return `size` bytes from `position` on, fewer only at the end of the bytes."""
        ...

    def close(self) -> None:
        """Release the memory of the source."""
        ...


class MappedSource:
    """
    Bytes that are in memory already: a mapping of a file, or a copy of a part of one.

    Args:
        data: the bytes.
        origin: position of the first of them.
    """

    __slots__ = ("_data", "_origin", "size_bytes")

    whole_is_free: Final = True

    def __init__(self, data: memoryview, origin: int = 0) -> None:
        self._data = data
        self._origin = origin
        self.size_bytes = origin + len(data)

    def window(self, position: int, size: int) -> memoryview:
        """Return a slice; nothing is copied."""
        start = position - self._origin
        if not start and size >= len(self._data):
            return self._data
        return self._data[start : start + size]

    def close(self) -> None:
        """Release the bytes."""
        self._data = memoryview(b"")


class PreadSource:
    """
    An open file, read by `pread` into one buffer that is used again for each window.

    A mapped file that another process cuts raises SIGBUS; `pread` returns fewer bytes. So files
    that another process owns are read by `pread`.

    Args:
        handle: the open file. The caller closes it.
        size_bytes: number of bytes of the file that are read.
        buffer: used again for each window. A larger window gets new memory.
    """

    __slots__ = ("_buffer", "_handle", "size_bytes")

    whole_is_free: Final = False

    def __init__(self, handle: FileHandle, size_bytes: int, buffer: memoryview = NO_BUFFER) -> None:
        self._handle = handle
        self.size_bytes = size_bytes
        self._buffer = buffer

    def window(self, position: int, size: int) -> memoryview:
        """Return bytes of the file; `size_bytes` is lowered if the file was cut."""
        size = min(size, self.size_bytes - position)
        # Not kept: after one large batch the following windows must not be as large.
        buffer = self._buffer if size <= len(self._buffer) else memoryview(bytearray(size))
        count = self._handle.pread_into(buffer[:size], position)
        if count < size:
            self.size_bytes = position + count
        return buffer[:count].toreadonly()

    def close(self) -> None:
        """Release the buffer; the file stays open."""
        self._buffer = NO_BUFFER


class RangeSource:
    """
    An object of a store that returns ranges of bytes.

    Small windows are served from the range that was fetched last. Retries belong to `fetch`.

    Args:
        fetch: takes a position and a size; returns so many bytes, fewer only at the object's end.
        size_bytes: size of the object.
        fetch_bytes: least size of a request, since each one costs a round trip.
    """

    __slots__ = ("_fetch", "_fetch_bytes", "_held", "_origin", "size_bytes")

    whole_is_free: Final = False

    def __init__(
        self, fetch: Callable[[int, int], bytes], size_bytes: int, fetch_bytes: int = MERGE_BYTES
    ) -> None:
        self._fetch = fetch
        self.size_bytes = size_bytes
        self._fetch_bytes = fetch_bytes
        self._held = memoryview(b"")
        self._origin = 0

    def window(self, position: int, size: int) -> memoryview:
        """Return bytes of the object, fetched in one request unless the last range has them."""
        size = min(size, self.size_bytes - position)
        start = position - self._origin
        if not 0 <= start <= start + size <= len(self._held):
            count = min(max(size, self._fetch_bytes), self.size_bytes - position)
            self._held, self._origin, start = memoryview(self._fetch(position, count)), position, 0
            if len(self._held) < count:
                self.size_bytes = position + len(self._held)
        return self._held[start : start + size]

    def close(self) -> None:
        """Release the range that was fetched last."""
        self._held = memoryview(b"")
