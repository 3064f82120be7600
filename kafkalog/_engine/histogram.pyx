"""Histogram of times or sizes with fixed buckets: an observation is a few additions.

The bounds are given once and never change, so that histograms of several logs can be added up.
Values are integers: nanoseconds, or counts.

Thread-safety: see the class.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    clockid_t CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec* now)


cdef int64_t monotonic_ns() noexcept:
    """Return nanoseconds from an arbitrary start, 0 if the clock cannot be read."""
    cdef timespec now
    if clock_gettime(CLOCK_MONOTONIC, &now) != 0:
        return 0
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


@cython.final
cdef class Histogram:
    """
    Counts of values by bucket, with their sum.

    Args:
        bounds: largest value of each bucket, rising, at most 32; larger values have one more.

    Raises:
        ValueError: the bounds do not rise, or there are too many or none.

    Thread-safety: every method from any thread. An observation runs no Python code, so the GIL
    makes it one step; on a Python without the GIL, observations at the same time may be lost.
    """

    def __cinit__(self, bounds not None):
        bounds = tuple(bounds)
        if not 0 < len(bounds) <= BUCKETS_MAX:
            raise ValueError(f"bounds must be 1 to {BUCKETS_MAX} values, got {len(bounds)}")
        cdef Py_ssize_t row
        cdef Py_ssize_t count = len(bounds)
        for row in range(count):
            self._bounds[row] = bounds[row]
            if row and self._bounds[row] <= self._bounds[row - 1]:
                raise ValueError(f"bounds must rise, got {bounds}")
        self._bound_count = count

    def __reduce__(self):
        raise TypeError("a Histogram cannot be pickled or copied")

    @property
    def bounds(self):
        """The largest value of each bucket but the last."""
        return tuple([self._bounds[row] for row in range(self._bound_count)])

    @property
    def sum(self):
        """Sum of all values."""
        return self._sum

    def observe(self, int64_t value):
        """Count a value; a negative one counts as 0."""
        self.add(value)

    def start_sample(self):
        """
        Return the present time in nanoseconds for one of 16 calls, and 0 for the others.

        The caller observes the time since then at the end of its work, unless it got 0.
        """
        return self.begin_sample()

    def end_sample(self, int64_t started_ns):
        """Count the time since `start_sample`; no effect with its result 0."""
        if started_ns:
            self.add(monotonic_ns() - started_ns)

    def counts(self):
        """Return the number of values of each bucket, then of the larger ones, and the sum."""
        cdef int64_t counts[BUCKETS_MAX + 1]
        cdef int64_t total
        # A copy first: making Python objects may let other threads run.
        memcpy(counts, self._counts, sizeof(counts))
        total = self._sum
        return tuple([counts[row] for row in range(self._bound_count + 1)]), total

    cdef int64_t begin_sample(self) noexcept:
        self._ticks += 1
        return monotonic_ns() if self._ticks % SAMPLE_INTERVAL == 1 else 0

    cdef void cancel_sample(self) noexcept:
        """Give the sample of the last call back: what it began will begin again."""
        self._ticks -= 1

    cdef void add(self, int64_t value) noexcept:
        cdef Py_ssize_t row = 0
        if value < 0:
            value = 0
        while row < self._bound_count and value > self._bounds[row]:
            row += 1
        self._counts[row] += 1
        self._sum += value
