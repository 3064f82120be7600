"""Headers of batches of every format as Python objects (DefaultRecordBatch in Kafka).

The leaves that load and check a header are in header.pxd; kernels use those, never these objects.

Thread-safety: headers are immutable.
"""

cimport cython
from cpython.object cimport Py_EQ, Py_NE
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.layout cimport (
    CODEC_MASK,
    CODEC_NONE,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V2,
    NO_SEQUENCE,
    NO_TIMESTAMP_TYPE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.mapping cimport check_read
from kafkalog._core.status cimport STATUS_OK, raise_for_status


@cython.final
cdef class BatchHeader:
    """
    The header of one batch, and where it was found.

    A message of the old formats is a batch too: base offset and last offset are its own, the record
    count is 1, or -1 for a wrapper, whose records only decoding can count. If `is_wrapper` is true,
    base_offset is not a lower bound: it is the offset of the last record inside.

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
        """0 for create time, 1 for log append time, -1 for magic 0, which has no timestamps."""
        if self.magic == MAGIC_V0:
            return NO_TIMESTAMP_TYPE
        return 1 if self.attributes & TIMESTAMP_TYPE_MASK else 0

    @property
    def is_wrapper(self):
        """True if this is a message of an old format with compressed messages inside."""
        return self.magic < MAGIC_V2 and self.attributes & CODEC_MASK != CODEC_NONE

    @property
    def is_transactional(self):
        """True if the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self):
        """True if the batch has markers instead of records of a user."""
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
            f"magic={self.magic}, "
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


cdef const uint8_t* open_cursor(const uint8_t[::1] data, Py_ssize_t position, object end,
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
    """
    cdef Cursor cursor
    cdef BatchFields fields
    open_cursor(data, position, None, &cursor)
    cdef const uint8_t* first = cursor.position
    cdef int status = load_batch_fields(&cursor, &fields)
    check_read(first, min(cursor.end - first, <Py_ssize_t>RECORD_BATCH_OVERHEAD))
    if status != STATUS_OK:
        return raise_for_status(status, position)
    return make_header(&fields, position)
