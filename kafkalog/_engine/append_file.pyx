"""The end of a segment's log file: where the next append goes.

The compiled part of `SegmentFile`, which has what is not done for every append.

Thread-safety: one writer, under the log's lock. Any thread may read `size_bytes`.
"""

from libc.stdint cimport INT64_MAX, int64_t


cdef class AppendFile:
    """
    The end of a file that takes appends.

    Subclasses say what `_require_handle` does where there is no handle, and how `_write_zeros`
    writes ahead of the end once it has caught up with `_zeroed_bytes`.

    Attributes:
        size_bytes: where the next append goes.
    """

    def __cinit__(self, *_arguments, **_options):
        self._zeroed_bytes = INT64_MAX

    cpdef append(self, data, int64_t size):
        """Write `data`, `size` bytes, at the end; publishing them is the caller's act."""
        cdef object handle = self._handle
        if handle is None:
            handle = self._require_handle()
        handle.pwrite(data, self.size_bytes)
        self.size_bytes += size
        if self.size_bytes > self._zeroed_bytes:
            self._write_zeros(handle)
