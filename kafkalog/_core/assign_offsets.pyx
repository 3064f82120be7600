"""Assignment of offsets, leader epoch and log append time to encoded batches, in place.

What a leader does to a producer's batches before it writes them (LogValidator's in-place paths,
DefaultRecordBatch.setMaxTimestamp and AbstractLegacyRecordBatch's setters in Kafka). Records are
never touched, nor the messages inside a wrapper.

Thread-safety: pure functions; the caller owns the bytes.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.byteorder cimport store_i16, store_i32, store_i64, store_u32
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_legacy,
    is_wrapper,
    load_whole_batch,
    open_cursor,
)
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    LEADER_EPOCH_POSITION,
    MAGIC_V0,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.status cimport STATUS_COMPRESSED, STATUS_OK, raise_for_status

from kafkalog.errors import OffsetOverflowError


cdef int check_run_kernel(Cursor* cursor, int64_t* offset_count) noexcept nogil:
    """Walk headers to the end and sum up how many offsets the batches take."""
    cdef BatchFields fields
    cdef int64_t total = 0
    cdef int status
    while cursor.position < cursor.end:
        status = load_whole_batch(cursor, &fields)
        if status != STATUS_OK:
            return status
        if is_wrapper(&fields):
            return STATUS_COMPRESSED       # only decoding can count the records inside
        # At most 2^31 each, from at least 26 bytes each: no address space reaches 2^63.
        total += <int64_t>fields.last_offset_delta + 1
        cursor.position += fields.size_bytes
    offset_count[0] = total
    return STATUS_OK


cdef int assign_kernel(uint8_t* batch, uint8_t* end, int64_t base_offset,
                       int32_t partition_leader_epoch) noexcept nogil:
    """Stamp a run that check_run_kernel has passed."""
    cdef BatchFields fields
    cdef Cursor cursor
    cdef int status
    cursor.end = end
    while batch < end:
        cursor.position = batch
        status = load_whole_batch(&cursor, &fields)
        if status != STATUS_OK:
            return status
        store_i64(batch + BASE_OFFSET_POSITION, base_offset)
        if not is_legacy(&fields):         # old formats have their CRC where the epoch would be
            store_i32(batch + LEADER_EPOCH_POSITION, partition_leader_epoch)
        base_offset += <int64_t>fields.last_offset_delta + 1
        batch += fields.size_bytes
    return STATUS_OK


cdef void set_timestamp_kernel(uint8_t* batch, const BatchFields* fields, int16_t attributes,
                               int64_t max_timestamp) noexcept nogil:
    if is_legacy(fields):
        batch[MESSAGE_ATTRIBUTES_POSITION] = <uint8_t>attributes
        store_i64(batch + MESSAGE_TIMESTAMP_POSITION, max_timestamp)
        store_u32(batch + MESSAGE_CRC_POSITION, crc_of_batch(batch, fields.size_bytes))
        return
    store_i16(batch + ATTRIBUTES_POSITION, attributes)
    store_i64(batch + MAX_TIMESTAMP_POSITION, max_timestamp)
    store_u32(batch + CRC_POSITION, crc_of_batch(batch, fields.size_bytes))


def assign_offsets(uint8_t[::1] data not None, *, int64_t base_offset,
                   int32_t partition_leader_epoch=-1, Py_ssize_t position=0, end=None):
    """
    Stamp consecutive offsets and the leader epoch on the batches of data[position:end], in place.

    Each batch takes last_offset_delta + 1 offsets, a plain message of an old format one; messages
    have no leader epoch. The CRC does not cover what is stamped. Headers are checked before the
    first byte is written; the CRC is not.

    Returns:
        The next offset, one past the last one given.

    Raises:
        CorruptRecordError: a batch is cut or damaged; nothing is stamped.
        InvalidRecordError: one is a wrapper, which needs `set_entry_offset`; nothing is stamped.
        OffsetOverflowError: the offsets would not fit 63 bits; nothing is stamped.
    """
    cdef Cursor cursor
    cdef int64_t offset_count = 0
    cdef const uint8_t* start = open_cursor(data, position, end, &cursor)
    if base_offset < 0:
        raise ValueError(f"base_offset must not be negative, got {base_offset}")
    cdef int status = check_run_kernel(&cursor, &offset_count)
    if status != STATUS_OK:
        return raise_for_status(status, cursor.position - start)
    if offset_count > INT64_MAX - base_offset:
        raise OffsetOverflowError(
            f"{offset_count} offsets from {base_offset} on do not fit 63 bits",
            position=position, base_offset=base_offset)
    if offset_count > 0:
        status = assign_kernel(&data[position], &data[0] + (cursor.end - start), base_offset,
                               partition_leader_epoch)
        raise_for_status(status, position)
    return base_offset + offset_count


def set_entry_offset(uint8_t[::1] data not None, Py_ssize_t position, *, int64_t offset):
    """
    Set the offset field of the batch at `position` in place: its base offset, or of a message of
    the old formats its own, for a wrapper that of its last record. No CRC covers it.

    The messages inside a wrapper of magic 1 count from it, those of magic 0 do not.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    if not 0 <= offset < INT64_MAX:
        raise ValueError(f"offset must be in 0 to 2^63-2, got {offset}")
    open_cursor(data, position, None, &cursor)
    cdef int status = load_whole_batch(&cursor, &fields)
    if status != STATUS_OK:
        return raise_for_status(status, position)
    if offset > INT64_MAX - 1 - fields.last_offset_delta:
        raise OffsetOverflowError(
            f"{fields.last_offset_delta + 1} offsets from {offset} on do not fit 63 bits",
            position=position, base_offset=offset)
    store_i64(&data[position + BASE_OFFSET_POSITION], offset)


