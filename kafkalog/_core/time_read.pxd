"""Search of a time: in headers, then in the records of a batch. Kernels for holders of both.

A record before the result is skipped by its length, after its time and its offset were read: most
records that a look-up by time reads are of this kind.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields
from kafkalog._core.record cimport RecordsContext, read_fast_prefix


cdef struct FoundTime:
    int64_t timestamp
    int64_t offset
    int32_t epoch


cdef struct TimeWalk:
    BatchFields batch
    RecordsContext context
    const uint8_t* position            # of the next record
    const uint8_t* limit               # end of the records
    int64_t left                       # records from there on


cdef inline const uint8_t* skip_record(
    const uint8_t* position, const uint8_t* limit, int64_t* timestamp_delta, int32_t* offset_delta
) noexcept nogil:
    """Read when and where a record is and return its end; NULL where it is of no usual kind."""
    cdef const uint8_t* end = NULL
    position = read_fast_prefix(position, limit, &end, timestamp_delta, offset_delta)
    if position == NULL or position > end:
        return NULL
    return end


# Move the cursor to the first batch that reaches the time; return whether it is plain. If the time
# of the entry is not negative, the entry is compared with its batch first. The CRC is not checked.
cdef bint find_time_batch(Cursor* cursor, int64_t entry_timestamp, int64_t entry_offset,
                          int64_t timestamp_ms, BatchFields* batch) noexcept nogil

cdef void begin_time_walk(TimeWalk* walk, const uint8_t* position, const uint8_t* limit,
                          const BatchFields* batch) noexcept nogil

# Move to the first record at or above the time, and not below the offset; return whether there is
# one before bytes that are not a record.
cdef bint find_time_record(TimeWalk* walk, int64_t timestamp_ms, int64_t start_offset,
                           FoundTime* found) noexcept nogil
