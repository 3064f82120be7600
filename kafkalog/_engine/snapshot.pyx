"""The published state of a log: segments, end and start, as one immutable object.

A writer makes a new `LogSnapshot` and publishes it with one store; a reader takes the published one
once for each operation. Nothing here looks at a segment, except for its size.

Thread-safety: `publish` under the log's lock; everything else from any thread, without a lock.
"""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._engine.histogram cimport Histogram
from kafkalog._engine.counters cimport LogCounters

from collections import namedtuple

ReadBound = namedtuple("ReadBound", ("end", "following_offset"))
ReadBound.__doc__ = """
How far a segment may be read.

Attributes:
    end: end of the published bytes.
    following_offset: an offset that no record of the segment reaches.
"""


@cython.final
cdef class LogSnapshot:
    """
    A log as a reader sees it. Immutable.

    Args:
        segments: all segments.
        end_offset: log end offset.
        end_position: end of the published bytes in the last segment.
        start_offset: log start offset.

    Thread-safety: from any thread.
    """

    def __cinit__(self, segments not None, int64_t end_offset, int64_t end_position,
                  int64_t start_offset):
        self.segments = segments
        self.end_offset = end_offset
        self.end_position = end_position
        self.start_offset = start_offset

    def __eq__(self, other):
        cdef LogSnapshot another
        if not isinstance(other, LogSnapshot):
            return NotImplemented
        another = other
        return (
            self.segments is another.segments
            and self.end_offset == another.end_offset
            and self.end_position == another.end_position
            and self.start_offset == another.start_offset
        )

    def __hash__(self):
        return hash((id(self.segments), self.end_offset, self.end_position, self.start_offset))

    def __reduce__(self):
        raise TypeError("a LogSnapshot cannot be pickled or copied")

    def __repr__(self):
        return (
            f"LogSnapshot(segments={self.segments!r}, end_offset={self.end_offset}, "
            f"end_position={self.end_position}, start_offset={self.start_offset})"
        )

    def replace(self, *, segments=None, end_offset=None, end_position=None, start_offset=None):
        """Return a snapshot with the given fields replaced."""
        return LogSnapshot(
            self.segments if segments is None else segments,
            self.end_offset if end_offset is None else end_offset,
            self.end_position if end_position is None else end_position,
            self.start_offset if start_offset is None else start_offset,
        )

    def read_bound(self, Py_ssize_t slot):
        """Return the ReadBound of the segment in `slot`."""
        following = self.segments.base_after(slot)
        if following is None:
            return ReadBound(self.end_position, self.end_offset)
        return ReadBound(self.segments.segments[slot].size_bytes, following)


@cython.final
cdef class PublishedSnapshot:
    """
    The reference to the current snapshot of a log, and the counts of its appends and reads.

    The counts are here because the fast paths of both have this object already.

    Args:
        snapshot: the first one.
        counters: continued by this log; new ones if None.
        append_times: gets the time of one append of 16, in nanoseconds; None for a new histogram.

    Attributes:
        snapshot: the current one.
        counters, append_times: as given.

    Thread-safety: `publish` under the log's lock; `snapshot` from any thread.
    """

    def __cinit__(self, LogSnapshot snapshot not None, LogCounters counters=None,
                  Histogram append_times=None):
        self.snapshot = snapshot
        self.counters = LogCounters() if counters is None else counters
        self.append_times = Histogram((1,)) if append_times is None else append_times

    def __reduce__(self):
        raise TypeError("a PublishedSnapshot cannot be pickled or copied")

    def publish(self, LogSnapshot snapshot not None):
        """Replace the snapshot, with one store."""
        self.snapshot = snapshot

    cdef int publish_end(self, int64_t end_offset, int64_t end_position) except -1:
        """Publish the same segments with another end."""
        cdef LogSnapshot before = self.snapshot
        cdef LogSnapshot made = LogSnapshot.__new__(
            LogSnapshot, before.segments, end_offset, end_position, before.start_offset)
        self.snapshot = made
        return 0
