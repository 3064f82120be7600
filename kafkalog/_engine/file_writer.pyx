"""Writer of an open file, on the path of every append.

A call uses the descriptor that was open when the call began, never a number that the system has
since given to another file: the number is owned by a small object that closes it when the last
reference goes, and each call holds one.

Thread-safety: everything from any thread; the GIL is released while the system writes.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

from kafkalog._core.mapping cimport LOSSES, has_losses

cdef extern from "<unistd.h>" nogil:
    ctypedef long long off_t
    Py_ssize_t pwrite(int descriptor, const void* data, size_t size, off_t position)
    int close(int descriptor)

cdef enum:
    # Some systems refuse to write more at a time.
    WRITE_MAX = 1 << 30


@cython.final
cdef class Descriptor:
    """
    Owner of one open descriptor: the last reference to this object closes the number.

    Attributes:
        number: the descriptor.

    Thread-safety: from any thread.
    """

    def __cinit__(self, int number):
        self.number = number

    def __dealloc__(self):
        # Linux frees the number even when close fails, and no unsynced byte was promised.
        close(self.number)

    def __reduce__(self):
        raise TypeError("a Descriptor cannot be pickled or copied")


@cython.final
cdef class FileWriter:
    """
    The descriptor of an open file, and writes to it at any position.

    Args:
        number: the descriptor; it is closed with this object, or by `close`.
        path: of the file, for errors.
        finish_write: called with a Descriptor, the data, how much the system took, the position and
            the path, where it did not take everything at once.
        check_sources: called with a tuple of data after a write, if a mapped page was lost in this
            process; raises OSError where it was a page of the data.

    Thread-safety: from any thread.
    """

    def __cinit__(self, int number, path, finish_write, check_sources):
        self._descriptor = Descriptor(number)
        self._path = path
        self._finish_write = finish_write
        self._check_sources = check_sources

    def __reduce__(self):
        raise TypeError("a FileWriter cannot be pickled or copied")

    @property
    def is_closed(self):
        """True if the file was closed."""
        return self._descriptor is None

    def descriptor(self):
        """Return the Descriptor, open for as long as the caller keeps it; ValueError if closed."""
        return self._open()

    def close(self):
        """Close the file; calls still running in other threads finish first. Idempotent."""
        self._descriptor = None

    def pwrite(self, data not None, int64_t position):
        """
        Write all of `data` at `position`.

        Raises:
            OSError: the system takes no more; a part may have been written.
            OSError: `data` is mapped, and a page of it was lost.
            ValueError: the file was closed.
        """
        cdef Descriptor descriptor = self._open()
        cdef Py_buffer view
        cdef Py_ssize_t done
        cdef bint is_all
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            done = write_once(descriptor.number, view.buf, view.len, position)
            is_all = done == view.len
        finally:
            PyBuffer_Release(&view)
        if has_losses(LOSSES):
            self._check_sources((data,))
        if not is_all:
            self._finish_write(descriptor, data, done, position, self._path)

    cdef Descriptor _open(self):
        cdef Descriptor descriptor = self._descriptor
        if descriptor is None:
            raise ValueError(f"{self._path}: the file is closed")
        return descriptor


cdef Py_ssize_t write_once(int descriptor, const void* data, Py_ssize_t size,
                           int64_t position) except -1:
    """Write what the system takes in one call; return how much that was."""
    cdef Py_ssize_t count
    with nogil:
        count = pwrite(descriptor, data, <size_t>min(size, WRITE_MAX), position)
    if count >= 0:
        return count
    if errno != EINTR:
        PyErr_SetFromErrno(OSError)
    PyErr_CheckSignals()
    return 0
