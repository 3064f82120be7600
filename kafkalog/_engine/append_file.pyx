"""The end of a segment's log file: where the next append goes.

`SegmentFile` has one, and does everything else with the file. Zeros written ahead of the end are
not bytes of the log.

Thread-safety: one writer, under the log's lock. Any thread may read `size_bytes`.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t


@cython.final
cdef class AppendFile:
    """
    The end of one file.

    Args:
        size_bytes: where the next append goes.

    Attributes:
        size_bytes: as given, and as it grew since.

    Thread-safety: one writer, under the log's lock; any thread may read `size_bytes`.
    """

    def __cinit__(self, int64_t size_bytes=0):
        self.size_bytes = size_bytes
        self._zeroed_bytes = INT64_MAX

    def __reduce__(self):
        raise TypeError("an AppendFile cannot be pickled or copied")

    def attach(self, pwrite not None):
        """Take appends, by a bound `pwrite` of the open file."""
        self._pwrite = pwrite

    def detach(self):
        """Take no more appends."""
        self._pwrite = None

    def set_size(self, int64_t size_bytes):
        """Set where the next append goes."""
        self.size_bytes = size_bytes

    def write_ahead(self, write_zeros):
        """
        Have zeros written ahead of the end, whenever it has caught up with them.

        Args:
            write_zeros: called with the end; returns up to where zeros are written, 2**63 - 1 for
                no more. None to write none.
        """
        self._write_zeros = write_zeros
        self._zeroed_bytes = INT64_MAX if write_zeros is None else self.size_bytes

    cpdef append(self, data, int64_t size):
        """Write `data`, `size` bytes, at the end; publishing them is left to the caller."""
        if self._pwrite is None:
            raise AssertionError("the file takes no appends: it is sealed")
        self._pwrite(data, self.size_bytes)
        self.size_bytes += size
        if self.size_bytes > self._zeroed_bytes:
            self._zeroed_bytes = self._write_zeros(self.size_bytes)
