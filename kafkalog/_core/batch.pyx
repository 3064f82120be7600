"""Walks over batches of every format: scans, look-ups, resynchronisation (FileRecords in Kafka).

Reads headers and sums up bytes, never decodes a record; a message of the old formats is a batch
(header.pxd). Callers are the segment (position
look-ups) and the loader (recovery scans).

A walk goes from batch to batch and stops at the first that it does not believe, with status and
position; the callers decide what a stop means (torn tail, corruption, another format).

Thread-safety: pure functions; the GIL is released for long scans, during which the caller must keep
other threads from writing to the bytes. Columns belong to one thread at a time.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.byteorder cimport load_u32, load_u64
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.header cimport (
    BatchFields,
    crc_in_run,
    crc_of_batch,
    last_offset_of,
    load_whole_batch,
    open_cursor,
    prefetch_header,
)
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    BATCH_LENGTH_MAX,
    BATCH_LENGTH_POSITION,
    LEGACY_LENGTH_MIN,
    MAGIC_POSITION,
    MAGIC_V2,
    MESSAGE_OVERHEAD_V0,
    NO_TIMESTAMP,
)
from kafkalog._core.mapping cimport check_read
from kafkalog._core.status cimport (
    STATUS_CRC,
    STATUS_FULL,
    STATUS_OFFSET_ORDER,
    STATUS_OK,
    STATUS_TRUNCATED,
)

from typing import NamedTuple

import numpy

from kafkalog._core import header as _header
from kafkalog._core.header import parse_header
from kafkalog._core.assign_offsets import assign_offsets, set_entry_offset, set_max_timestamp

# batch.pxd hands the type on to other kernels, and Cython keeps such names out of the module.
globals()["BatchHeader"] = _header.BatchHeader

__all__ = [
    "BatchColumns",
    "BatchHeader",
    "ScanResult",
    "assign_offsets",
    "check_batch",
    "find_batch",
    "find_offset",
    "find_timestamp",
    "parse_header",
    "scan_batches",
    "set_entry_offset",
    "set_max_timestamp",
]

cdef enum:
    # Below this a walk takes a few microseconds: keeping the GIL is cheaper than winning it back.
    NOGIL_SIZE_MIN = 256 * 1024

    # Headers are prefetched this many batches ahead, on the guess that sizes repeat: a walk over
    # headers is a chain of cache misses, each telling where the next one is.
    PREFETCH_BATCHES = 6

    # find_batch may spend this many bytes of CRC on each byte that it has passed.
    RESYNC_CRC_FACTOR = 16

    # find_batch refuses this many positions at once; a block reaches MAGIC_POSITION bytes further,
    # which the smallest batch has.
    CANDIDATES_BLOCK = 64

cdef enum FindKind:
    FIND_OFFSET = 0
    FIND_TIMESTAMP = 1


cdef struct ScanState:
    int64_t count
    int64_t next_offset
    int64_t max_timestamp
    int64_t offset_of_max_timestamp


cdef struct ColumnPointers:
    int64_t* position
    int64_t* base_offset
    int64_t* last_offset
    int64_t* base_timestamp
    int64_t* max_timestamp
    int64_t* producer_id
    int32_t* size_bytes
    int32_t* record_count
    int32_t* leader_epoch
    int32_t* base_sequence
    uint32_t* crc
    int16_t* attributes
    int16_t* producer_epoch
    int8_t* magic
    Py_ssize_t capacity
    Py_ssize_t count


# ---- kernels ----


cdef inline void store_row(ColumnPointers* columns, const BatchFields* fields,
                           int64_t position) noexcept nogil:
    cdef Py_ssize_t row = columns.count
    columns.position[row] = position
    columns.base_offset[row] = fields.base_offset
    columns.last_offset[row] = last_offset_of(fields)
    columns.base_timestamp[row] = fields.base_timestamp
    columns.max_timestamp[row] = fields.max_timestamp
    columns.producer_id[row] = fields.producer_id
    columns.size_bytes[row] = <int32_t>fields.size_bytes
    columns.record_count[row] = fields.record_count
    columns.leader_epoch[row] = fields.partition_leader_epoch
    columns.base_sequence[row] = fields.base_sequence
    columns.crc[row] = fields.crc
    columns.attributes[row] = fields.attributes
    columns.producer_epoch[row] = fields.producer_epoch
    columns.magic[row] = fields.magic
    columns.count = row + 1


cdef int scan_kernel(Cursor* cursor, const uint8_t* start, bint check_crc, bint check_order,
                     ScanState* state, ColumnPointers* columns) noexcept nogil:
    """Walk whole batches up to the end; the cursor is left at the first one not taken."""
    cdef BatchFields fields
    cdef int status
    while cursor.position < cursor.end:
        if columns is not NULL and columns.count >= columns.capacity:
            return STATUS_FULL
        status = load_whole_batch(cursor, &fields)
        if status != STATUS_OK:
            return status
        prefetch_header(cursor, fields.size_bytes)
        if not check_crc:
            prefetch_header(cursor, fields.size_bytes * PREFETCH_BATCHES)
        if check_order and fields.base_offset < state.next_offset:
            return STATUS_OFFSET_ORDER
        if check_crc and crc_in_run(cursor.position, fields.size_bytes, cursor.end) != fields.crc:
            return STATUS_CRC
        if fields.max_timestamp > state.max_timestamp:
            state.max_timestamp = fields.max_timestamp
            state.offset_of_max_timestamp = last_offset_of(&fields)
        if columns is not NULL:
            store_row(columns, &fields, cursor.position - start)
        state.count += 1
        state.next_offset = last_offset_of(&fields) + 1
        cursor.position += fields.size_bytes
    return STATUS_OK


cdef int find_kernel(Cursor* cursor, FindKind kind, int64_t target) noexcept nogil:
    """Walk headers to the first batch that reaches `target`; STATUS_TRUNCATED if none does."""
    cdef BatchFields fields
    cdef int64_t reached
    cdef int status
    while cursor.position < cursor.end:
        status = load_whole_batch(cursor, &fields)
        if status != STATUS_OK:
            return status
        prefetch_header(cursor, fields.size_bytes)
        prefetch_header(cursor, fields.size_bytes * PREFETCH_BATCHES)
        reached = last_offset_of(&fields) if kind == FIND_OFFSET else fields.max_timestamp
        if reached >= target:
            return STATUS_OK
        cursor.position += fields.size_bytes
    return STATUS_TRUNCATED


cdef inline bint can_begin_batch(const uint8_t* position, uint64_t offset_min,
                                 uint64_t span) noexcept nogil:
    """Return whether offset, length and magic are believable: one branch for all three."""
    return (
        (load_u64(position + BASE_OFFSET_POSITION) - offset_min <= span)
        & (load_u32(position + BATCH_LENGTH_POSITION) - LEGACY_LENGTH_MIN
           <= <uint32_t>(BATCH_LENGTH_MAX - LEGACY_LENGTH_MIN))
        & (position[MAGIC_POSITION] <= MAGIC_V2)
    )


cdef inline bint can_hold_batch(const uint8_t* block, uint8_t lower, uint8_t upper) noexcept nogil:
    """Return whether a batch may begin in CANDIDATES_BLOCK bytes: its length is not zero."""
    cdef const uint8_t* length = block + BATCH_LENGTH_POSITION
    cdef uint8_t found = 0
    cdef int i
    # No early end, so that the compiler makes vectors of it.
    for i in range(CANDIDATES_BLOCK):
        found |= <uint8_t>(
            (block[i] >= lower) & (block[i] <= upper) & (block[i + MAGIC_POSITION] <= MAGIC_V2)
            & ((length[i] | length[i + 1] | length[i + 2] | length[i + 3]) != 0))
    return found


cdef const uint8_t* next_candidate(const uint8_t* position, const uint8_t* end,
                                   uint64_t offset_min, uint64_t offset_max) noexcept nogil:
    """Return the next place before `end` that looks like a batch with an offset of the range."""
    cdef uint64_t span = offset_max - offset_min
    cdef uint8_t lower = <uint8_t>(offset_min >> 56)
    cdef uint8_t upper = <uint8_t>(offset_max >> 56)
    cdef const uint8_t* block_end
    while position < end:
        block_end = end
        if end - position > CANDIDATES_BLOCK:
            block_end = position + CANDIDATES_BLOCK
            if not can_hold_batch(position, lower, upper):
                position = block_end
                continue
        while position < block_end:
            if can_begin_batch(position, offset_min, span):
                return position
            position += 1
    return end


cdef int resync_kernel(Cursor* cursor, int64_t offset_min, int64_t offset_max) noexcept nogil:
    """
    Move the cursor to the next whole batch with a good CRC and offsets in the range.

    Magic bytes 0 and 1 stand everywhere, so candidates are found by offset, length and magic at
    once: the range of offsets refuses nearly every position, and mostly blocks of them. What is
    left is paid from a budget, so that bytes full of believable headers with large lengths cannot
    make this quadratic: it holds enough for one batch of any size that fits, and grows by
    RESYNC_CRC_FACTOR bytes for each byte passed. In all at most (RESYNC_CRC_FACTOR + 1) times the
    bytes searched are summed, whatever the magic. A batch that the budget cannot pay is passed
    over.
    """
    cdef const uint8_t* charged_until = cursor.position
    cdef const uint8_t* candidates_end
    cdef BatchFields fields
    cdef int64_t budget = remaining(cursor)
    if budget < MESSAGE_OVERHEAD_V0 or not 0 <= offset_min <= offset_max:
        return STATUS_TRUNCATED
    candidates_end = cursor.end - MESSAGE_OVERHEAD_V0 + 1
    while True:
        cursor.position = next_candidate(
            cursor.position, candidates_end, <uint64_t>offset_min, <uint64_t>offset_max)
        if cursor.position == candidates_end:
            return STATUS_TRUNCATED
        budget += RESYNC_CRC_FACTOR * (cursor.position - charged_until)
        charged_until = cursor.position
        if (
            load_whole_batch(cursor, &fields) == STATUS_OK
            and last_offset_of(&fields) <= offset_max
            and fields.size_bytes <= budget
        ):
            if crc_of_batch(cursor.position, fields.size_bytes) == fields.crc:
                return STATUS_OK
            budget -= fields.size_bytes
        cursor.position += 1


cdef int check_kernel(const Cursor* cursor, bint check_crc, BatchFields* fields) noexcept nogil:
    cdef int status = load_whole_batch(cursor, fields)
    if status != STATUS_OK:
        return status
    if check_crc and crc_of_batch(cursor.position, fields.size_bytes) != fields.crc:
        return STATUS_CRC
    return STATUS_OK


# ---- results ----


class ScanResult(NamedTuple):
    """
    Headers of scanned batches.

    Attributes:
        count: batches taken by this call.
        position: first byte not taken: the end, or the start of the batch that stopped the scan.
        status: why it stopped there (status codes), 0 at the end.
        next_offset: one past the last offset of the last batch, or the argument if none.
        max_timestamp: the largest max_timestamp, -1 if none is larger than that.
        offset_of_max_timestamp: last offset of the earliest batch that has it, or -1.
    """

    count: int
    position: int
    status: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


# Type of each column, widest first, and how many there are of it.
COLUMN_TYPES = tuple(
    (numpy.dtype(name), count)
    for name, count in (("i8", 6), ("i4", 4), ("u4", 1), ("i2", 2), ("i1", 1))
)


@cython.final
cdef class BatchColumns:
    """
    NumPy columns that scans fill: row i, for i below len(), is the i-th batch taken.

    The arrays are allocated once, views of one block, and have `capacity` rows each; rows from
    len() on are undefined. Scans add rows after the present ones, `clear` removes all rows.
    Thread-safety: one thread at a time.
    """

    cdef readonly object position
    cdef readonly object base_offset
    cdef readonly object last_offset
    cdef readonly object base_timestamp
    cdef readonly object max_timestamp
    cdef readonly object producer_id
    cdef readonly object size_bytes
    cdef readonly object record_count
    cdef readonly object leader_epoch
    cdef readonly object base_sequence
    cdef readonly object crc
    cdef readonly object attributes
    cdef readonly object producer_epoch
    cdef readonly object magic
    cdef uint8_t[::1] _block
    cdef ColumnPointers _pointers

    def __cinit__(self, Py_ssize_t capacity):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        cdef ColumnPointers* pointers = &self._pointers
        cdef Py_ssize_t wide = 8 * capacity
        cdef Py_ssize_t narrow = 4 * capacity
        cdef Py_ssize_t short = 2 * capacity
        block = numpy.empty(6 * wide + 5 * narrow + 2 * short + capacity, numpy.uint8)
        self._block = block
        pointers.capacity = capacity
        pointers.count = 0
        # Widest first, so that each column is aligned to its items.
        cdef uint8_t* first = &self._block[0]
        pointers.position = <int64_t*>first
        pointers.base_offset = <int64_t*>(first + wide)
        pointers.last_offset = <int64_t*>(first + 2 * wide)
        pointers.base_timestamp = <int64_t*>(first + 3 * wide)
        pointers.max_timestamp = <int64_t*>(first + 4 * wide)
        pointers.producer_id = <int64_t*>(first + 5 * wide)
        pointers.size_bytes = <int32_t*>(first + 6 * wide)
        pointers.record_count = <int32_t*>(first + 6 * wide + narrow)
        pointers.leader_epoch = <int32_t*>(first + 6 * wide + 2 * narrow)
        pointers.base_sequence = <int32_t*>(first + 6 * wide + 3 * narrow)
        pointers.crc = <uint32_t*>(first + 6 * wide + 4 * narrow)
        pointers.attributes = <int16_t*>(first + 6 * wide + 5 * narrow)
        pointers.producer_epoch = <int16_t*>(first + 6 * wide + 5 * narrow + short)
        pointers.magic = <int8_t*>(first + 6 * wide + 5 * narrow + 2 * short)
        self._make_arrays(block, capacity)

    cdef _make_arrays(self, object block, Py_ssize_t capacity):
        # Rows of one array for each type: a view of the block for each column costs 5,000
        # instructions more in all (of 6,000), and an iteration over the rows an exception each.
        columns = []
        start = 0
        for dtype, count in COLUMN_TYPES:
            rows = numpy.ndarray((count, capacity), dtype, block, start)
            columns += [rows[row] for row in range(count)]
            start += count * capacity * dtype.itemsize
        (self.position, self.base_offset, self.last_offset, self.base_timestamp,
         self.max_timestamp, self.producer_id, self.size_bytes, self.record_count,
         self.leader_epoch, self.base_sequence, self.crc, self.attributes,
         self.producer_epoch, self.magic) = columns

    def __len__(self):
        return self._pointers.count

    @property
    def capacity(self):
        """Largest number of rows."""
        return self._pointers.capacity

    def clear(self):
        """Forget all rows; the arrays stay."""
        self._pointers.count = 0


# ---- entry points ----


def check_batch(const uint8_t[::1] data not None, Py_ssize_t position=0, *, bint check_crc=True):
    """Return the status of the batch at `position`, which must be there as a whole; 0 is good."""
    cdef Cursor cursor
    cdef BatchFields fields
    cdef int status
    open_cursor(data, position, None, &cursor)
    cdef const uint8_t* first = cursor.position
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = check_kernel(&cursor, check_crc, &fields)
    else:
        with nogil:
            status = check_kernel(&cursor, check_crc, &fields)
    check_read(first, cursor.end - first)
    return status


def scan_batches(const uint8_t[::1] data not None, Py_ssize_t position=0, *, end=None,
                 BatchColumns columns=None, bint check_crc=True, bint check_order=True,
                 int64_t next_offset=0):
    """
    Walk the batches in data[position:end] and return a ScanResult.

    Args:
        data: any contiguous buffer of bytes, such as a mapped segment.
        position: start of a batch.
        end: one past the last byte to read, None for all.
        columns: filled with one row a batch, after the present rows; STATUS_FULL if they are full.
        check_crc: whether to read the records and check their CRC, or only the headers.
        check_order: whether offsets must rise; False for batches without assigned offsets.
        next_offset: no batch may begin below it; then none below the end of the one before.
    """
    cdef Cursor cursor
    cdef ScanState state
    cdef ColumnPointers* pointers = NULL
    cdef const uint8_t* start = open_cursor(data, position, end, &cursor)
    cdef int status
    state.count = 0
    state.next_offset = next_offset
    state.max_timestamp = NO_TIMESTAMP
    state.offset_of_max_timestamp = -1
    if columns is not None:
        pointers = &columns._pointers
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = scan_kernel(&cursor, start, check_crc, check_order, &state, pointers)
    else:
        with nogil:
            status = scan_kernel(&cursor, start, check_crc, check_order, &state, pointers)
    # The cause of a stop may be anywhere after it; a walk without a stop read no further.
    if status == STATUS_OK or status == STATUS_FULL:
        check_read(start + position, cursor.position - start - position)
    else:
        check_read(start + position, cursor.end - start - position)
    return ScanResult(state.count, <Py_ssize_t>(cursor.position - start), status,
                      state.next_offset, state.max_timestamp, state.offset_of_max_timestamp)


cdef tuple _find(const uint8_t[::1] data, Py_ssize_t position, object end, FindKind kind,
                 int64_t target):
    cdef Cursor cursor
    cdef int status
    cdef const uint8_t* start = open_cursor(data, position, end, &cursor)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = find_kernel(&cursor, kind, target)
    else:
        with nogil:
            status = find_kernel(&cursor, kind, target)
    check_read(start + position, cursor.end - start - position)
    return (<Py_ssize_t>(cursor.position - start), status)


def find_offset(const uint8_t[::1] data not None, int64_t offset, Py_ssize_t position=0, *,
                end=None):
    """
    Return (position, 0) of the first batch whose last offset is at least `offset`.

    Reads headers only, from `position`, where a batch begins. Otherwise returns the position
    reached and why: STATUS_TRUNCATED there means that the bytes, or the whole batches, ran out.
    """
    return _find(data, position, end, FIND_OFFSET, offset)


def find_timestamp(const uint8_t[::1] data not None, int64_t timestamp_ms, Py_ssize_t position=0,
                   *, end=None):
    """
    Return (position, 0) of the first batch whose max_timestamp is at least `timestamp_ms`.

    Otherwise as `find_offset`.
    """
    return _find(data, position, end, FIND_TIMESTAMP, timestamp_ms)


def find_batch(const uint8_t[::1] data not None, Py_ssize_t position, *, end=None,
               int64_t offset_min=0, int64_t offset_max=INT64_MAX):
    """
    Return the first position, from `position` on, where a good batch begins; -1 if none does.

    Good is a whole batch with a matching CRC, all of whose known offsets lie in
    offset_min..offset_max (both inclusive). For the search of the next batch after damage: the
    narrower the range, the faster and the more certain. Hostile bytes cannot make it slower than a
    small multiple of one CRC pass.
    """
    cdef Cursor cursor
    cdef int status
    cdef const uint8_t* start = open_cursor(data, position, end, &cursor)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = resync_kernel(&cursor, offset_min, offset_max)
    else:
        with nogil:
            status = resync_kernel(&cursor, offset_min, offset_max)
    check_read(start + position, cursor.end - start - position)
    return <Py_ssize_t>(cursor.position - start) if status == STATUS_OK else -1
