"""The reader of one segment, for those that ask it without a call of Python's between."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields
from kafkalog._core.index cimport OffsetIndexView, TimeIndexView
from kafkalog._core.record cimport PayloadRef, Record, RecordFields
from kafkalog._core.time_read cimport FoundTime, TimeWalk


cdef enum:
    CACHED_BATCHES = 64
    KNOWN_BITS = 6


cdef struct CachedBatch:
    BatchFields batch                  # its size is 0: nothing is known
    int64_t start                      # start of the walk to it
    int64_t position


# A batch, where a look at headers alone has found it.
cdef struct FoundBatch:
    int64_t position
    int64_t size_bytes


@cython.final
cdef class PointReader:
    # The bytes, and a view of them to give slices of.
    cdef readonly object data
    cdef PayloadRef _ref
    cdef OffsetIndexView _index
    cdef TimeIndexView _times
    cdef CachedBatch[CACHED_BATCHES] _cached

    cdef bint _is_lost(self) noexcept
    cdef bint _open(self, Cursor* cursor, int64_t start) noexcept
    cdef int64_t _entry_of(self, int64_t offset, int64_t* entry_offset) noexcept
    cdef bint _check(self, int64_t start, const uint8_t* position, const BatchFields* batch,
                     bint check_crcs) noexcept
    cdef const uint8_t* _batch_of(self, int64_t offset, bint check_crcs,
                                  BatchFields* batch) noexcept
    cdef bint _walk_of(self, int64_t timestamp_ms, bint check_crcs, TimeWalk* walk) noexcept
    cdef Record _make_record(self, const BatchFields* batch, const RecordFields* record)

    # The first batch of a read for an offset, by headers alone; returns whether it is plain. The
    # segment is read up to `end`; no offset in it reaches `following_offset`.
    cdef bint find_start(self, int64_t offset, int64_t base_offset, int64_t end,
                         int64_t following_offset, FoundBatch* found) noexcept

    # The record at an offset, None where it is not plainly there.
    cdef Record read(self, int64_t offset, bint check_crcs)

    # The first record at or above a time; returns whether it was found.
    cdef bint read_time(self, int64_t timestamp_ms, int64_t start_offset, bint check_crcs,
                        FoundTime* found) noexcept
