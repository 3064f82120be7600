"""Fast validation of leader appends: batches that get their offsets from the log.

Returns None if a batch needs the slow path, which also raises the errors. The fast path accepts
batches of format v2 without compression that are stored as they came. All headers are read first,
so that little work is repeated if a batch is refused; then CRC and records of every batch are
checked.

Thread-safety: pure. The GIL is released while many bytes are checked.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields, crc_of_batch, load_whole_batch
from kafkalog._core.layout cimport (
    CODEC_MASK,
    CONTROL_MASK,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.memory_records cimport MemoryRecords, make_run
from kafkalog._core.record cimport RecordsContext, context_of
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.status cimport STATUS_OK
from kafkalog._core.summary cimport RecordFacts, summarize_kernel

cdef enum:
    # Below this it takes some microseconds: keeping the GIL is cheaper than regaining it.
    NOGIL_SIZE_MIN = 64 * 1024


cdef inline bint is_ordinary(const BatchFields* fields, int64_t size_limit) noexcept nogil:
    """Return whether a header is that of a data batch that is stored as it came."""
    if fields.producer_id > NO_PRODUCER_ID:
        if fields.base_sequence < 0:
            return False
    elif fields.attributes & TRANSACTIONAL_MASK:
        return False
    return (
        fields.magic == MAGIC_V2
        and fields.size_bytes <= size_limit
        and fields.attributes & (CODEC_MASK | CONTROL_MASK | TIMESTAMP_TYPE_MASK) == 0
        and fields.record_count > 0
        and fields.record_count == <int64_t>fields.last_offset_delta + 1
    )


cdef bint has_ordinary_records(Cursor cursor, RecordFacts* found) noexcept nogil:
    """Return whether CRC, records and times of all batches are right; fill `found` from them."""
    cdef BatchFields fields
    cdef RecordsContext context
    cdef RecordFacts facts
    cdef Cursor records
    found.min_timestamp = found.max_timestamp = NO_TIMESTAMP
    found.null_key_count = 0
    while cursor.position < cursor.end:
        if load_whole_batch(&cursor, &fields) != STATUS_OK:
            return False
        if crc_of_batch(cursor.position, fields.size_bytes) != fields.crc:
            return False
        context = context_of(&fields, True)
        records.position = cursor.position + RECORD_BATCH_OVERHEAD
        cursor.position += fields.size_bytes
        records.end = cursor.position
        if (
            summarize_kernel(&context, &records, &facts) != STATUS_OK
            or fields.max_timestamp != max(facts.max_timestamp, <int64_t>NO_TIMESTAMP)
        ):
            return False
        found.null_key_count += facts.null_key_count
        if facts.min_timestamp != NO_TIMESTAMP:
            if found.min_timestamp == NO_TIMESTAMP or facts.min_timestamp < found.min_timestamp:
                found.min_timestamp = facts.min_timestamp
            found.max_timestamp = max(found.max_timestamp, facts.max_timestamp)
    return True


def leader_fast_path(bytearray data not None, AppendLimits limits not None, int64_t segment_bytes,
                     int64_t now_ms, *, bint of_client):
    """
    Return a MemoryRecords of batches that get offsets later, or None for the slow path.

    Args:
        data: the batches; no other code has this bytearray.
        limits: what the settings allow; log append time always needs the slow path.
        segment_bytes: largest size of a batch, besides that of `limits`.
        now_ms: time of the append.
        of_client: whether a producer sends them: then one batch, with base offset 0.
    """
    cdef Cursor cursor
    cdef Cursor start
    cdef BatchFields fields
    cdef RecordFacts found
    cdef BatchMetadata facts = BatchMetadata.__new__(BatchMetadata)
    cdef MemoryRecords run = make_run(data, facts, 0, None)
    cdef int64_t size_limit = min(segment_bytes, limits.max_message_bytes)
    cdef int64_t last, next_offset = 0
    cdef bint is_good
    if limits.is_log_append_time:
        return None
    cursor.position = <const uint8_t*>PyByteArray_AS_STRING(data)
    cursor.end = cursor.position + PyByteArray_GET_SIZE(data)
    start = cursor
    while cursor.position < cursor.end:
        if (
            load_whole_batch(&cursor, &fields) != STATUS_OK
            or not is_ordinary(&fields, size_limit)
            or (of_client and (facts.count > 0 or fields.base_offset != 0))
        ):
            return None
        last = next_offset + fields.last_offset_delta
        facts.add_row(fields.size_bytes, next_offset, last, fields.max_timestamp,
                      last if fields.max_timestamp >= 0 else -1)
        run.has_producers = run.has_producers or fields.producer_id > NO_PRODUCER_ID
        next_offset = last + 1
        cursor.position += fields.size_bytes
    if cursor.end - start.position < NOGIL_SIZE_MIN:
        is_good = has_ordinary_records(start, &found)
    else:
        with nogil:
            is_good = has_ordinary_records(start, &found)
    if not is_good or limits.has_invalid_record(now_ms, found.null_key_count, found.min_timestamp,
                                                found.max_timestamp):
        return None
    run.record_count = next_offset
    return run
