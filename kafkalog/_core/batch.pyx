"""Record batches seen from outside: headers, walks, CRC, stamping (DefaultRecordBatch, FileRecords).

Reads and rewrites batch headers, never records. Callers are the segment (position look-ups), the
loader (recovery scans), the validator (stamping) and the record decoders (`BatchHeader`).

A walk goes from batch to batch and stops at the first it does not believe, naming status and
position; what a stop means (torn tail, corruption, another format) is for the callers to say.

Thread-safety: pure functions; the GIL is released for long scans, and the caller keeps others from
writing to the bytes meanwhile. Columns belong to one thread at a time.
"""

cimport cython
from cpython.object cimport Py_EQ, Py_NE
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr

from kafkalog._core.byteorder cimport load_i64, store_i16, store_i32, store_i64, store_u32
from kafkalog._core.crc32c cimport crc32c
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    LEADER_EPOCH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.status cimport (
    STATUS_CRC,
    STATUS_FULL,
    STATUS_OFFSET_ORDER,
    STATUS_OK,
    STATUS_TRUNCATED,
    raise_for_status,
)

from typing import NamedTuple

import numpy

from kafkalog.errors import OffsetOverflowError

cdef enum:
    # Below this a walk takes a few microseconds: keeping the GIL is cheaper than winning it back.
    NOGIL_SIZE_MIN = 256 * 1024

    # Headers are prefetched this many batches ahead, on the guess that sizes repeat: a walk over
    # headers is a chain of cache misses, each telling where the next one is.
    PREFETCH_BATCHES = 6

    # find_batch may spend this many bytes of CRC on each byte that it has passed.
    RESYNC_CRC_FACTOR = 16

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
    Py_ssize_t capacity
    Py_ssize_t count


# ---- kernels ----


cdef inline uint32_t crc_of_batch(const uint8_t* batch, int64_t size_bytes) noexcept nogil:
    return crc32c(0, batch + ATTRIBUTES_POSITION, <size_t>(size_bytes - ATTRIBUTES_POSITION))


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
        if check_crc and crc_of_batch(cursor.position, fields.size_bytes) != fields.crc:
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


cdef int resync_kernel(Cursor* cursor, int64_t offset_min, int64_t offset_max) noexcept nogil:
    """
    Move the cursor to the next whole batch with a good CRC and offsets in the range.

    Candidates are the magic bytes; the offset range refuses nearly all of them for the price of one
    load. What is left is paid from a budget, so that bytes full of believable headers with large
    lengths cannot make this quadratic: it holds enough for one batch of any size that fits, and
    grows by RESYNC_CRC_FACTOR bytes for each byte passed. In all at most (RESYNC_CRC_FACTOR + 1)
    times the bytes searched are summed. A batch that the budget cannot pay is passed over.
    """
    cdef const uint8_t* magic
    cdef const uint8_t* paid_until = cursor.position
    cdef BatchFields fields
    cdef int64_t budget = remaining(cursor)
    cdef int64_t base_offset
    while remaining(cursor) >= RECORD_BATCH_OVERHEAD:
        magic = <const uint8_t*>memchr(cursor.position + MAGIC_POSITION, MAGIC_V2,
                                       <size_t>(remaining(cursor) - MAGIC_POSITION))
        if magic is NULL:
            break
        cursor.position = magic - MAGIC_POSITION
        base_offset = load_i64(cursor.position + BASE_OFFSET_POSITION)
        if offset_min <= base_offset <= offset_max:
            budget += RESYNC_CRC_FACTOR * (cursor.position - paid_until)
            paid_until = cursor.position
            if (
                load_whole_batch(cursor, &fields) == STATUS_OK
                and last_offset_of(&fields) <= offset_max
                and fields.size_bytes <= budget
            ):
                if crc_of_batch(cursor.position, fields.size_bytes) == fields.crc:
                    return STATUS_OK
                budget -= fields.size_bytes
        cursor.position += 1
    return STATUS_TRUNCATED


