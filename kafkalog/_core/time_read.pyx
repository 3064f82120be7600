"""Search of the first record at or above a time: in headers after an index entry, then in a batch.

A batch is read up to the result: the bytes after it are not read, as in a look-up by offset. Bytes
that are not a record end the search in a batch, and a result before them is valid.

Thread-safety: pure functions of bytes; the GIL is kept, for a look-up takes about a microsecond.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    BatchHeader,
    is_legacy,
    is_plain_v2,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.layout cimport CODEC_MASK, CONTROL_MASK
from kafkalog._core.prefetch cimport prefetch_ahead
from kafkalog._core.record cimport (
    check_payload,
    PayloadRef,
    RecordFields,
    context_of,
    header_context,
    offset_of,
    open_payload,
    read_record,
    timestamp_of,
)
from kafkalog._core.status cimport STATUS_LEGACY, STATUS_OK, raise_for_status


cdef bint matches_index_entry(Cursor* cursor, int64_t entry_timestamp, int64_t entry_offset,
                              BatchFields* batch) noexcept nogil:
    """
    Move the cursor to the batch that an entry of the time index names.

    Return whether the entry is right: its batch has its timestamp, and so none before has a larger.
    """
    while load_whole_batch(cursor, batch) == STATUS_OK and not is_legacy(batch):
        if last_offset_of(batch) >= entry_offset:
            return batch.base_offset <= entry_offset and batch.max_timestamp == entry_timestamp
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef bint find_time_batch(Cursor* cursor, int64_t entry_timestamp, int64_t entry_offset,
                          int64_t timestamp_ms, BatchFields* batch) noexcept nogil:
    if entry_timestamp >= 0:
        if not matches_index_entry(cursor, entry_timestamp, entry_offset, batch):
            return False
        # It is the last one below the time, by the index.
        cursor.position += batch.size_bytes
    while load_whole_batch(cursor, batch) == STATUS_OK and not is_legacy(batch):
        if batch.max_timestamp >= timestamp_ms:
            return is_plain_v2(batch, CODEC_MASK | CONTROL_MASK)
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef void begin_time_walk(TimeWalk* walk, const uint8_t* position, const uint8_t* limit,
                          const BatchFields* batch) noexcept nogil:
    walk.batch = batch[0]
    walk.context = context_of(batch, False)
    walk.position = position
    walk.limit = limit
    walk.left = batch.record_count


cdef bint find_time_record(TimeWalk* walk, int64_t timestamp_ms, int64_t start_offset,
                           FoundTime* found) noexcept nogil:
    cdef RecordsContext context = walk.context
    cdef const uint8_t* position = walk.position
    cdef const uint8_t* limit = walk.limit
    cdef const uint8_t* end
    cdef int64_t left = walk.left
    cdef int64_t offset
    cdef RecordFields record
    record.timestamp_delta = 0
    while left > 0:
        left -= 1
        prefetch_ahead(position)
        end = skip_record(position, limit, &record.timestamp_delta, &record.offset_delta)
        if end == NULL:
            end = read_record(position, limit, &record)
            if end == NULL:
                break
        offset = offset_of(&context, &record)
        if timestamp_of(&context, &record) >= timestamp_ms and offset >= start_offset:
            if read_record(position, limit, &record) == NULL:
                break
            walk.position = end
            walk.left = left
            found.timestamp = timestamp_of(&context, &record)
            found.offset = offset
            found.epoch = walk.batch.partition_leader_epoch
            return True
        position = end
    walk.left = 0
    return False


def first_record_at(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    int64_t timestamp_ms,
    int64_t start_offset,
):
    """
    Return timestamp and offset of the first record of a batch at or above `timestamp_ms`.

    Args:
        payload: holds the uncompressed records.
        header: of the batch, of format v2.
        start, end: where in it they are.
        timestamp_ms: the time.
        start_offset: records below it are not there.

    Returns:
        None where no record is, before bytes that are none.

    Raises:
        InvalidRecordError: the batch has an old format.
        IndexError: the payload ends before `end`.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef TimeWalk walk
    cdef FoundTime found
    walk.context = header_context(header, False)
    if walk.context.legacy:
        return raise_for_status(STATUS_LEGACY, start)
    walk.batch.partition_leader_epoch = header.partition_leader_epoch
    walk.position = cursor.position
    walk.limit = cursor.end
    walk.left = walk.context.record_count
    cdef bint is_found = find_time_record(&walk, timestamp_ms, start_offset, &found)
    check_payload(&hold.view, start, end)
    return (found.timestamp, found.offset) if is_found else None