cdef int _set_time(uint8_t[::1] data, Py_ssize_t position, int timestamp_type,
                   int64_t max_timestamp) except -1:
    cdef Cursor cursor
    cdef BatchFields fields
    cdef int16_t attributes
    open_cursor(data, position, None, &cursor)
    cdef int status = load_whole_batch(&cursor, &fields)
    if status != STATUS_OK:
        raise_for_status(status, position)
    attributes = <int16_t>(
        (fields.attributes
         & (CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK))
        | (TIMESTAMP_TYPE_MASK if timestamp_type == 1 else 0))
    if (
        (fields.attributes & TIMESTAMP_TYPE_MASK) == (attributes & TIMESTAMP_TYPE_MASK)
        and fields.max_timestamp == max_timestamp
    ):
        return 0
    if fields.magic == MAGIC_V0:
        raise ValueError(
            f"a message of magic 0 has no timestamp: {max_timestamp} cannot be set"
            if max_timestamp != NO_TIMESTAMP else "a message of magic 0 has no timestamp type")
    set_timestamp_kernel(&data[position], &fields, attributes, max_timestamp)
    return 0


cdef int _check_timestamp_type(int timestamp_type) except -1:
    if timestamp_type not in (0, 1):
        raise ValueError(f"timestamp_type must be 0 or 1, got {timestamp_type}")
    return 0


def set_max_timestamp(uint8_t[::1] data not None, Py_ssize_t position, *, int timestamp_type,
                      int64_t max_timestamp):
    """
    Set timestamp type, max_timestamp and CRC of the batch at `position` in place.

    Does nothing if both are so already. Otherwise unused attribute bits are cleared, as Kafka does.
    In magic 1 this is the timestamp of the message. Magic 0 has neither: there only type 0 with
    timestamp -1 is taken, and nothing is done.

    Args:
        timestamp_type: 0 for create time, 1 for log append time.
        max_timestamp: in milliseconds since 1970; with type 1 it is the time of every record.
    """
    _check_timestamp_type(timestamp_type)
    _set_time(data, position, timestamp_type, max_timestamp)


def set_max_timestamps(uint8_t[::1] data not None, const int64_t[::1] positions not None,
                       const int64_t[::1] max_timestamps not None, *, int timestamp_type):
    """Do for every batch at one of `positions` what `set_max_timestamp` does for one."""
    cdef Py_ssize_t row
    _check_timestamp_type(timestamp_type)
    if positions.shape[0] != max_timestamps.shape[0]:
        raise ValueError(
            f"max_timestamps must be as many as positions, {positions.shape[0]}, "
            f"got {max_timestamps.shape[0]}")
    for row in range(positions.shape[0]):
        _set_time(data, positions[row], timestamp_type, max_timestamps[row])
