"""The reader of one segment, for those that ask it without a call of Python's between."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields
from kafkalog._core.index cimport OffsetIndexView, TimeIndexView
from kafkalog._core.record cimport PayloadHold, Record, RecordFields
from kafkalog._core.time_read cimport FoundTime, TimeWalk


cdef enum:
    KNOWN_BATCHES = 64
    KNOWN_BITS = 6


cdef struct KnownBatch:
    BatchFields batch                  # its size is 0: nothing is known
    int64_t start                      # where the walk to it began
    int64_t position


@cython.final
cdef class PointReader:
    cdef PayloadHold _hold
    cdef OffsetIndexView _index
    cdef TimeIndexView _times
    cdef KnownBatch[KNOWN_BATCHES] _known

    cdef bint _open(self, Cursor* cursor, int64_t start) noexcept
    cdef bint _check(self, int64_t start, const uint8_t* position, const BatchFields* batch,
                     bint check_crcs) noexcept
    cdef const uint8_t* _batch_of(self, int64_t offset, bint check_crcs,
                                  BatchFields* batch) noexcept
    cdef bint _walk_of(self, int64_t timestamp_ms, bint check_crcs, TimeWalk* walk) noexcept
    cdef Record _made(self, const BatchFields* batch, const RecordFields* record)

    # The record at an offset, None where it is not plainly there.
    cdef Record read(self, int64_t offset, bint check_crcs)

    # The first record at or above a time; says whether it is plainly there.
    cdef bint read_time(self, int64_t timestamp_ms, int64_t start_offset, bint check_crcs,
                        FoundTime* found) noexcept
