"""Writer of the cells of columns as records of a batch under construction.

Nearly all records of v2 are plain: no headers, and a length of one byte or two for any deltas.
Plain records are written in one pass; `add_to_draft` writes the others and the messages of old
formats, and refuses invalid ones.

Thread-safety: pure functions; the draft belongs to one builder.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.builder cimport BatchDraft, RecordParts, add_row
from kafkalog._core.bytes_column cimport BytesCells, end_of_cells, load_cell
from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.layout cimport MAGIC_V2, NO_TIMESTAMP
from kafkalog._core.prefetch cimport prefetch
from kafkalog._core.status cimport STATUS_OK
from kafkalog._core.varint cimport write_unsigned_varlong, zigzag32, zigzag64


cdef enum:
    # Distance of the prefetch ahead of the copy: the processor's own prefetching begins again in
    # each page.
    SOURCE_DISTANCE = 4 * 1024
    LINE_SIZE = 64

    # The plain path takes records whose length is one byte, or two, for any deltas: in addition to
    # key and value they have 6 to PLAIN_EXTRA_SIZE bytes.
    PLAIN_EXTRA_SIZE = 23              # attributes 1, deltas 10 and 5, lengths 3 and 3, headers 1
    PLAIN_SHORT_MAX = 63 - PLAIN_EXTRA_SIZE
    PLAIN_LONG_MIN = 64 - 6
    PLAIN_LONG_MAX = 8191 - PLAIN_EXTRA_SIZE
    SHORT_MOVE_SIZE = 16


cdef inline int size_of_plain_length(int64_t fields_size) noexcept nogil:
    """Bytes of the length of a record with so many bytes of key and value; 0: not plain."""
    if PLAIN_LONG_MIN <= fields_size <= PLAIN_LONG_MAX:
        return 2
    return 1 if fields_size <= PLAIN_SHORT_MAX else 0


cdef inline void write_plain_length(
    uint8_t* target, int length_size, int64_t length
) noexcept nogil:
    cdef uint64_t code = <uint64_t>length << 1
    if length_size == 1:
        target[0] = <uint8_t>code
    else:
        target[0] = <uint8_t>(code | 0x80)
        target[1] = <uint8_t>(code >> 7)


cdef inline uint8_t* write_short(
    uint8_t* target, const uint8_t* data, int64_t size, const uint8_t* data_end
) noexcept nogil:
    """
    As write_bytes, but moves 16 bytes for fewer: both sides must be accessible.

    The caller has reserved SHORT_MOVE_SIZE bytes more. The data is readable up to `data_end`; if
    that is NULL, only the bytes themselves are.
    """
    if size < 0:
        target[0] = 1
        return target + 1
    target = write_unsigned_varlong(target, <uint64_t>size << 1)
    if size <= SHORT_MOVE_SIZE and data_end > data and data_end - data >= SHORT_MOVE_SIZE:
        memcpy(target, data, SHORT_MOVE_SIZE)
    else:
        copy_bytes(target, data, size)
    return target + size


cdef inline const uint8_t* _prefetch_to(
    const uint8_t* prefetched, const uint8_t* data, const uint8_t* data_end
) noexcept nogil:
    """Prefetch the lines of a column up to SOURCE_DISTANCE after `data`, each of them once."""
    cdef const uint8_t* until = data_end
    if until - data > SOURCE_DISTANCE:
        until = data + SOURCE_DISTANCE
    if until - prefetched > 2 * SOURCE_DISTANCE:
        prefetched = data  # cells need not follow each other
    while prefetched < until:
        prefetch(prefetched)
        prefetched += LINE_SIZE
    return prefetched


cdef void _extend_plain_kernel(
    BatchDraft* draft, const BytesCells* keys, const BytesCells* values,
    const int64_t* timestamps, int64_t timestamp_ms,
    int64_t* slot, int64_t stop, int64_t size_limit,
) noexcept nogil:
    """
    Add cells up to the first that is not plain; `add_to_draft` adds that one.

    No size is computed before: the largest plain record fits, and bytes after `draft.size` are
    unused, so that a record beyond the limit does no harm.
    """
    cdef const uint8_t* key_end = end_of_cells(keys)
    cdef const uint8_t* value_end = end_of_cells(values)
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef const uint8_t* prefetched = values.data
    cdef int64_t fields_size, key_size = 0, value_size = 0
    cdef int64_t size = draft.size, row = slot[0]
    cdef int64_t base_timestamp = draft.base_timestamp
    cdef int64_t max_timestamp = draft.max_timestamp
    cdef uint64_t min_timestamp = draft.min_timestamp
    cdef int64_t delta = draft.last_offset_delta + 1
    cdef int length_size
    cdef uint8_t* start
    cdef uint8_t* target
    cdef uint64_t code
    if draft.magic != MAGIC_V2 or draft.count == 0:
        return                         # the first record may set the base timestamp
    while row < stop and delta <= INT32_MAX:
        if (
            load_cell(keys, row, &key, &key_size) != STATUS_OK
            or load_cell(values, row, &value, &value_size) != STATUS_OK
        ):
            break
        if timestamps != NULL:
            timestamp_ms = timestamps[row]
        fields_size = max(key_size, 0) + max(value_size, 0)
        length_size = size_of_plain_length(fields_size)
        if (
            length_size == 0
            or timestamp_ms < NO_TIMESTAMP
            or draft.capacity - size < fields_size + PLAIN_EXTRA_SIZE + 2 + SHORT_MOVE_SIZE
        ):
            break
        prefetched = _prefetch_to(prefetched, value, value_end)
        start = draft.data + size
        target = start + length_size
        target[0] = 0                  # attributes
        code = zigzag64(<int64_t>(<uint64_t>timestamp_ms - <uint64_t>base_timestamp))
        target = write_unsigned_varlong(target + 1, code)
        target = write_unsigned_varlong(target, zigzag32(<int32_t>delta))
        target = write_short(target, key, key_size, key_end)
        target = write_short(target, value, value_size, value_end)
        target[0] = 0                  # no headers
        target += 1
        if target - draft.data > size_limit:
            break
        write_plain_length(start, length_size, target - start - length_size)
        size = target - draft.data
        max_timestamp = max(max_timestamp, timestamp_ms)
        min_timestamp = min(min_timestamp, <uint64_t>timestamp_ms)
        draft.null_key_count += key_size < 0
        delta += 1
        row += 1
    draft.size = size
    draft.max_timestamp = max_timestamp
    draft.min_timestamp = min_timestamp
    draft.count += row - slot[0]
    draft.last_offset_delta = delta - 1
    slot[0] = row


cdef int extend_kernel(
    BatchDraft* draft,
    const BytesCells* keys,
    const BytesCells* values,
    const int64_t* timestamps,
    RecordParts* parts,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil:
    """Add cells until one does not go in; `slot` is the first that did not."""
    cdef const uint8_t* prefetched = values.data
    cdef int status
    while True:
        _extend_plain_kernel(
            draft, keys, values, timestamps, parts.timestamp_ms, slot, stop, size_limit
        )
        if slot[0] >= stop:
            return STATUS_OK
        status = load_cell(keys, slot[0], &parts.key, &parts.key_size)
        if status != STATUS_OK:
            return status
        status = load_cell(values, slot[0], &parts.value, &parts.value_size)
        if status != STATUS_OK:
            return status
        if parts.value_size > 0:
            prefetched = _prefetch_to(prefetched, parts.value, end_of_cells(values))
        status = add_row(draft, parts, timestamps, slot, size_limit)
        if status != STATUS_OK:
            return status
