"""One record of a v2 batch: the leaf that reads it, the walk over a batch, and the object.

`read_record` is the only function that reads the layout of a record (DefaultRecord.readFrom). Its
fast path takes nearly all records: lengths below 1 Mi, no headers, enough bytes after them. The
slow path decides about all others and finds the fault; the fast path never refuses a record.

The position of the next record comes from the length at the beginning, not from the end of the
fields: the processor then starts on the next record before this one is complete.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.header cimport BatchFields, BatchHeader, is_legacy
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.layout cimport RECORD_SIZE_MIN, TIMESTAMP_TYPE_MASK
from kafkalog._core.mapping cimport check_read
from kafkalog._core.status cimport (
    STATUS_FIELD_LENGTH,
    STATUS_HEADER_KEY,
    STATUS_LEGACY,
    STATUS_OFFSET_DELTA,
    STATUS_OK,
    STATUS_RECORD_COUNT,
    STATUS_TRAILING_BYTES,
    STATUS_TRUNCATED,
)
from kafkalog._core.varint cimport read_varint


cdef enum:
    # Decoding to columns, or checking, holds the GIL below this many bytes: 100-byte records take
    # 15 us here, and giving the GIL up and winning it back costs more than a few of those.
    NOGIL_SIZE_MIN = 256 * 1024

    # Longest prefix that the fast path reads unchecked: length 3, attributes 1, timestamp
    # delta 10, offset delta 3, key length 3.
    FAST_PREFIX_SIZE = 20
    FAST_VARINT_SIZE_MAX = 3


cdef struct RecordFields:
    int64_t timestamp_delta
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers             # first byte after the header count
    const uint8_t* end                 # one past the record
    int32_t offset_delta
    int32_t key_size                   # -1: null
    int32_t value_size                 # -1: null
    int32_t header_count


cdef inline const uint8_t* read_short_varint(
    const uint8_t* position, uint32_t* value
) noexcept nogil:
    """Read at most FAST_VARINT_SIZE_MAX bytes, unchecked; NULL if the varint is longer."""
    cdef uint32_t byte = position[0]
    if byte < 0x80:
        value[0] = byte
        return position + 1
    cdef uint32_t second = position[1]
    if second < 0x80:
        value[0] = (byte & 0x7f) | (second << 7)
        return position + 2
    cdef uint32_t third = position[2]
    if third < 0x80:
        value[0] = (byte & 0x7f) | ((second & 0x7f) << 7) | (third << 14)
        return position + 3
    return NULL


cdef inline const uint8_t* read_fast_varlong(
    const uint8_t* position, uint64_t* value
) noexcept nogil:
    """Read at most 10 bytes, unchecked; NULL if the varlong is longer."""
    cdef int shift
    if position[0] < 0x80:
        value[0] = position[0]
        return position + 1
    if position[1] < 0x80:
        value[0] = (position[0] & 0x7f) | <uint32_t>position[1] << 7
        return position + 2
    value[0] = (position[0] & 0x7f) | (position[1] & 0x7f) << 7
    position += 2
    shift = 14
    while position[0] >= 0x80:
        if shift == 63:
            return NULL
        value[0] |= <uint64_t>(position[0] & 0x7f) << shift
        position += 1
        shift += 7
    value[0] |= <uint64_t>position[0] << shift
    return position + 1


cdef inline const uint8_t* read_fast_prefix(
    const uint8_t* position,
    const uint8_t* limit,
    const uint8_t** end,
    int64_t* timestamp_delta,
    int32_t* offset_delta,
) noexcept nogil:
    """
    Read the end of a record, at or before `limit`, and its deltas; NULL for the slow path.

    Returns the position of the key's length, which may be after the end.
    """
    cdef uint32_t encoded = 0
    cdef uint64_t encoded_long = 0
    if limit - position < FAST_PREFIX_SIZE:
        return NULL
    position = read_short_varint(position, &encoded)
    # An odd code is a negative number: here a broken length, for a key or a value null.
    if position == NULL or encoded & 1 or <int64_t>(encoded >> 1) > limit - position:
        return NULL
    end[0] = position + (encoded >> 1)
    # After the attributes, which are unused, and ignored as in Kafka.
    position = read_fast_varlong(position + 1, &encoded_long)
    if position == NULL:
        return NULL
    timestamp_delta[0] = <int64_t>((encoded_long >> 1) ^ (0 - (encoded_long & 1)))
    position = read_short_varint(position, &encoded)
    if position == NULL or encoded & 1:
        return NULL                    # a negative delta is for the slow path
    offset_delta[0] = <int32_t>(encoded >> 1)
    return position


cdef inline const uint8_t* try_read_record(
    const uint8_t* position, const uint8_t* limit, RecordFields* fields
) noexcept nogil:
    """Read a record without headers that ends at or before `limit`; NULL for the slow path."""
    cdef const uint8_t* end = NULL
    cdef uint32_t encoded = 0
    cdef int64_t size
    position = read_fast_prefix(
        position, limit, &end, &fields.timestamp_delta, &fields.offset_delta
    )
    if position == NULL:
        return NULL
    fields.end = end
    position = read_short_varint(position, &encoded)
    if position == NULL:
        return NULL
    fields.key = position
    size = encoded >> 1
    fields.key_size = <int32_t>size
    if encoded & 1:
        fields.key_size = -1
        size = 0
    # At least two bytes follow the key: the length of the value and the count of headers. Most
    # lengths have at most two; a third byte exists only before a value.
    if size > end - position - 2:
        return NULL
    position += size
    encoded = position[0]
    if encoded < 0x80:
        position += 1
    elif position[1] < 0x80:
        encoded = (encoded & 0x7f) | <uint32_t>position[1] << 7
        position += 2
    elif end - position < FAST_VARINT_SIZE_MAX or position[2] >= 0x80:
        return NULL
    else:
        encoded = (
            (encoded & 0x7f) | <uint32_t>(position[1] & 0x7f) << 7 | <uint32_t>position[2] << 14
        )
        position += 3
    fields.value = position
    size = encoded >> 1
    fields.value_size = <int32_t>size
    if encoded & 1:
        fields.value_size = -1
        size = 0
    # Exactly one byte, a header count of zero, must be left.
    if end - position - size != 1 or position[size] != 0:
        return NULL
    fields.headers = end
    fields.header_count = 0
    return end


cdef inline int read_field(
    Cursor* cursor, const uint8_t** data, int32_t* size
) noexcept nogil:
    """Read a length and the bytes it counts; any negative length is null, as in Kafka."""
    cdef int status = read_varint(cursor, size)
    if status != STATUS_OK:
        return STATUS_FIELD_LENGTH if status == STATUS_TRUNCATED else status
    data[0] = cursor.position
    if size[0] < 0:
        size[0] = -1
        return STATUS_OK
    if size[0] > remaining(cursor):
        return STATUS_FIELD_LENGTH
    cursor.position += size[0]
    return STATUS_OK


cdef inline int read_header(
    Cursor* cursor,
    const uint8_t** key,
    int32_t* key_size,
    const uint8_t** value,
    int32_t* value_size,
) noexcept nogil:
    cdef int status = read_field(cursor, key, key_size)
    if status != STATUS_OK:
        return status
    if key_size[0] < 0:
        return STATUS_HEADER_KEY
    return read_field(cursor, value, value_size)


cdef int read_record_slow(
    const uint8_t* position, const uint8_t* limit, RecordFields* fields
) noexcept nogil


cdef inline const uint8_t* read_record(
    const uint8_t* position, const uint8_t* limit, RecordFields* fields
) noexcept nogil:
    """Read the record at `position` and return where the next begins; NULL if it is refused."""
    cdef RecordFields careful
    cdef const uint8_t* end = try_read_record(position, limit, fields)
    if end == NULL and read_record_slow(position, limit, &careful) == STATUS_OK:
        # A copy: were `fields` itself handed out, no caller could keep it in registers.
        fields[0] = careful
        end = careful.end
    return end


# Facts of a batch header about its records, in the form that the loops need.
cdef struct RecordsContext:
    int64_t base_offset
    int64_t timestamp_base             # base timestamp; the append time if the batch has one
    int64_t timestamp_mask             # -1: add the record's delta; 0: every record the same
    int64_t last_offset_delta
    int64_t previous_delta             # offset delta of the record before, for strict reading
    int64_t record_count
    int timestamp_type
    bint legacy                        # magic 0 or 1: its bytes are no v2 records
    bint strict


cdef inline int check_count(const RecordsContext* context, const Cursor* cursor) noexcept nogil:
    """Refuse another format, and a false count, before anything is allocated."""
    if context.legacy:
        return STATUS_LEGACY
    if context.record_count < 0:
        return STATUS_RECORD_COUNT
    if context.record_count > remaining(cursor) // RECORD_SIZE_MIN:
        return STATUS_RECORD_COUNT
    return STATUS_OK


cdef inline const uint8_t* next_record(
    RecordsContext* context,
    const uint8_t* position,
    const uint8_t* limit,
    RecordFields* fields,
) noexcept nogil:
    """As read_record, but the record must also fit its batch; else see `record_error_status`."""
    cdef const uint8_t* end = read_record(position, limit, fields)
    if end != NULL and context.strict:
        if (
            fields.offset_delta <= context.previous_delta
            or fields.offset_delta > context.last_offset_delta
        ):
            return NULL
        context.previous_delta = fields.offset_delta
    return end


cdef inline int record_error_status(const uint8_t* position, const uint8_t* limit) noexcept nogil:
    """Return the status of a record that `next_record` refused."""
    cdef RecordFields fields
    cdef int status = read_record_slow(position, limit, &fields)
    return STATUS_OFFSET_DELTA if status == STATUS_OK else status


cdef inline int check_end(const RecordsContext* context, const Cursor* cursor) noexcept nogil:
    """Refuse bytes after the last record; of a batch without records no byte is read."""
    if context.record_count > 0 and cursor.position != cursor.end:
        return STATUS_TRAILING_BYTES
    return STATUS_OK


cdef inline int64_t offset_of(
    const RecordsContext* context, const RecordFields* fields
) noexcept nogil:
    return <int64_t>(<uint64_t>context.base_offset + <uint64_t><int64_t>fields.offset_delta)


cdef inline int64_t timestamp_of(
    const RecordsContext* context, const RecordFields* fields
) noexcept nogil:
    return <int64_t>(
        <uint64_t>context.timestamp_base
        + <uint64_t>(fields.timestamp_delta & context.timestamp_mask)
    )


cdef inline RecordsContext context_of(const BatchFields* fields, bint strict) noexcept nogil:
    cdef bint append_time = (fields.attributes & TIMESTAMP_TYPE_MASK) != 0
    cdef RecordsContext context
    context.base_offset = fields.base_offset
    context.timestamp_base = fields.max_timestamp if append_time else fields.base_timestamp
    context.timestamp_mask = 0 if append_time else -1
    context.timestamp_type = append_time
    context.last_offset_delta = fields.last_offset_delta
    context.record_count = fields.record_count
    context.previous_delta = -1
    context.legacy = is_legacy(fields)
    context.strict = strict
    return context


@cython.nonecheck(False)
cdef inline RecordsContext header_context(BatchHeader header, bint strict) noexcept:
    cdef BatchFields fields
    fields.base_offset = header.base_offset
    fields.base_timestamp = header.base_timestamp
    fields.max_timestamp = header.max_timestamp
    fields.attributes = header.attributes
    fields.last_offset_delta = header.last_offset_delta
    fields.record_count = header.record_count
    fields.magic = header.magic
    return context_of(&fields, strict)


@cython.final
cdef class PayloadRef:
    cdef Py_buffer view


@cython.final
cdef class ArenaAnchors:
    cdef list _anchors
    cdef Py_ssize_t _next

    cdef int add(self, const RecordFields* fields) except -1


@cython.final
@cython.no_gc
cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef const uint8_t* _key_data
    cdef const uint8_t* _value_data
    cdef const uint8_t* _headers_data
    cdef const uint8_t* _headers_end
    cdef PayloadRef _ref               # if None, key, value and headers are objects
    cdef bytes _key                    # null, or not made yet, if None
    cdef bytes _value
    cdef tuple _headers
    cdef int32_t _key_size             # -1: null; else the size at _key_data, if _key is None
    cdef int32_t _value_size
    cdef int32_t _header_count
    cdef readonly int timestamp_type

    cdef bytes key_bytes(self)
    cdef bytes value_bytes(self)
    cdef bytes _check_mapped(self, bytes field, const uint8_t* data)
    cdef tuple header_pairs(self)


cdef inline Cursor open_payload(
    const Py_buffer* view, Py_ssize_t start, Py_ssize_t end
) except *:
    """Return a cursor over `view[start:end]`, or raise IndexError."""
    cdef Cursor cursor
    cursor.position = <const uint8_t*>view.buf
    cursor.end = cursor.position
    if start < 0 or end < start or end > view.len:
        raise IndexError(f"records at {start} to {end} are outside the {view.len} bytes given")
    cursor.end = cursor.position + end
    cursor.position += start
    return cursor


cdef inline int check_payload(const Py_buffer* view, Py_ssize_t start, Py_ssize_t end) except -1:
    """Raise LogStorageError where a page of `view[start:end]`, just read, was lost."""
    return check_read(<const uint8_t*>view.buf + start, end - start)


cdef object bytes_or_none(object field, str name)
cdef tuple header_tuple(object headers)
cdef Record make_record(
    const RecordsContext* context, const RecordFields* fields, PayloadRef ref
)
cdef tuple make_pair(const RecordFields* fields)
