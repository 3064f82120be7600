"""Find the first record at or above a time: walk headers from an index entry, then its records.

For the plain case of format v2 only. What is not plain (an old format, compressed, damaged, not all
there, a control batch, an index entry that promises too much, a batch whose header claims a time
that none of its records has) is answered with None, and the caller looks with its usual means.

Thread-safety: a pure function of bytes; the GIL is kept, for a look-up takes about a microsecond.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_legacy,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.index cimport OffsetIndexView
from kafkalog._core.layout cimport CODEC_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD
from kafkalog._core.record cimport (
    RecordFields,
    RecordsContext,
    context_of,
    next_record,
    offset_of,
    timestamp_of,
)
from kafkalog._core.status cimport STATUS_OK

cdef enum:
    # As far as headers are walked from an index entry: many times the usual interval.
    WALK_BYTES = 1024 * 1024


cdef struct Found:
    int64_t timestamp
    int64_t offset
    int32_t epoch


cdef bint keep_promise(Cursor* cursor, int64_t entry_timestamp, int64_t entry_offset,
                       BatchFields* batch) noexcept nogil:
    """
    Move the cursor to the batch that an entry of the time index names.

    Say whether the entry is true: that batch has its timestamp, and so none before it a larger one.
    """
    while load_whole_batch(cursor, batch) == STATUS_OK and not is_legacy(batch):
        if last_offset_of(batch) >= entry_offset:
            return batch.base_offset <= entry_offset and batch.max_timestamp == entry_timestamp
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef bint find_batch_kernel(Cursor* cursor, int64_t timestamp_ms,
                            BatchFields* batch) noexcept nogil:
    """Move the cursor to the first batch that reaches the time; say whether it is a plain one."""
    while load_whole_batch(cursor, batch) == STATUS_OK and not is_legacy(batch):
        if batch.max_timestamp >= timestamp_ms:
            return (
                batch.attributes & (CODEC_MASK | CONTROL_MASK) == 0
                and crc_of_batch(cursor.position, batch.size_bytes) == batch.crc
            )
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef bint find_record_kernel(const uint8_t* position, const BatchFields* batch,
                             int64_t timestamp_ms, int64_t start_offset,
                             Found* found) noexcept nogil:
    """
    Find the record in the batch at `position`; say whether it is there.

    The records behind it are read as well: a batch that is no run of records is passed over.
    """
    cdef RecordsContext context = context_of(batch, True)
    cdef const uint8_t* limit = position + batch.size_bytes
    cdef RecordFields record
    cdef bint is_found = False
    cdef int64_t left = batch.record_count
    position += RECORD_BATCH_OVERHEAD
    while left > 0:
        left -= 1
        position = next_record(&context, position, limit, &record)
        if position == NULL:
            return False
        if (
            not is_found
            and timestamp_of(&context, &record) >= timestamp_ms
            and offset_of(&context, &record) >= start_offset
        ):
            is_found = True
            found.timestamp = timestamp_of(&context, &record)
            found.offset = offset_of(&context, &record)
            found.epoch = batch.partition_leader_epoch
    return is_found and position == limit


def find_time(
    const uint8_t[::1] data not None,
    OffsetIndexView offsets not None,
    int64_t entry_timestamp,
    int64_t entry_offset,
    int64_t timestamp_ms,
    int64_t start_offset,
):
    """
    Return timestamp, offset and leader epoch of the first record at or above `timestamp_ms`.

    Args:
        data: the segment from its first byte, as far as it may be read.
        offsets: its offset index; a hint.
        entry_timestamp: of the last entry of its time index below the time; negative for none.
        entry_offset: of that entry.
        timestamp_ms: the time.
        start_offset: records below it are not there.

    Returns:
        None where that is not plainly seen.
    """
    cdef Py_ssize_t size = data.shape[0]
    cdef int64_t start = 0
    cdef BatchFields batch
    cdef Found found
    cdef Cursor cursor
    if entry_timestamp >= 0:
        start = offsets.floor_position(entry_offset)
    # An entry may say anything: what it leads to is believed for its CRC.
    if not 0 <= start < size:
        return None
    memset(&batch, 0, sizeof(batch))           # gcc does not see that the kernels load both
    memset(&found, 0, sizeof(found))
    cursor.position = &data[0] + start
    cursor.end = cursor.position + min(size - start, WALK_BYTES)
    if entry_timestamp >= 0 and not keep_promise(&cursor, entry_timestamp, entry_offset, &batch):
        return None
    if not find_batch_kernel(&cursor, timestamp_ms, &batch):
        return None
    if not find_record_kernel(cursor.position, &batch, timestamp_ms, start_offset, &found):
        return None
    return found.timestamp, found.offset, found.epoch