cdef int check_kernel(const Cursor* cursor, bint check_crc, BatchFields* fields) noexcept nogil:
    cdef int status = load_whole_batch(cursor, fields)
    if status != STATUS_OK:
        return status
    if check_crc and crc_of_batch(cursor.position, fields.size_bytes) != fields.crc:
        return STATUS_CRC
    return STATUS_OK


cdef int check_run_kernel(Cursor* cursor, int64_t* offset_count) noexcept nogil:
    """Walk headers to the end; sum up how many offsets the batches take, -1 if over 63 bits."""
    cdef BatchFields fields
    cdef int64_t total = 0
    cdef int status
    while cursor.position < cursor.end:
        status = load_whole_batch(cursor, &fields)
        if status != STATUS_OK:
            return status
        # At most 2^31 each, from at least 61 bytes each: no address space reaches 2^63.
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
        store_i32(batch + LEADER_EPOCH_POSITION, partition_leader_epoch)
        base_offset += <int64_t>fields.last_offset_delta + 1
        batch += fields.size_bytes
    return STATUS_OK


cdef void restamp_kernel(uint8_t* batch, int64_t size_bytes, int16_t attributes,
                         int64_t max_timestamp) noexcept nogil:
    store_i16(batch + ATTRIBUTES_POSITION, attributes)
    store_i64(batch + MAX_TIMESTAMP_POSITION, max_timestamp)
    store_u32(batch + CRC_POSITION, crc_of_batch(batch, size_bytes))


# ---- headers as objects ----


@cython.final
cdef class BatchHeader:
    """
    The header of one v2 batch, and where it was found.

    Made by `parse_header`; the arguments of the constructor are the fields in their order on disk.
    Immutable, hashable, picklable. Thread-safety: immutable.
    """

    def __init__(self, Py_ssize_t position, int64_t base_offset, int32_t batch_length,
                 int32_t partition_leader_epoch, int8_t magic, uint32_t crc, int16_t attributes,
                 int32_t last_offset_delta, int64_t base_timestamp, int64_t max_timestamp,
                 int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                 int32_t record_count):
        self.position = position
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size_bytes(self):
        """Size of the whole batch, header included."""
        return <int64_t>self.batch_length + LOG_OVERHEAD

    @property
    def end_position(self):
        """Position one past the batch."""
        return self.position + <int64_t>self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self):
        """Offset of the last record of the original batch, kept by compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        """Offset one past the last."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self):
        """Sequence of the last record, wrapping from 2^31-1 to 0; -1 without sequences."""
        cdef int64_t sequence = self.base_sequence
        if sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        sequence += self.last_offset_delta
        return sequence if sequence <= INT32_MAX else sequence - INT32_MAX - 1

    @property
    def codec(self):
        """Number of the compression codec; 5 to 7 name none."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self):
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & TIMESTAMP_TYPE_MASK else 0

    @property
    def is_transactional(self):
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self):
        """Whether the batch holds markers instead of a user's records."""
        return self.attributes & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self):
        """Time from which tombstones of the batch may go, or None; replaces base_timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    cdef tuple _fields(self):
        return (self.position, self.base_offset, self.batch_length, self.partition_leader_epoch,
                self.magic, self.crc, self.attributes, self.last_offset_delta,
                self.base_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch,
                self.base_sequence, self.record_count)

    def __reduce__(self):
        return (BatchHeader, self._fields())

    def __richcmp__(self, other, int operation):
        if not isinstance(other, BatchHeader) or operation not in (Py_EQ, Py_NE):
            return NotImplemented
        return (self._fields() == (<BatchHeader>other)._fields()) == (operation == Py_EQ)

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"BatchHeader(position={self.position}, size_bytes={self.size_bytes}, "
            f"offsets={self.base_offset}..{self.last_offset}, records={self.record_count}, "
            f"attributes={self.attributes:#04x}, max_timestamp={self.max_timestamp}, "
            f"producer_id={self.producer_id})"
        )


cdef BatchHeader make_header(const BatchFields* fields, Py_ssize_t position):
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    header.position = position
    header.base_offset = fields.base_offset
    header.batch_length = fields.batch_length
    header.partition_leader_epoch = fields.partition_leader_epoch
    header.magic = fields.magic
    header.crc = fields.crc
    header.attributes = fields.attributes
    header.last_offset_delta = fields.last_offset_delta
    header.base_timestamp = fields.base_timestamp
    header.max_timestamp = fields.max_timestamp
    header.producer_id = fields.producer_id
    header.producer_epoch = fields.producer_epoch
    header.base_sequence = fields.base_sequence
    header.record_count = fields.record_count
    return header


class ScanResult(NamedTuple):
    """
    What a scan found.

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


