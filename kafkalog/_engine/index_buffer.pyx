"""The entries of an index in memory: published to look-ups, written to the file in groups.

`EntryFile` has one, and knows the file.

Thread-safety: one writer, under the log's lock. Any thread may read `published`.
"""

cimport cython
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy, memset

cdef enum:
    FIRST_CAPACITY = 256
    # Entries that wait in memory before one write carries them: 512 bytes of an offset index.
    PENDING_ENTRIES_MAX = 64


@cython.final
cdef class IndexBuffer:
    """
    Consecutive entries of one size.

    The bytes of what was published never change: growth and truncation continue in other memory.

    Args:
        entry_size: bytes of one entry.
        entries: those to begin with, as bytes; none of them is written yet.
        write: called with entries, as bytes, and their position in the file; returns whether they
            were written. None where there is no file.

    Attributes:
        published: the memory, and how many entries it has; replaced with every change.

    Thread-safety: one writer, under the log's lock; any thread may read `published`.
    """

    def __init__(self, Py_ssize_t entry_size, bytes entries=b"", write=None):
        self.entry_size = entry_size
        self._write = write
        # Small in comparison with the entries: an opened log may get few appends.
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
        self._start(entries, size + max(FIRST_CAPACITY * entry_size, size // 8))

    def __len__(self):
        return self._count

    def __reduce__(self):
        raise TypeError("an IndexBuffer cannot be pickled or copied")

    def entries(self, Py_ssize_t first=0):
        """Return the entries from `first` on, as bytes."""
        if not 0 <= first <= self._count:
            raise IndexError(f"entry must be in 0..{self._count}, got {first}")
        return PyBytes_FromStringAndSize(
            PyByteArray_AS_STRING(self._memory) + first * self.entry_size,
            (self._count - first) * self.entry_size)

    cpdef extend(self, bytes entries):
        """Add entries and publish them to look-ups; the file follows once many wait."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
        cdef Py_ssize_t start = self._count * self.entry_size
        if start + size > PyByteArray_GET_SIZE(self._memory):
            # A view of the old memory keeps it, and its bytes stay as they are.
            self._start(self.entries(), max(2 * start, start + size))
        memcpy(PyByteArray_AS_STRING(self._memory) + start, PyBytes_AS_STRING(entries),
               <size_t>size)
        self._count += size // self.entry_size
        self._publish()
        if self._count - self._written >= PENDING_ENTRIES_MAX:
            self.flush()

    def flush(self):
        """Write the entries that wait; return whether the file has all of them."""
        if self._count > self._written and self._write is not None:
            if self._write(self.entries(self._written), self._written * self.entry_size):
                self._written = self._count
        return self._count == self._written

    def truncate_to(self, Py_ssize_t count):
        """Remove the entries from `count` on; return how many of those were written."""
        cdef bytes kept = self.entries()[:count * self.entry_size]
        cdef Py_ssize_t stale = max(self._written - count, 0)
        self._start(kept, PyByteArray_GET_SIZE(self._memory))
        self._written = min(self._written, count)
        return stale

    def _start(self, bytes entries, Py_ssize_t capacity):
        """Continue in other memory, with `entries`."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
        cdef bytearray memory = PyByteArray_FromStringAndSize(NULL, capacity)
        memcpy(PyByteArray_AS_STRING(memory), PyBytes_AS_STRING(entries), <size_t>size)
        memset(PyByteArray_AS_STRING(memory) + size, 0, <size_t>(capacity - size))
        self._memory = memory
        self._count = size // self.entry_size
        self._publish()

    cdef int _publish(self) except -1:
        self.published = (self._memory, self._count)
        return 0
