"""Filter of one batch, for kernels that walk over many."""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.columns cimport ColumnPointers
from kafkalog._core.header cimport BatchFields


cdef enum:
    # Actions for a batch.
    ACTION_DROP = 0
    ACTION_COPY = 1
    ACTION_EMPTY = 2                   # the header stays, without records
    ACTION_REWRITE = 3                 # records that stay, with the horizon given or none

    # A longer delta, and so a longer size of the record, take so many bytes more at most.
    RECORD_GROWTH_MAX = 10


# Target of a write, and its end.
cdef struct OutputSpace:
    uint8_t* position
    uint8_t* end


# Rows of one batch, where its records begin, and what they are now to count from.
cdef struct RowRange:
    int64_t start
    int64_t end
    int64_t position
    int64_t base_timestamp
    int64_t max_timestamp              # of the records that stay, found by the filter
    int64_t count


# Result for one batch.
cdef struct BatchFate:
    int action
    bint has_horizon
    int64_t horizon_ms
    int64_t kept                       # records that stay
    bint sets_horizon                  # the batch gets its horizon now


cdef inline void judge_batch(
    BatchFate* fate,
    int64_t record_count,
    bint starts_horizon,
    int64_t new_horizon_ms,
    bint shows_end,
) noexcept nogil:
    """
    Decide what becomes of a batch: the one rule of the compiled and of the general filter.

    `kept`, `has_horizon` and `horizon_ms` are set before. `starts_horizon`: the time of its
    tombstones, or of its marker, begins with this pass. `shows_end`: without records its header
    still has to stay.
    """
    fate.sets_horizon = starts_horizon and fate.kept > 0 and not fate.has_horizon
    if fate.sets_horizon:
        fate.has_horizon = True
        fate.horizon_ms = new_horizon_ms
    if fate.kept == 0:
        fate.action = ACTION_EMPTY if shows_end else ACTION_DROP
    elif fate.kept == record_count and not fate.sets_horizon:
        fate.action = ACTION_COPY
    else:
        fate.action = ACTION_REWRITE


cdef inline int64_t space_left(const OutputSpace* target) noexcept nogil:
    return <int64_t>(target.end - target.position)


cdef int records_kernel(
    const uint8_t* data,
    int64_t data_size,
    const ColumnPointers* columns,
    const uint8_t* keep,
    RowRange* rows,
    OutputSpace* target,
) noexcept nogil
cdef int64_t first_timestamp(
    const ColumnPointers* columns, const uint8_t* keep, int64_t start, int64_t end
) noexcept nogil
cdef void change_header(
    BatchFields* fields, const RowRange* rows, bint has_horizon, int codec
) noexcept nogil
cdef int retained_batch_kernel(
    const uint8_t* data,
    int64_t data_size,
    const uint8_t* batch,
    BatchFields* fields,
    const ColumnPointers* columns,
    const uint8_t* keep,
    RowRange* rows,
    int action,
    bint has_horizon,
    OutputSpace* target,
) noexcept nogil