@cython.final
cdef class BatchColumns:
    """
    NumPy columns that scans fill: row i, for i below len(), is the i-th batch taken.

    The arrays are allocated once, views of one block, and have `capacity` rows each; what lies
    past len() is undefined. Scans add behind the rows there are, `clear` forgets all rows.
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
    cdef uint8_t[::1] _block
    cdef ColumnPointers _pointers

    def __cinit__(self, Py_ssize_t capacity):
        if capacity < 1:
            raise ValueError(f"columns need a capacity of at least 1, not {capacity}")
        cdef ColumnPointers* pointers = &self._pointers
        cdef Py_ssize_t wide = 8 * capacity
        cdef Py_ssize_t narrow = 4 * capacity
        cdef Py_ssize_t short = 2 * capacity
        block = numpy.empty(6 * wide + 5 * narrow + 2 * short, numpy.uint8)
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
        self._make_arrays(block, capacity)

    cdef _make_arrays(self, object block, Py_ssize_t capacity):
        columns = []
        end = 0
        for dtype, count in (("i8", 6), ("i4", 4), ("u4", 1), ("i2", 2)):
            for _ in range(count):
                start = end
                end += capacity * numpy.dtype(dtype).itemsize
                columns.append(block[start:end].view(dtype))
        (self.position, self.base_offset, self.last_offset, self.base_timestamp,
         self.max_timestamp, self.producer_id, self.size_bytes, self.record_count,
         self.leader_epoch, self.base_sequence, self.crc, self.attributes,
         self.producer_epoch) = columns

    def __len__(self):
        return self._pointers.count

    @property
    def capacity(self):
        """How many rows the columns have room for."""
        return self._pointers.capacity

    def clear(self):
        """Forget all rows; the arrays stay."""
        self._pointers.count = 0


# ---- doors ----


cdef const uint8_t* _open(const uint8_t[::1] data, Py_ssize_t position, object end,
                          Cursor* cursor) except NULL:
    """Fill the cursor with data[position:end] and return where the data begins."""
    cdef Py_ssize_t size = data.shape[0]
    cdef Py_ssize_t last = size if end is None else <Py_ssize_t>end
    cdef const uint8_t* start = <const uint8_t*><const char*>b""
    if not 0 <= position <= last <= size:
        raise IndexError(f"bytes {position} to {last} are not inside the {size} bytes given")
    if size > 0:
        start = &data[0]
    cursor.position = start + position
    cursor.end = start + last
    return start


def parse_header(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """
    Return the header of the batch at `position`; 61 bytes suffice, the records may be missing.

    Raises:
        CorruptRecordError: too few bytes, or fields that no batch can have.
        InvalidRecordError: the batch has magic 0 or 1.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    _open(data, position, None, &cursor)
    cdef int status = load_batch_fields(&cursor, &fields)
    if status != STATUS_OK:
        return raise_for_status(status, position)
    return make_header(&fields, position)


def check_batch(const uint8_t[::1] data not None, Py_ssize_t position=0, *, bint check_crc=True):
    """Return the status of the batch at `position`, which must be there as a whole; 0 is good."""
    cdef Cursor cursor
    cdef BatchFields fields
    cdef int status
    _open(data, position, None, &cursor)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        return check_kernel(&cursor, check_crc, &fields)
    with nogil:
        status = check_kernel(&cursor, check_crc, &fields)
    return status


