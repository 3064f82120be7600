"""Memory of a batch under construction, which views may show after the builder has left it.

Counts its views, so that the builder can detect when it needs other memory. Frees itself
with the last view. Never grows while a view is alive.

Thread-safety: what a view shows never changes; the rest belongs to one builder.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport uint8_t


cdef class BatchMemory:
    """
    Bytes shared by a builder and the read-only views of what it built.

    Thread-safety: none but that of the views.
    """

    def __cinit__(self, Py_ssize_t capacity):
        self.data = <uint8_t*>PyMem_RawMalloc(<size_t>capacity)
        if self.data == NULL:
            raise MemoryError(f"no memory for a batch of {capacity} bytes")
        self.capacity = capacity

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data + self._start, self._end - self._start, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    cdef object view(self, Py_ssize_t start, Py_ssize_t end):
        self._start = start
        self._end = end
        return memoryview(self)

    cdef int grow(self, Py_ssize_t capacity) except -1:
        """Allocate more memory, perhaps at another address; only while nothing is exported."""
        if self.exports > 0:
            raise AssertionError("memory with views must not move")
        cdef uint8_t* data = <uint8_t*>PyMem_RawRealloc(self.data, <size_t>capacity)
        if data == NULL:
            raise MemoryError(f"no memory for a batch of {capacity} bytes")
        self.data = data
        self.capacity = capacity
        return 0
