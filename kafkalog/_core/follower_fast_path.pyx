"""Fast validation of follower appends: batches that keep their offsets.

Returns None if a batch needs the slow path, which also raises the errors. All headers are read
first, so that little work is repeated if a batch is refused; then the CRC of every batch is
checked. Records are not read: the leader has validated them.

Thread-safety: pure. The GIL is released while the CRCs of many bytes are computed.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.byteorder cimport load_u32
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.codec cimport is_known_codec
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.layout cimport (
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from kafkalog._core.memory_records cimport EPOCHS_DIFFER, MemoryRecords, make_run
from kafkalog._core.batch_metadata cimport MetadataRow, BatchMetadata
from kafkalog._core.status cimport STATUS_OK

cdef enum:
    # Below this the sums take a few microseconds: keeping the GIL is cheaper than regaining it.
    NOGIL_SIZE_MIN = 256 * 1024


cdef inline bint is_ordinary(const BatchFields* fields, int64_t next_offset,
                             int64_t size_limit) noexcept nogil:
    return (
        fields.magic == MAGIC_V2
        and fields.base_offset >= next_offset
        and fields.size_bytes <= size_limit
        and fields.attributes & CONTROL_MASK == 0
        and is_known_codec(fields.attributes & CODEC_MASK)
        and fields.partition_leader_epoch >= NO_PARTITION_LEADER_EPOCH
        and fields.producer_id >= NO_PRODUCER_ID
        and fields.producer_epoch >= NO_PRODUCER_EPOCH
        and fields.base_sequence >= NO_SEQUENCE
    )


cdef bint has_matching_crcs(const uint8_t* batch, const MetadataRow* rows,
                            Py_ssize_t count) noexcept nogil:
    """Return whether the CRC of each batch equals that of its header."""
    cdef Py_ssize_t row
    for row in range(count):
        if crc_of_batch(batch, rows[row].size_bytes) != load_u32(batch + CRC_POSITION):
            return False
        batch += rows[row].size_bytes
    return True


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
    cdef Cursor cursor
    cdef BatchFields fields
    cdef const uint8_t* first
    cdef int64_t last, next_offset = 0, record_count = 0
    cdef int codec = 0
    cdef bint is_good
    cdef BatchMetadata facts = BatchMetadata.__new__(BatchMetadata)
    cdef MemoryRecords run = make_run(data, facts, 0, None)
    if isinstance(data, bytes):
        first = <const uint8_t*>PyBytes_AS_STRING(data)
        cursor.end = first + PyBytes_GET_SIZE(data)
    else:
        first = <const uint8_t*>PyByteArray_AS_STRING(<bytearray?>data)
        cursor.end = first + PyByteArray_GET_SIZE(data)
    cursor.position = first
    while cursor.position < cursor.end:
        if (
            load_whole_batch(&cursor, &fields) != STATUS_OK
            or not is_ordinary(&fields, next_offset, size_limit)
        ):
            return None
        prefetch_header(&cursor, fields.size_bytes)
        last = last_offset_of(&fields)
        facts.add_row(fields.size_bytes, fields.base_offset, last, fields.max_timestamp,
                      last if fields.max_timestamp != NO_TIMESTAMP else -1)
        if facts.count == 1:
            run.leader_epoch = fields.partition_leader_epoch
        elif run.leader_epoch != fields.partition_leader_epoch:
            run.leader_epoch = EPOCHS_DIFFER
        if fields.attributes & CODEC_MASK:
            codec = fields.attributes & CODEC_MASK
        run.has_producers = run.has_producers or fields.producer_id >= 0
        record_count += fields.record_count
        next_offset = last + 1
        cursor.position += fields.size_bytes
    if cursor.end - first < NOGIL_SIZE_MIN:
        is_good = has_matching_crcs(first, facts.rows, facts.count)
    else:
        with nogil:
            is_good = has_matching_crcs(first, facts.rows, facts.count)
    if not is_good:
        return None
    run.record_count = record_count
    run.needs_offsets = False
    if codec:
        run.rewriting = rewritings[codec]
    return run
