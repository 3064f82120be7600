"""The entries of an index in memory: published to look-ups, written to the file in groups.

The compiled part of `EntryFile`, which knows the file.

Thread-safety: one writer, under the log's lock. Any thread may read `published`.
"""

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


cdef class IndexBuffer:
    """
    A growing run of entries of one size.

    The bytes of what was published never change: growth, and a step back, go on in other memory.
    Subclasses say how `write_behind` brings entries that wait into a file.

    Args:
        entry_size: bytes of one entry.
        entries: those to begin with, as bytes.

    Attributes:
        published: the memory, and how many entries it has; replaced with every change.
    """

    def __init__(self, Py_ssize_t entry_size, bytes entries=b""):
        self.entry_size = entry_size
        # No more than that beside many: whoever opens a log may append little to it.
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
        self._start(entries, size + max(FIRST_CAPACITY * entry_size, size // 8))

    def __len__(self):
        return self._count

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__} cannot be pickled or copied")

    def entries(self, Py_ssize_t first=0):
        """Return the entries from `first` on, as bytes."""
        if not 0 <= first <= self._count:
            raise IndexError(f"there is no entry {first} among {self._count}")
        return PyBytes_FromStringAndSize(
            PyByteArray_AS_STRING(self._memory) + first * self.entry_size,
            (self._count - first) * self.entry_size)

    cpdef extend(self, bytes entries):
        """Add entries and publish them to look-ups; the file follows once many wait."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
        cdef Py_ssize_t start = self._count * self.entry_size
        if start + size > PyByteArray_GET_SIZE(self._memory):
            # What was given out keeps the old memory, whose bytes stay as they are.
            self._start(self.entries(), max(2 * start, start + size))
        memcpy(PyByteArray_AS_STRING(self._memory) + start, PyBytes_AS_STRING(entries),
               <size_t>size)
        self._count += size // self.entry_size
        self._publish()
        if self._count - self._written >= PENDING_ENTRIES_MAX:
            self.write_behind()

    def truncate_to(self, Py_ssize_t count):
        """Forget the entries from `count` on."""
        cdef bytes kept = self.entries()[:count * self.entry_size]
        self._start(kept, PyByteArray_GET_SIZE(self._memory))

    def write_behind(self):
        """Write the entries that wait, where there is a file; say whether that worked."""
        return True

    def _start(self, bytes entries, Py_ssize_t capacity):
        """Go on in other memory, with the entries given."""
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
