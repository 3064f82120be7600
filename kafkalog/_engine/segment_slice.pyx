"""Range of the bytes of one segment: its position, and the bytes at their first use.

Base of the result of `Log.read`, in one object without a dictionary, so that a compiled look-up can
make it, too: a read takes 2,800 instructions, and 4,400 with another object that holds the slice.

Thread-safety: its fields never change; two threads may both fetch the bytes.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.mapping cimport check_object, touch_pages

cdef extern from "Python.h":
    const Py_buffer* PyMemoryView_GET_BUFFER(object view) noexcept


cdef tuple NOTHING = ()


cdef class SegmentSlice:
    """
    A range of one segment.

    A subclass has `_fetch`, which returns a memoryview of the bytes from the segment, if they are
    not in memory. It adds no constructor: the point look-up makes a slice without one.

    Args:
        segment: has a `file` with `is_closed`.
        start_offset: the requested offset.
        position: start of the range in the segment, in bytes.
        size_bytes: its length.
        bound: readable part of the segment: end of its bytes, and an offset above all in it.
        log_start_offset, log_end_offset: range of the log.
        aborted_transactions: as in the subclass.
    """

    def __init__(self, segment, *, int64_t start_offset, int64_t position, int64_t size_bytes,
                 bound not None, int64_t log_start_offset, int64_t log_end_offset,
                 aborted_transactions=None):
        self._segment = segment
        self.start_offset = start_offset
        self.position = position
        self.size_bytes = size_bytes
        self.bound_position, self.following_offset = bound
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.aborted_transactions = aborted_transactions

    def __len__(self):
        return self.size_bytes

    @property
    def is_fetched(self):
        """True if the bytes were requested."""
        return self._data is not None

    @property
    def data(self):
        """
        The bytes, read-only; of a sealed segment without a copy. Fetch them before `close`.

        They can all be read at this moment. Pages that are lost later read as zeros, and the next
        call raises LogStorageError.
        """
        cdef object mapped
        if self._data is None:
            # Once: another thread may be about to let it go.
            mapped = self._mapped
            if mapped is not None and not self._segment.file.is_closed:
                self._data = mapped[self.position:self.position + self.size_bytes]
            else:
                self._data = self._fetch()
            self._mapped = None
            touch_view(self._data)
        check_object(self._data)
        return self._data


cdef int touch_view(object data) except -1:
    """Read a byte of each page, so that what cannot be read is known."""
    cdef const Py_buffer* held
    if type(data) is not memoryview:
        raise TypeError(f"data must be a memoryview, got {type(data).__name__}")
    held = PyMemoryView_GET_BUFFER(data)
    touch_pages(<const uint8_t*>held.buf, held.len)
    return 0


cdef SegmentSlice new_slice(type kind):
    return (<PyTypeObject*>kind).tp_new(kind, <PyObject*>NOTHING, NULL)
