"""The machine's clocks in milliseconds; every append reads one.

Thread-safety: stateless.
"""

from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    clockid_t CLOCK_REALTIME
    clockid_t CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec* now)


cdef int64_t read_clock(clockid_t clock) except -1:
    cdef timespec now
    if clock_gettime(clock, &now) != 0:
        raise OSError("the clock of the machine cannot be read")
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef class SystemClock:
    """The machine's own clocks; see `kafkalog.clock.Clock`."""

    def now_ms(self):
        """Return milliseconds since 1970-01-01 UTC."""
        return read_clock(CLOCK_REALTIME)

    def monotonic_ms(self):
        """Return milliseconds from an arbitrary start; never goes back."""
        return read_clock(CLOCK_MONOTONIC)
