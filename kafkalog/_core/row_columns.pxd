"""Arrow columns under construction, and the steps by which rows get there."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow_memory cimport Octets, reserve
from kafkalog._core.columns cimport ColumnPointers
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.row_filter cimport RowRunInfo
from kafkalog._core.status cimport STATUS_NO_MEMORY, STATUS_OK


cdef enum:
    COLUMN_OFFSET = 0
    COLUMN_TIMESTAMP = 1
    COLUMN_TIMESTAMP_TYPE = 2
    COLUMN_KEY = 3
    COLUMN_VALUE = 4
    COLUMN_HEADERS = 5
    COLUMN_TOPIC = 6
    COLUMN_PARTITION = 7
    COLUMN_PRODUCER_ID = 8
    COLUMN_PRODUCER_EPOCH = 9
    COLUMN_SEQUENCE = 10
    COLUMN_LEADER_EPOCH = 11
    COLUMN_COUNT = 12


cdef enum:
    # Layouts of keys and values.
    LAYOUT_NARROW = 0                  # int32 offsets
    LAYOUT_WIDE = 1                    # int64 offsets
    LAYOUT_VIEWS = 2


cdef enum:
    # In addition to STATUS_*: the key of a header is not UTF-8.
    STATUS_NOT_UTF8 = -1


cdef struct Column:
    Octets validity
    Octets slots                       # values, offsets or views
    Octets octets                      # bytes of cells
    int64_t null_count


cdef enum:
    VIEW_SIZE = 16
    INLINE_SIZE_MAX = 12               # bytes of a cell that is stored in its view


# Decoded bytes that views point into.
cdef struct Window:
    const uint8_t* start
    int64_t size


cdef struct Build:
    int64_t count                      # rows so far
    int64_t size_bytes
    int64_t rows_max
    int64_t bytes_max
    int64_t row_bytes                  # of the columns of fixed width
    bint has_column[COLUMN_COUNT]
    Column columns[COLUMN_COUNT]
    Column header_keys
    Column header_values
    int64_t header_total
    int layout
    bint text_keys
    const uint8_t* topic
    int64_t topic_size
    int32_t partition
    Window* windows
    int64_t window_count


# Rows that fit into the batch, and what they need.
cdef struct Portion:
    int64_t start
    int64_t stop
    int64_t size_bytes
    int64_t key_bytes
    int64_t value_bytes
    int64_t key_nulls
    int64_t value_nulls
    int64_t header_count
    int64_t headers_bytes


cdef inline int open_offsets(Column* column, int64_t more, int width) noexcept nogil:
    """Reserve memory for offsets; the first of all is 0."""
    if reserve(&column.slots, (more + 1) * width) != STATUS_OK:
        return STATUS_NO_MEMORY
    if column.slots.size == 0:
        memset(column.slots.data, 0, <size_t>width)
        column.slots.size = width
    return STATUS_OK


cdef inline bint needs_run_info(const Build* build) noexcept nogil:
    """Return whether there is a column with a field of batches."""
    return (
        build.has_column[COLUMN_TIMESTAMP_TYPE]
        or build.has_column[COLUMN_PRODUCER_ID]
        or build.has_column[COLUMN_PRODUCER_EPOCH]
        or build.has_column[COLUMN_SEQUENCE]
        or build.has_column[COLUMN_LEADER_EPOCH]
    )


cdef inline void store_view(
    uint8_t* view, const uint8_t* cell, int32_t size, int32_t buffer, int64_t place
) noexcept nogil:
    cdef int32_t narrow = <int32_t>place
    memset(view, 0, VIEW_SIZE)
    memcpy(view, &size, 4)
    if size <= INLINE_SIZE_MAX:
        memcpy(view + 4, cell, <size_t>size)
        return
    memcpy(view + 4, cell, 4)
    memcpy(view + 8, &buffer, 4)
    memcpy(view + 12, &narrow, 4)


# Reserve memory for bits; those of earlier rows are set to "not null".
cdef int open_validity(Column* column, int64_t count, int64_t more) noexcept nogil
cdef int reserve_headers(Build* build, int64_t count, int64_t size_bytes) noexcept nogil
# Add the headers of one record, which were found good; their memory is reserved.
cdef int add_headers_kernel(Build* build, Cursor* cursor, int32_t count) noexcept nogil
# Add what is the same in many rows; those of `runs` are `start` to `stop`, as `offsets` are.
cdef int add_constants(
    Build* build, const RowRunInfo* runs, int64_t run_count, const int64_t* offsets,
    int64_t start, int64_t stop,
) noexcept nogil
cdef int add_rows_kernel(
    Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    int64_t data_size,
    const RowRunInfo* runs,
    int64_t run_count,
    bint lasting,
    bint is_continued,
    int64_t end,
    Portion* portion,
) noexcept nogil
