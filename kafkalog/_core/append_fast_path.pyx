"""Fast validation of encoded batches, as a leader or as a follower: one kernel with two modes.

Returns None if a batch needs the slow path, `kafkalog.records.validation`, which also raises the
errors. All headers are read first, so that little work is repeated if a batch is refused; then the
bytes of every batch are checked. A follower computes the CRC only: the leader has validated the
records.

Thread-safety: pure. The GIL is released while many bytes are checked.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._core.codec cimport is_known_codec
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_plain_v2,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.layout cimport (
    CODEC_MASK,
    CONTROL_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.memory_records cimport EPOCHS_DIFFER, MemoryRecords, make_run
from kafkalog._core.record cimport RecordsContext, context_of
from kafkalog._core.status cimport STATUS_OK
from kafkalog._core.summary cimport RecordFacts, summarize_kernel

cdef enum:
    # Fewer bytes are checked in some microseconds: keeping the GIL is cheaper than regaining it.
    NOGIL_SIZE_MIN_LEADER = 64 * 1024
    NOGIL_SIZE_MIN_FOLLOWER = 256 * 1024


# Mode and rules of one check, and the facts that it collects.
cdef struct AppendCheck:
    int64_t size_limit
    bint is_follower                   # batches keep their offsets
    bint of_client                     # one batch, with base offset 0
    int codec                          # of the last compressed batch
    RecordFacts records                # of a leader


cdef inline bint is_valid_for_leader(const BatchFields* fields) noexcept nogil:
    """Return whether a data batch can be stored unchanged, except for its offsets."""
    if fields.producer_id > NO_PRODUCER_ID:
        if fields.base_sequence < 0:
            return False
    elif fields.attributes & TRANSACTIONAL_MASK:
        return False
    return (
        is_plain_v2(fields, CODEC_MASK | CONTROL_MASK | TIMESTAMP_TYPE_MASK)
        and fields.record_count > 0
        and fields.record_count == <int64_t>fields.last_offset_delta + 1
    )


cdef inline bint is_valid_for_follower(const BatchFields* fields,
                                       int64_t next_offset) noexcept nogil:
    return (
        is_plain_v2(fields, CONTROL_MASK)
        and fields.base_offset >= next_offset
        and is_known_codec(fields.attributes & CODEC_MASK)
        and fields.partition_leader_epoch >= NO_PARTITION_LEADER_EPOCH
        and fields.producer_id >= NO_PRODUCER_ID
        and fields.producer_epoch >= NO_PRODUCER_EPOCH
        and fields.base_sequence >= NO_SEQUENCE
    )


cdef void add_records(RecordFacts* total, const RecordFacts* records) noexcept nogil:
    total.null_key_count += records.null_key_count
    if records.min_timestamp != NO_TIMESTAMP:
        if total.min_timestamp == NO_TIMESTAMP or records.min_timestamp < total.min_timestamp:
            total.min_timestamp = records.min_timestamp
        total.max_timestamp = max(total.max_timestamp, records.max_timestamp)


cdef bint check_bytes(Cursor cursor, AppendCheck* check) noexcept nogil:
    """Return whether every CRC is right, and for a leader the records with their timestamps."""
    cdef BatchFields fields
    cdef RecordsContext context
    cdef RecordFacts records
    cdef Cursor body
    check.records.min_timestamp = check.records.max_timestamp = NO_TIMESTAMP
    check.records.null_key_count = 0
    while cursor.position < cursor.end:
        if (
            load_whole_batch(&cursor, &fields) != STATUS_OK
            or crc_of_batch(cursor.position, fields.size_bytes) != fields.crc
        ):
            return False
        body.position = cursor.position + RECORD_BATCH_OVERHEAD
        cursor.position += fields.size_bytes
        if check.is_follower:
            continue
        context = context_of(&fields, True)
        body.end = cursor.position
        if (
            summarize_kernel(&context, &body, &records) != STATUS_OK
            or fields.max_timestamp != max(records.max_timestamp, <int64_t>NO_TIMESTAMP)
        ):
            return False
        add_records(&check.records, &records)
    return True


cdef MemoryRecords run_of_headers(object data, Cursor cursor, AppendCheck* check):
    """Return the batches as a run, None if a header needs the slow path."""
    cdef BatchFields fields
    cdef BatchMetadata batches = BatchMetadata.__new__(BatchMetadata)
    cdef MemoryRecords run = make_run(data, batches, 0, None)
    cdef int64_t last, next_offset = 0
    while cursor.position < cursor.end:
        if (
            load_whole_batch(&cursor, &fields) != STATUS_OK
            or fields.size_bytes > check.size_limit
        ):
            return None
        if check.is_follower:
            if not is_valid_for_follower(&fields, next_offset):
                return None
            if batches.count == 0:
                run.leader_epoch = fields.partition_leader_epoch
            elif run.leader_epoch != fields.partition_leader_epoch:
                run.leader_epoch = EPOCHS_DIFFER
            next_offset = fields.base_offset
        elif (
            not is_valid_for_leader(&fields)
            or (check.of_client and (batches.count > 0 or fields.base_offset != 0))
        ):
            return None
        prefetch_header(&cursor, fields.size_bytes)
        last = next_offset + fields.last_offset_delta
        batches.add_row(fields.size_bytes, next_offset, last, fields.max_timestamp,
                        last if fields.max_timestamp != NO_TIMESTAMP else -1)
        if fields.attributes & CODEC_MASK:
            check.codec = fields.attributes & CODEC_MASK
        run.has_producers = run.has_producers or fields.producer_id > NO_PRODUCER_ID
        run.record_count += fields.record_count
        next_offset = last + 1
        cursor.position += fields.size_bytes
    return run


cdef MemoryRecords check_append(object data, AppendCheck* check):
    """Return the batches in bytes or a bytearray as a run, None for the slow path."""
    cdef Cursor cursor
    cdef MemoryRecords run
    cdef int64_t nogil_size = NOGIL_SIZE_MIN_LEADER
    if check.is_follower:
        nogil_size = NOGIL_SIZE_MIN_FOLLOWER
    if isinstance(data, bytes):
        cursor.position = <const uint8_t*>PyBytes_AS_STRING(data)
        cursor.end = cursor.position + PyBytes_GET_SIZE(data)
    else:
        cursor.position = <const uint8_t*>PyByteArray_AS_STRING(<bytearray?>data)
        cursor.end = cursor.position + PyByteArray_GET_SIZE(data)
    run = run_of_headers(data, cursor, check)
    if run is None:
        return None
    cdef bint is_good
    if remaining(&cursor) < nogil_size:
        is_good = check_bytes(cursor, check)
    else:
        with nogil:
            is_good = check_bytes(cursor, check)
    return run if is_good else None


def leader_fast_path(bytearray data not None, AppendLimits limits not None, int64_t segment_bytes,
                     int64_t now_ms, *, bint of_client):
    """
    Return a MemoryRecords of batches that get offsets later, or None for the slow path.

    For a result every batch is whole, of format v2, uncompressed and stored as it came; CRCs,
    records and timestamps are right.

    Args:
        data: the batches; no other code has this bytearray.
        limits: limits of the settings; log append time always needs the slow path.
        segment_bytes: largest size of a batch, besides that of `limits`.
        now_ms: time of the append.
        of_client: whether a producer sends them: then one batch, with base offset 0.
    """
    cdef AppendCheck check
    cdef MemoryRecords run
    if limits.is_log_append_time:
        return None
    check.is_follower = False
    check.of_client = of_client
    check.size_limit = min(segment_bytes, limits.max_message_bytes)
    run = check_append(data, &check)
    if run is None or limits.has_invalid_record(
        now_ms, check.records.null_key_count, check.records.min_timestamp,
        check.records.max_timestamp,
    ):
        return None
    return run


def follower_fast_path(data not None, int64_t size_limit, tuple rewritings not None):
    """
    Return a MemoryRecords of batches that keep their offsets, or None for the slow path.

    For a result every batch is whole, of format v2, in offset order and has the right CRC; no batch
    is a control batch, has an unknown codec, more bytes than the limit, or a leader epoch or
    producer field below -1.

    Args:
        data: bytes, or a bytearray that no other code has.
        size_limit: largest size of a batch in bytes.
        rewritings: attribute `rewriting` of the result, by the id of its last compressed codec.
    """
    cdef AppendCheck check
    cdef MemoryRecords run
    check.is_follower = True
    check.size_limit = size_limit
    check.codec = 0
    run = check_append(data, &check)
    if run is not None:
        run.needs_offsets = False
        if check.codec:
            run.rewriting = rewritings[check.codec]
    return run