def scan_batches(const uint8_t[::1] data not None, Py_ssize_t position=0, *, end=None,
                 BatchColumns columns=None, bint check_crc=True, bint check_order=True,
                 int64_t next_offset=0):
    """
    Walk the batches in data[position:end] and return a ScanResult.

    Args:
        data: any contiguous buffer of bytes, such as a mapped segment.
        position: where a batch begins.
        end: one past the last byte to look at, None for all.
        columns: filled with one row a batch, behind the rows it has; STATUS_FULL when out of room.
        check_crc: whether to read the records and sum them up, or only the headers.
        check_order: whether batches must rise; False for batches whose offsets are still to come.
        next_offset: no batch may begin below it; then none below the end of the one before.
    """
    cdef Cursor cursor
    cdef ScanState state
    cdef ColumnPointers* pointers = NULL
    cdef const uint8_t* start = _open(data, position, end, &cursor)
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
    return ScanResult(state.count, <Py_ssize_t>(cursor.position - start), status,
                      state.next_offset, state.max_timestamp, state.offset_of_max_timestamp)


cdef tuple _find(const uint8_t[::1] data, Py_ssize_t position, object end, FindKind kind,
                 int64_t target):
    cdef Cursor cursor
    cdef int status
    cdef const uint8_t* start = _open(data, position, end, &cursor)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = find_kernel(&cursor, kind, target)
    else:
        with nogil:
            status = find_kernel(&cursor, kind, target)
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

    Good is a whole v2 batch with a matching CRC, all of whose offsets lie in offset_min..offset_max
    (both inclusive). For finding the way again behind damage: the narrower the range, the faster
    and the surer. Hostile bytes cannot make it slower than a small multiple of one CRC pass.
    """
    cdef Cursor cursor
    cdef int status
    cdef const uint8_t* start = _open(data, position, end, &cursor)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = resync_kernel(&cursor, offset_min, offset_max)
    else:
        with nogil:
            status = resync_kernel(&cursor, offset_min, offset_max)
    return <Py_ssize_t>(cursor.position - start) if status == STATUS_OK else -1


def assign_offsets(uint8_t[::1] data not None, *, int64_t base_offset,
                   int32_t partition_leader_epoch=-1, Py_ssize_t position=0, end=None):
    """
    Stamp consecutive offsets and the leader epoch on the batches of data[position:end], in place.

    Each batch takes last_offset_delta + 1 offsets. The CRC does not cover what is stamped. Headers
    are checked before the first byte is written; the CRC is not.

    Returns:
        The next offset, one past the last one given.

    Raises:
        CorruptRecordError, InvalidRecordError: a batch is cut, damaged or old; nothing is stamped.
        OffsetOverflowError: the offsets would not fit 63 bits; nothing is stamped.
    """
    cdef Cursor cursor
    cdef int64_t offset_count = 0
    cdef const uint8_t* start = _open(data, position, end, &cursor)
    if base_offset < 0:
        raise ValueError(f"base_offset must not be negative: {base_offset}")
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


def set_max_timestamp(uint8_t[::1] data not None, Py_ssize_t position, *, int timestamp_type,
                      int64_t max_timestamp):
    """
    Set timestamp type and max_timestamp of the batch at `position` in place, and its CRC anew.

    Does nothing if both are so already. Otherwise unused attribute bits are cleared, as Kafka does.

    Args:
        timestamp_type: 0 for create time, 1 for log append time.
        max_timestamp: in milliseconds since 1970; with type 1 it is the time of every record.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    cdef int16_t attributes
    if timestamp_type not in (0, 1):
        raise ValueError(f"timestamp_type must be 0 or 1, not {timestamp_type}")
    _open(data, position, None, &cursor)
    cdef int status = check_kernel(&cursor, False, &fields)
    if status != STATUS_OK:
        return raise_for_status(status, position)
    attributes = <int16_t>(
        (fields.attributes
         & (CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK))
        | (TIMESTAMP_TYPE_MASK if timestamp_type == 1 else 0))
    if (
        (fields.attributes & TIMESTAMP_TYPE_MASK) == (attributes & TIMESTAMP_TYPE_MASK)
        and fields.max_timestamp == max_timestamp
    ):
        return
    restamp_kernel(&data[position], fields.size_bytes, attributes, max_timestamp)
