"""Read one record by its offset: walk headers to its batch, check the CRC, walk its records.

For the plain case only. What is not plain (compressed, damaged, not all there, a gap in the
offsets, a control batch) is answered with None, and the caller looks with its usual means, which
say what is the matter.

Thread-safety: pure function; the GIL is kept, for this takes about a microsecond.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.layout cimport CODEC_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD
from kafkalog._core.record cimport (
    PayloadHold,
    RecordFields,
    RecordsContext,
    context_of,
    make_record,
    next_record,
    open_payload,
)
from kafkalog._core.status cimport STATUS_OK


cdef bint find_batch_kernel(Cursor* cursor, int64_t offset, BatchFields* batch) noexcept nogil:
    """Move the cursor to the plain batch that holds `offset`; say whether there is one."""
    while load_whole_batch(cursor, batch) == STATUS_OK:
        if last_offset_of(batch) >= offset:
            return (
                batch.base_offset <= offset
                and batch.attributes & (CODEC_MASK | CONTROL_MASK) == 0
                and crc_of_batch(cursor.position, batch.size_bytes) == batch.crc
            )
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef bint find_record_kernel(Cursor* cursor, const BatchFields* batch, int64_t offset,
                             RecordsContext* context, RecordFields* record) noexcept nogil:
    """Find the record in the batch at the cursor; say whether it is there."""
    cdef int64_t left = batch.record_count
    cursor.end = cursor.position + batch.size_bytes
    cursor.position += RECORD_BATCH_OVERHEAD
    while left > 0:
        left -= 1
        cursor.position = next_record(context, cursor.position, cursor.end, record)
        if cursor.position == NULL or batch.base_offset + record.offset_delta > offset:
            return False
        if batch.base_offset + record.offset_delta == offset:
            return True
    return False


def find_record(data not None, int64_t offset):
    """
    Return the record at `offset` from the batches in `data`, None where it is not plainly there.

    Args:
        data: batches back to back; the first begins at the first byte, the last may be cut.
        offset: of the record wanted.
    """
    cdef PayloadHold hold = PayloadHold.__new__(PayloadHold, data)
    cdef Cursor cursor = open_payload(&hold.view, 0, hold.view.len)
    cdef BatchFields batch
    cdef RecordFields record
    cdef RecordsContext context
    memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernels load both
    memset(&record, 0, sizeof(record))
    if not find_batch_kernel(&cursor, offset, &batch):
        return None
    context = context_of(&batch, True)
    if not find_record_kernel(&cursor, &batch, offset, &context, &record):
        return None
    return make_record(&context, &record, hold)
