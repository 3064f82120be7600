"""Some records of a batch at a time, from their bytes into Arrow columns under construction."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.prefetch cimport PrefetchWindow
from kafkalog._core.record cimport RecordsContext
from kafkalog._core.row_columns cimport Build


# Where a run stands: between two batches, or behind a record of a batch that was found good.
# `readable_end` is that of the buffer with the records.
cdef struct RunState:
    const uint8_t* batch               # the next batch, or the one under way
    const uint8_t* end                 # of the last batch of the run
    const uint8_t* readable_end
    int64_t offset_min                 # rises with the batches
    int64_t offset_end
    int64_t batch_count                # that are done
    bint check_crc
    bint compressed                    # all of them; records then lie in memory that is used again
    # Of the batch under way:
    const uint8_t* position            # its next record; NULL between two batches
    const uint8_t* records_end
    int64_t left                       # records
    PrefetchWindow ahead                        # of its tile
    RecordsContext context


# Where the next cell of a column goes.
cdef struct Cells:
    bint wanted
    uint8_t* slots
    uint8_t* validity                  # NULL: no cell is null so far
    int64_t null_count


# The rows of one batch on their way; nothing of it counts until the batch was found good.
cdef struct Rows:
    int64_t row                        # the next one of the columns
    int64_t end_row                    # where there is no more room
    int64_t size_bytes
    int64_t bytes_max
    int64_t* offsets                   # NULL: not wanted
    int64_t* timestamps
    uint8_t* timestamp_validity
    int64_t timestamp_nulls
    Cells key
    Cells value
    int32_t* header_ends               # NULL: not wanted
    const uint8_t* window              # what views count from; NULL: their cells are copied
    int32_t window_number


# Make room for the records that are left of a batch, or for as many as there may be.
cdef int open_rows(Build* build, const RunState* run, Rows* rows) noexcept nogil
# Add the records that begin before `tile_end`; STATUS_FULL before one that does not fit.
cdef int add_tile(
    Build* build, RunState* run, Rows* rows, const uint8_t* tile_end
) noexcept nogil
