"""Collection of the keys of a run of plain batches: the first pass of a cleaning.

Some hundred rows are put at a time, while they are in the cache, so that the lanes of hashing are
full and entries of the map are prefetched.

Thread-safety: none; one caller at a time.
"""

from libc.stdint cimport int64_t

from kafkalog._core.batch_rows cimport BatchRows, RunRows, load_plain
from kafkalog._core.columns cimport RecordColumns
from kafkalog._core.header cimport last_offset_of
from kafkalog._core.mapping cimport check_object
from kafkalog._core.offset_map cimport OffsetMap, put_kernel
from kafkalog._core.offset_table cimport KeyRows, OffsetTable
from kafkalog._core.status cimport STATUS_COMPRESSED, STATUS_FULL, STATUS_OK

cdef enum:
    # Rows that are put together, and those of one batch more.
    PUT_ROWS = 512


# Progress of a collection.
cdef struct PutState:
    OffsetTable* table
    int64_t start_offset               # rows below are passed
    int64_t latest_offset              # all up to here is accounted for
    int64_t rows_read
    bint is_full


cdef int _put_rows(RunRows* rows, PutState* state) noexcept nogil:
    """Put the rows that were read, and have none left."""
    cdef KeyRows keys
    cdef int64_t first = 0
    cdef int64_t row
    cdef int64_t last_offset = last_offset_of(&rows.fields)
    cdef int status
    keys.data = rows.data
    keys.data_size = rows.data_size
    keys.positions = rows.columns.key_position
    keys.sizes = rows.columns.key_size
    keys.offsets = rows.columns.offset
    while first < rows.count and keys.offsets[first] < state.start_offset:
        first += 1
    row = first
    status = put_kernel(state.table, &keys, &row, rows.count)
    if row > first:
        state.latest_offset = max(state.latest_offset, keys.offsets[row - 1])
    if status != STATUS_OK:
        state.is_full = status == STATUS_FULL
        return status
    state.rows_read += rows.count
    rows.count = 0
    if last_offset >= state.start_offset:
        state.latest_offset = max(state.latest_offset, last_offset)
    return STATUS_OK


cdef int _plain_kernel(RunRows* rows, PutState* state) noexcept nogil:
    """Put batches up to the end, or to a compressed one."""
    cdef int status = STATUS_OK
    cdef int put_status = STATUS_OK
    while rows.cursor.position < rows.cursor.end:
        status = load_plain(rows)
        if status != STATUS_OK and (status != STATUS_FULL or rows.count == 0):
            break
        if status == STATUS_FULL or rows.count >= PUT_ROWS:
            status = _put_rows(rows, state)
            if status != STATUS_OK:
                return status
    if rows.count > 0 and status in (STATUS_OK, STATUS_COMPRESSED):
        put_status = _put_rows(rows, state)
    return status if put_status == STATUS_OK else put_status


def put_keys(
    OffsetMap offset_map not None,
    run not None,
    RecordColumns columns not None,
    decompress not None,
    *,
    int64_t start_offset,
):
    """
    Put the keys of all records of a run from an offset on, in a map that is not exact.

    Args:
        offset_map: the map, with the same result as by `put_run`.
        run: plain batches (`survey_run`).
        columns: scratch columns, large enough for the records of the largest batch.
        decompress: see `BatchRows`.

    Returns:
        (records read, whether all keys fit the map, status). Any status but OK means that a batch
        is not valid, or the columns are too small: keys of batches before it are in the map, and
        the caller continues with the general path, which reports the error.

    Raises: whatever `decompress` does.
    """
    if offset_map.exact:
        raise TypeError("same_keys must be given for an exact map")
    cdef BatchRows batches = BatchRows(run, columns, decompress)
    cdef RunRows* rows = &batches.rows
    cdef PutState state
    cdef int status = STATUS_OK
    state.table = &offset_map._table
    state.start_offset = start_offset
    state.latest_offset = offset_map.latest_offset
    state.rows_read = 0
    state.is_full = False
    while status == STATUS_OK and rows.cursor.position < rows.cursor.end:
        with nogil:
            status = _plain_kernel(rows, &state)
        if status == STATUS_COMPRESSED:
            status = batches.open_compressed()
            if status == STATUS_OK:
                with nogil:
                    status = _put_rows(rows, &state)
                batches.close_compressed()
    check_object(run)
    offset_map.latest_offset = max(offset_map.latest_offset, state.latest_offset)
    if state.is_full:
        return state.rows_read + rows.count, False, STATUS_OK
    return state.rows_read, True, status
