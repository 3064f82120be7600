"""Counts of values by fixed buckets."""

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    BUCKETS_MAX = 32
    # One append of so many is timed: two reads of the clock cost a third of a percent of each.
    SAMPLE_INTERVAL = 16


cdef int64_t monotonic_ns() noexcept


@cython.final
cdef class Histogram:
    cdef int64_t _bounds[BUCKETS_MAX]
    cdef int64_t _counts[BUCKETS_MAX + 1]   # the last one: values above all bounds
    cdef Py_ssize_t _bound_count
    cdef int64_t _sum
    cdef int64_t _ticks

    cdef int64_t begin_sample(self) noexcept
    cdef void cancel_sample(self) noexcept
    cdef void add(self, int64_t value) noexcept
