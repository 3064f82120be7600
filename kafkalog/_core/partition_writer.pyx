"""Writer of rows of columns into the batches of several partitions, in one pass.

Rows are neither sorted nor moved: columns are read from front to back, and a record is written
once, after the others of its partition.

Thread-safety: the builders belong to one caller at a time. The GIL stays held, as by the builders.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc

from kafkalog._core.builder cimport ADD_OVER_LIMIT, BatchDraft, RecordParts, add_row
from kafkalog._core.bytes_column cimport (
    BytesCells,
    CellColumn,
    TimestampColumn,
    load_cell,
    no_cells,
)
from kafkalog._core.layout cimport NO_TIMESTAMP
from kafkalog._core.records_builder cimport RecordsBuilder
from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_FULL, STATUS_OK


cdef enum:
    BAD_PARTITION = 2001


cdef int _spread_kernel(
    BatchDraft** drafts, int64_t draft_count, const int32_t* partitions, const BytesCells* cells,
    const int64_t* timestamps, RecordParts* parts, int64_t* slot, int64_t stop, int64_t size_limit,
) noexcept nogil:
    """Add rows until one does not go in; `slot` is that one, and `parts` has what was loaded."""
    cdef BatchDraft* draft
    cdef int status
    while slot[0] < stop:
        if not 0 <= partitions[slot[0]] < draft_count:
            return BAD_PARTITION
        draft = drafts[partitions[slot[0]]]
        status = load_cell(&cells[0], slot[0], &parts.key, &parts.key_size)
        if status != STATUS_OK:
            return status
        status = load_cell(&cells[1], slot[0], &parts.value, &parts.value_size)
        if status != STATUS_OK:
            return status
        status = add_row(draft, parts, timestamps, slot, size_limit)
        if status != STATUS_OK:
            return status
    return STATUS_OK


cdef int64_t _spread(
    list builders, BatchDraft** drafts, const int32_t[::1] partitions, const BytesCells* cells,
    TimestampColumn times, int64_t start, int64_t size_limit,
) except -1:
    cdef RecordsBuilder builder
    cdef RecordParts parts
    cdef int64_t slot = start, stop = partitions.shape[0]
    cdef Py_ssize_t number
    cdef int status
    parts.headers_size = 0
    parts.header_count = 0
    parts.headers = NULL
    parts.timestamp_ms = times.constant
    for number in range(len(builders)):
        builder = builders[number]
        builder._own()
        drafts[number] = &builder.draft
    while slot < stop:
        status = _spread_kernel(
            drafts, len(builders), &partitions[0], cells, times.each, &parts, &slot, stop,
            size_limit,
        )
        if status == STATUS_OK or status == ADD_OVER_LIMIT:
            break
        if status == BAD_PARTITION:
            raise ValueError(
                f"the partition of slot {slot} must be in 0 to {len(builders) - 1}, "
                f"got {partitions[slot]}"
            )
        if status == STATUS_FIELD_LENGTH:
            raise ValueError(f"the offsets of slot {slot} must rise and lie in the data")
        builder = builders[partitions[slot]]
        if status == STATUS_FULL:
            builder._reserve()
        else:
            builder._refuse(status, &parts)
    return slot


def extend_partitions(
    list builders not None,
    const int32_t[::1] partitions not None,
    CellColumn keys,
    CellColumn values,
    timestamps=NO_TIMESTAMP,
    Py_ssize_t start=0,
    int64_t size_limit=INT32_MAX,
):
    """
    Add rows of columns to the batches of their partitions, until one belongs to the next batch.

    Args:
        builders: one for each partition, all of them different.
        partitions: of each row, which of the builders.
        keys: column of keys, or None for no keys.
        values: column of values, or None for tombstones only.
        timestamps: one int for all, or an int64 array with one for each row.
        start: first row.
        size_limit: of a batch, before it is compressed; one record may have more.

    Returns:
        The first row that did not go in, as the batch of its partition is full; else their number.

    Raises:
        ValueError: a partition has no builder, or a column is shorter than the others or damaged.
        InvalidRecordError: a time is below -1.
    """
    cdef TimestampColumn times = TimestampColumn(timestamps)
    cdef BytesCells cells[2]
    cdef int64_t count = partitions.shape[0]
    cdef BatchDraft** drafts
    cells[0] = no_cells() if keys is None else keys.cells
    cells[1] = no_cells() if values is None else values.cells
    if (keys is not None and keys.count < count) or (values is not None and values.count < count):
        raise ValueError(f"keys and values must have {count} rows")
    if not 0 <= start <= count:
        raise ValueError(f"start must be in 0 to {count}, got {start}")
    times.check(count)
    if len({id(builder) for builder in builders}) != len(builders):
        raise ValueError("builders must differ, got one for two partitions")
    drafts = <BatchDraft**>malloc(<size_t>(len(builders) + 1) * sizeof(BatchDraft*))
    if drafts == NULL:
        raise MemoryError
    try:
        return _spread(builders, drafts, partitions, cells, times, start, size_limit)
    finally:
        free(drafts)
