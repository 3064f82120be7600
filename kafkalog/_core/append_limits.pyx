"""Limits of a log for the records and batches of an append, as an object that kernels can read.

Thread-safety: immutable.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from kafkalog._core.layout cimport NO_TIMESTAMP


cdef inline bint is_further(int64_t lower, int64_t upper, int64_t limit) noexcept nogil:
    """Return whether `upper` is more than a limit above `lower`, without an overflow of 64 bits."""
    return upper > lower and <uint64_t>upper - <uint64_t>lower > <uint64_t>limit


@cython.final
cdef class AppendLimits:
    """
    Limits of the batches of an append, and of the records in them.

    Attributes:
        batch_bytes: how large batches are made, where their records come one by one.
        max_message_bytes: how large a batch may be.
        before_ms, after_ms: how far a timestamp may lie from the time of the append.
        is_key_required: whether a record must have a key.
        is_log_append_time: whether records get the time of the append.
    """

    def __cinit__(self, *, int64_t batch_bytes, int64_t max_message_bytes, int64_t before_ms,
                  int64_t after_ms, bint is_key_required, bint is_log_append_time):
        self.batch_bytes = batch_bytes
        self.max_message_bytes = max_message_bytes
        self.before_ms = before_ms
        self.after_ms = after_ms
        self.is_key_required = is_key_required
        self.is_log_append_time = is_log_append_time

    def __reduce__(self):
        raise TypeError("AppendLimits cannot be pickled or copied")

    def __repr__(self):
        return (f"AppendLimits(batch_bytes={self.batch_bytes},"
                f" is_key_required={self.is_key_required})")

    cpdef bint has_invalid_record(self, int64_t now_ms, int64_t null_key_count,
                                  int64_t min_timestamp, int64_t max_timestamp) noexcept:
        """
        Return whether a batch has a record that is not allowed.

        Args:
            now_ms: time of the append.
            null_key_count: records without a key.
            min_timestamp, max_timestamp: of the records that have one; -1 where none has.
        """
        if null_key_count and self.is_key_required:
            return True
        if self.is_log_append_time or min_timestamp == NO_TIMESTAMP:
            return False
        return (is_further(min_timestamp, now_ms, self.before_ms)
                or is_further(now_ms, max_timestamp, self.after_ms))
