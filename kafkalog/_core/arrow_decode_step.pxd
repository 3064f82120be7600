"""Some records of a batch at a time, from their bytes into Arrow columns under construction."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.prefetch cimport PrefetchWindow
from kafkalog._core.record cimport RecordsContext
from kafkalog._core.row_columns cimport Build


# State of a run: between two batches, or after a record of a batch that was found good.
# `readable_end` is that of the buffer with the records.
cdef struct RunState:
    const uint8_t* batch               # the next batch, or the current one
    const uint8_t* end                 # of the last batch of the run
    const uint8_t* readable_end
    int64_t offset_min                 # rises with the batches
    int64_t offset_end
    int64_t batch_count                # that are done
    bint check_crc
    bint compressed                    # all of them; records then lie in memory that is used again
    # State of the current batch:
    const uint8_t* position            # its next record; NULL between two batches
    const uint8_t* records_end
    int64_t left                       # records
    PrefetchWindow ahead                        # of its tile
    RecordsContext context


# Target of the next cell of a column.
cdef struct Cells:
    bint is_selected
    uint8_t* slots
    uint8_t* validity                  # NULL: no cell is null so far
    int64_t null_count


# Rows of the current batch; they are not valid until the batch was found good.
cdef struct Rows:
    int64_t row                        # the next one of the columns
    int64_t end_row                    # end of the capacity
    int64_t size_bytes
    int64_t bytes_max
    int64_t* offsets                   # NULL: not selected
    int64_t* timestamps
    uint8_t* timestamp_validity
    int64_t timestamp_nulls
    Cells key
    Cells value
    int32_t* header_ends               # NULL: not selected
    const uint8_t* window              # origin of views; NULL: their cells are copied
    int32_t window_number


# Reserve memory for the remaining records of a batch, or for as many as fit.
cdef int open_rows(Build* build, const RunState* run, Rows* rows) noexcept nogil
# Add the records that begin before `tile_end`; STATUS_FULL before a record that does not fit.
cdef int add_tile(
    Build* build, RunState* run, Rows* rows, const uint8_t* tile_end
) noexcept nogil
