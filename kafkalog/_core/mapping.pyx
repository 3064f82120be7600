"""Files mapped for reading, where a page that cannot be read is an error and not the end.

A mapping is read like memory, which cannot return a read error: the system sends SIGBUS instead.
`mapping_guard.c` handles that signal, marks the mapping, and puts zeros in place of the page. Code
that makes a result of such bytes calls `check_read` after it has read them, and before it returns
the result; if some were lost, it raises LogStorageError with the file and position of the mapping's
origin.

The mapping of memory is found by its address, so that a slice of a slice, a pointer in a record and
a returned column are all checked alike.

What is module-wide here belongs to the process, as a signal's handler does: the table of mappings,
and the number of those that have lost pages.

Thread-safety: everything from any thread. A mapping goes when the last buffer of it does.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t

cdef extern from "mapping_guard.h" nogil:
    ctypedef struct GuardedMapping "kafkalog_mapping":
        pass
    GuardedMapping* guard_map "kafkalog_guard_map" (int descriptor, size_t size, void* owner)
    void guard_unmap "kafkalog_guard_unmap" (GuardedMapping* mapping)
    int guard_install "kafkalog_guard_install" ()
    const void* guard_start "kafkalog_guard_start" (const GuardedMapping* mapping)
    bint guard_lost "kafkalog_guard_lost" (const GuardedMapping* mapping, size_t* first,
                                           size_t* end)
    PyObject* guard_find "kafkalog_guard_find" (const void* data, size_t size)
    const int64_t guard_losses "kafkalog_guard_losses"

LOSSES = &guard_losses


@cython.final
cdef class FileMapping:
    """
    The first bytes of a file, mapped read-only; memoryview(mapping) has them.

    No descriptor is kept. A lost page reads as zeros, and `lost` is True.

    Args:
        descriptor: of the file.
        size: how many bytes; not more than the file has.
        origin: knows the file. Where pages were lost and bytes from `start` on are wanted, its
            `to_error(mapping, start)` returns what is raised; `drop(mapping)`, called before, sees
            that no later read uses the mapping.

    Attributes:
        size, origin: as given.

    Raises:
        OSError: the system refuses.
    """

    cdef GuardedMapping* _guarded
    cdef readonly Py_ssize_t size
    cdef readonly object origin

    def __cinit__(self, int descriptor, Py_ssize_t size, origin not None):
        if size <= 0:
            raise ValueError(f"size must be above 0, got {size}")
        self.size = size
        self.origin = origin
        with nogil:
            self._guarded = guard_map(descriptor, <size_t>size, <void*>self)
        if self._guarded == NULL:
            PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        if self._guarded != NULL:
            guard_unmap(self._guarded)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>guard_start(self._guarded), self.size, 1, flags)

    def __len__(self):
        return self.size

    def __reduce__(self):
        raise TypeError("a FileMapping cannot be pickled or copied")

    @property
    def lost(self):
        """(first, end) of the positions between which pages were lost; None where none was."""
        cdef size_t first = 0
        cdef size_t end = 0
        if not guard_lost(self._guarded, &first, &end):
            return None
        return first, min(end, <size_t>self.size)


cdef FileMapping _lost_mapping(const uint8_t* data, Py_ssize_t size):
    """Return the mapping that lost a page of these bytes, None for none."""
    # The caller holds the mapping of its bytes: the owner cannot be freed during the call.
    cdef PyObject* owner = guard_find(data, <size_t>size)
    return None if owner == NULL else <FileMapping>owner


cdef int refuse_lost(const uint8_t* data, Py_ssize_t size) except -1:
    cdef FileMapping mapping = _lost_mapping(data, size)
    cdef Py_ssize_t start
    if mapping is None:
        return 0
    start = data - <const uint8_t*>guard_start(mapping._guarded)
    mapping.origin.drop(mapping)
    raise mapping.origin.to_error(mapping, start)


cdef bint is_range_lost(const uint8_t* data, Py_ssize_t size) noexcept:
    cdef FileMapping mapping
    if not has_losses(LOSSES):
        return False
    mapping = _lost_mapping(data, size)
    if mapping is None:
        return False
    mapping.origin.drop(mapping)
    return True


cdef int refuse_lost_object(object data) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return refuse_lost(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def check_bytes(data not None, *, bint touch=False):
    """
    Raise LogStorageError where a page of these bytes was lost.

    Args:
        data: any buffer; only slices of mapped files can have lost pages.
        touch: read a byte of each page first, to find pages that cannot be read.
    """
    cdef Py_buffer view
    if not touch and not has_losses(LOSSES):
        return
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if touch:
            with nogil:
                touch_pages(<const uint8_t*>view.buf, view.len)
        check_read(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def lost_mapping_count():
    """Return how many mappings that are still there have lost pages."""
    return LOSSES[0]


def install_signal_handler():
    """
    Install the guard for SIGBUS again, if other code has replaced it.

    Raises:
        OSError: the system refuses.
    """
    if guard_install() != 0:
        PyErr_SetFromErrno(OSError)
