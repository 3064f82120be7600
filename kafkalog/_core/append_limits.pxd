"""Limits of a log for the records and batches of an append."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class AppendLimits:
    cdef readonly int64_t batch_bytes
    cdef readonly int64_t max_message_bytes
    cdef readonly int64_t before_ms
    cdef readonly int64_t after_ms
    cdef readonly bint is_key_required
    cdef readonly bint is_log_append_time

    cpdef bint has_invalid_record(self, int64_t now_ms, int64_t null_key_count,
                                  int64_t min_timestamp, int64_t max_timestamp) noexcept
