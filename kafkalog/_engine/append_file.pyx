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
        synced_bytes: bytes at the start that the file has on the disk.
        committed_bytes: those that a commit journal has, if it has more.

    Thread-safety: one writer, under the log's lock; any thread may read `size_bytes`.
    """

    def __cinit__(self, int64_t size_bytes=0):
        self.size_bytes = size_bytes
        self._zeroed_bytes = INT64_MAX
        self.synced_bytes = 0
        self.committed_bytes = 0

    def __reduce__(self):
        raise TypeError("an AppendFile cannot be pickled or copied")

    def attach(self, pwrite not None, open_descriptor=None):
        """
        Take appends.

        Args:
            pwrite: bound to the open file.
            open_descriptor: returns its Descriptor; None where it has none.
        """
        self._pwrite = pwrite
        self._open_descriptor = open_descriptor

    def detach(self):
        """Take no more appends."""
        self._pwrite = None
        self._open_descriptor = None

    cdef object descriptor(self):
        """Return the Descriptor of the open file, None without one."""
        return None if self._open_descriptor is None else self._open_descriptor()

    def set_size(self, int64_t size_bytes):
        """Set where the next append goes."""
        self.size_bytes = size_bytes

    def mark_synced_below(self, int64_t position):
        """Record that the file has the bytes before a position on the disk."""
        self.synced_bytes = max(self.synced_bytes, position)

    def cut(self, int64_t size_bytes):
        """Set the end to a lower position, after which nothing is on the disk."""
        self.size_bytes = size_bytes
        self.synced_bytes = min(self.synced_bytes, size_bytes)
        self.committed_bytes = min(self.committed_bytes, size_bytes)

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
