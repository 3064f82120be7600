"""Builder of a run: the v2 batches of one append, back to back in one piece of memory.

Uncompressed batches are written in place, after the batch before; the header follows when the
batch is closed. With a copy from reused memory a run took 1.2 times as long (batches of 16 KiB) to
2 times (1 MiB). The records of compressed batches are written into reused memory, and copied into
the run when they are compressed: in place a batch of 1 MiB took 1.2 times as long, with lz4 and
zstd, for its fresh pages. The metadata that an append needs is collected batch by batch.

A `BatchBuilder` instead builds single batches, with every field of a header, and keeps its memory.
One class for both was not made: a run gives its memory away, and views of a batch protect theirs.

Thread-safety: none; one caller at a time. The GIL stays held, as in records_builder.pyx.
"""

cimport cython
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.builder cimport RecordParts, load_field
from kafkalog._core.bytes_column cimport CellColumn, TimestampColumn
from kafkalog._core.header cimport BatchFields
from kafkalog._core.header_writer cimport check_codec, write_batch_header
from kafkalog._core.headers_column cimport HeadersColumn
from kafkalog._core.layout cimport (
    CODEC_NONE,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.memory_records cimport MemoryRecords, make_run
from kafkalog._core.record_groups cimport RecordGroup
from kafkalog._core.records_builder cimport RecordsBuilder
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.status cimport STATUS_TOO_LARGE, raise_for_status

cdef extern from *:
    """
    static inline int kafkalog_acquire_flag(int *flag)
    {
        return !__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE);
    }
    static inline void kafkalog_release_flag(int *flag)
    {
        __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    }
    """
    bint acquire_flag "kafkalog_acquire_flag" (int* flag) noexcept
    void release_flag "kafkalog_release_flag" (int* flag) noexcept

cdef enum:
    # Smallest step in which a run grows, so that batches do not grow it again and again.
    GROWTH_MIN = 64 * 1024
    # A run begins with the size of the last run and an eighth more, within these limits. No batch
    # is so small that half of the minimum is unused, which would be freed.
    USUAL_MIN = 128
    USUAL_MAX = 4 * 1024 * 1024


@cython.final
cdef class RunBuilder(RecordsBuilder):
    """
    A run of batches under construction, reused for run after run.

    Records are added to the last batch, by the methods of all builders; `close_batch` begins the
    next. The builders' attributes describe the last batch, the attributes here all closed ones.

    Attributes:
        record_count: records in the closed batches.
        nulls: how many of them have no key.
        earliest, latest: smallest and largest timestamp of a record that has one, -1 for none.
    """

    def __cinit__(self):
        self._open(MAGIC_V2, RECORD_BATCH_OVERHEAD, 0)
        self._usual = USUAL_MIN
        self._begin_run()

    @property
    def earliest(self):
        return <int64_t>self._earliest

    def reset(self, *, bint compressed=False):
        """
        Begin another run.

        Args:
            compressed: whether batches may get a codec.
        """
        self._is_apart = compressed
        self._begin_run()

    cdef int _begin_run(self) except -1:
        self._run = PyByteArray_FromStringAndSize(NULL, self._usual)
        self._facts = BatchMetadata.__new__(BatchMetadata)
        self._begins = 0
        self._earliest = <uint64_t>NO_TIMESTAMP
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._base_sequence = NO_SEQUENCE
        self.record_count = 0
        self.nulls = 0
        self.latest = NO_TIMESTAMP
        self._start()
        self._begin_batch()
        return 0

    cdef int _begin_batch(self) except -1:
        if self._is_apart:
            self._clear()
            return 0
        self._start()
        self.draft.data = <uint8_t*>PyByteArray_AS_STRING(self._run) + self._begins
        self.draft.capacity = len(self._run) - self._begins
        return 0

    cdef int _reserve(self) except -1:
        cdef int64_t capacity = max(2 * self.draft.capacity, self.draft.needed)
        self._check_begun()
        if self._is_apart:
            return RecordsBuilder._reserve(self)
        capacity = min(max(capacity, GROWTH_MIN), INT32_MAX)
        PyByteArray_Resize(self._run, self._begins + capacity)
        self.draft.data = <uint8_t*>PyByteArray_AS_STRING(self._run) + self._begins
        self.draft.capacity = capacity
        return 0

    cdef int64_t _close_batch(self, int64_t append_time, int codec, int64_t size) except -1:
        """Write the header of the last batch, and begin another; return the size of the batch."""
        cdef BatchFields fields
        cdef int64_t last = self.record_count + self.draft.last_offset_delta
        cdef int64_t largest = self.draft.max_timestamp
        fields.attributes = <int16_t>codec
        if append_time != NO_TIMESTAMP:
            fields.attributes |= <int16_t>TIMESTAMP_TYPE_MASK
            largest = append_time
        fields.base_offset = self.record_count
        fields.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
        fields.base_timestamp = self.draft.base_timestamp
        fields.max_timestamp = largest
        fields.producer_id = self._producer_id
        fields.producer_epoch = self._producer_epoch
        fields.base_sequence = self._base_sequence
        fields.record_count = <int32_t>self.draft.count
        fields.last_offset_delta = <int32_t>self.draft.last_offset_delta
        write_batch_header(<uint8_t*>PyByteArray_AS_STRING(self._run) + self._begins, size, &fields)
        self._facts.add_row(size, self.record_count, last, largest, last if largest >= 0 else -1)
        if self._base_sequence != NO_SEQUENCE:
            self._base_sequence = (self._base_sequence + fields.record_count) & INT32_MAX
        self._begins += size
        self._earliest = min(self._earliest, self.draft.min_timestamp)
        self.record_count = last + 1
        self.nulls += self.draft.null_key_count
        self.latest = max(self.latest, self.draft.max_timestamp)
        self._begin_batch()
        return size

    def payload(self):
        """Return a view of the encoded records of the last batch: the input of a codec."""
        if not self._is_apart:
            raise ValueError("a codec needs reset(compressed=True)")
        return self.memory.view(RECORD_BATCH_OVERHEAD, self.draft.size)

    def close_batch(self, int64_t append_time=NO_TIMESTAMP, int codec=CODEC_NONE, payload=None):
        """
        Close the last batch, which has records, and begin another; return its size.

        Args:
            append_time: time of all its records; -1 if they keep their own times.
            codec: 0 to 4; above 0, `payload` is the result of `payload()`, compressed.
        """
        cdef int64_t size = self.draft.size
        if self.draft.count == 0:
            raise ValueError("a batch without records is not closed")
        check_codec(&self.draft, codec, payload)
        if payload is not None and not self._is_apart:
            raise ValueError("a codec needs reset(compressed=True)")
        if self._is_apart:
            size = self._copy_batch(payload)
        return self._close_batch(append_time, codec, size)

    def drop_batch(self):
        """Remove the records of the last batch; closed batches stay."""
        self._check_begun()
        self._begin_batch()

    cdef int64_t _copy_batch(self, object payload) except -1:
        """Copy a batch into the run, with these records or its own; return its size."""
        cdef const uint8_t[::1] records = self.payload() if payload is None else payload
        cdef int64_t size = RECORD_BATCH_OVERHEAD + records.shape[0]
        if size > INT32_MAX:
            raise_for_status(STATUS_TOO_LARGE, 0)
        if len(self._run) < self._begins + size:
            PyByteArray_Resize(self._run, self._begins + size)
        memcpy(PyByteArray_AS_STRING(self._run) + self._begins + RECORD_BATCH_OVERHEAD,
               &records[0], <size_t>records.shape[0])
        return size

    def pack_records(
        self,
        records not None,
        int64_t default_timestamp_ms,
        int64_t size_limit,
        int64_t append_time=NO_TIMESTAMP,
    ):
        """
        Add records, in batches within `size_limit`, all of them closed.

        Arguments as for `extend_records` and `close_batch`.
        """
        self._pack_records(records if type(records) is list else list(records),
                           default_timestamp_ms, size_limit, append_time)

    cdef int _pack_records(self, list items, int64_t default_timestamp_ms, int64_t size_limit,
                           int64_t append_time) except -1:
        cdef Py_ssize_t slot = 0
        if self.draft.count:
            raise ValueError("there is a batch that was not closed")
        while slot < len(items):
            slot += self._extend_records(items, slot, default_timestamp_ms, size_limit)
            self._close_batch(append_time, CODEC_NONE, self.draft.size)
        return 0

    cdef bint _add_fields_of(self, RecordGroup group, int64_t timestamp_ms,
                             int64_t size_limit) except -1:
        """Add the records of a group, which are checked; return whether each batch has space."""
        cdef RecordParts parts
        cdef list keys = group.keys
        cdef list values = group.values
        cdef Py_ssize_t slot
        cdef object key = None
        cdef object value
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        parts.timestamp_ms = timestamp_ms
        for slot in range(len(values)):
            if keys is not None:
                key = keys[slot]
            key = load_field(key, "key", &parts.key, &parts.key_size)
            value = values[slot]
            value = load_field(value, "value", &parts.value, &parts.value_size)
            parts.offset_delta = self.draft.last_offset_delta + 1
            if not self._add(&parts, size_limit):
                self._close_batch(NO_TIMESTAMP, CODEC_NONE, self.draft.size)
                parts.offset_delta = 0
                self._add(&parts, size_limit)
        self._close_batch(NO_TIMESTAMP, CODEC_NONE, self.draft.size)
        # The first record of a batch always has space.
        return self._facts.largest_size() <= size_limit

    cdef int _add_batch(self, list keys, list values, list timestamps, Py_ssize_t start,
                        int64_t size_limit) except -1:
        """Add records from a slot on, which are checked, until a batch is full, and close it."""
        cdef RecordParts parts
        cdef Py_ssize_t slot
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        for slot in range(start, len(values)):
            key, value = keys[slot], values[slot]
            key = load_field(key, "key", &parts.key, &parts.key_size)
            value = load_field(value, "value", &parts.value, &parts.value_size)
            parts.timestamp_ms = timestamps[slot]
            parts.offset_delta = self.draft.last_offset_delta + 1
            if not self._add(&parts, size_limit):
                break
        self._close_batch(NO_TIMESTAMP, CODEC_NONE, self.draft.size)
        return 0

    def pack_columns(
        self,
        CellColumn keys,
        CellColumn values,
        timestamps,
        Py_ssize_t count,
        int64_t size_limit,
        HeadersColumn headers=None,
        int64_t append_time=NO_TIMESTAMP,
    ):
        """
        Add the first `count` rows of columns, in batches within `size_limit`, all of them closed.

        Arguments as for `extend_columns` and `close_batch`.
        """
        cdef TimestampColumn times = TimestampColumn(timestamps)
        cdef int64_t slot = 0
        if self.draft.count:
            raise ValueError("there is a batch that was not closed")
        for column in (keys, values, headers):
            if column is not None and len(column) < count:
                raise ValueError(f"each column must have {count} rows, got {len(column)}")
        if keys is None and values is None:
            raise ValueError("keys or values must be given")
        times.check(count)
        while slot < count:
            slot += self._extend_cells(keys, values, headers, times, slot, count, size_limit)
            self._close_batch(append_time, CODEC_NONE, self.draft.size)

    def finish(self, log_append_time_ms=None, rewriting=None):
        """
        Return the batches, a MemoryRecords. Then `reset` before anything else.

        Args:
            log_append_time_ms: time of all records, None if they keep their own times.
            rewriting: see MemoryRecords.
        """
        cdef MemoryRecords run = self._finish(log_append_time_ms)
        run.rewriting = rewriting
        return run

    cdef int _check_begun(self) except -1:
        if self._run is None:
            raise ValueError("the run was finished: reset begins another")
        return 0

    cdef MemoryRecords _finish(self, object log_append_time_ms):
        cdef bytearray run = self._run
        cdef BatchMetadata facts = self._facts
        self._check_begun()
        if self.draft.count:
            raise ValueError("there is a batch that was not closed")
        self._usual = min(max(self._begins + self._begins // 8, USUAL_MIN), USUAL_MAX)
        PyByteArray_Resize(run, self._begins)
        # The run belongs to the caller now: without capacity, no record is added.
        self._run = None
        self._facts = None
        self._start()
        self.draft.data = NULL
        self.draft.capacity = 0
        return make_run(run, facts, self.record_count, log_append_time_ms)

    cdef bint _has_invalid_record(self, AppendLimits limits, int64_t now_ms) noexcept:
        """Return whether the limits forbid a closed batch, or a record in it."""
        return (
            self._facts.largest_size() > limits.max_message_bytes
            or limits.has_invalid_record(now_ms, self.nulls, <int64_t>self._earliest, self.latest)
        )


@cython.final
cdef class SpareBuilder:
    """
    A builder that one call at a time uses; a call that finds it in use makes another one.

    Thread-safety: any thread; the flag is exchanged atomically. A builder per thread
    (`threading.local`) was refused: the look-up takes 584 instructions, 4.6 % of an append.
    """

    def __cinit__(self):
        self._builder = RunBuilder()


def pack_uncompressed(SpareBuilder spare not None, list records not None,
                      AppendLimits limits not None, int64_t now_ms, int64_t default_timestamp_ms):
    """
    Return a run of records, or None if a record or batch may be invalid.

    The result equals that of `reset`, `pack_records` and `finish` of a RunBuilder. For None the
    caller takes the slow path, which raises the error.

    Args:
        spare: has the builder, unless another call uses it: of another thread, or of a record
            whose timestamp appends to a log when it is converted.
        records, limits: what to pack, and what the settings allow.
        now_ms: time of the append.
        default_timestamp_ms: timestamp of records that have none.
    """
    cdef MemoryRecords run = None
    cdef bint is_acquired = acquire_flag(&spare._is_used)
    cdef RunBuilder builder = spare._builder if is_acquired else RunBuilder()
    try:
        builder._begin_run()
        builder._pack_records(records, default_timestamp_ms, limits.batch_bytes,
                              now_ms if limits.is_log_append_time else NO_TIMESTAMP)
        if not builder._has_invalid_record(limits, now_ms):
            run = builder._finish(now_ms if limits.is_log_append_time else None)
    finally:
        if is_acquired:
            release_flag(&spare._is_used)
    return run


cdef MemoryRecords pack_group(SpareBuilder spare, RecordGroup group, int64_t timestamp_ms,
                              AppendLimits limits, int64_t now_ms, int64_t size_limit,
                              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
    """
    Return a run with the records of a group, in as many batches as the limit needs.

    None if a record is larger than the limit, or a batch may not be stored as it is; the caller
    then takes the slow path, which raises the error.

    Args:
        spare: has the builder, unless another call uses it.
        group: at least one record.
        timestamp_ms: of all records.
        limits: what the settings allow.
        now_ms: time of the append.
        size_limit: largest size of a batch.
        producer_id, producer_epoch, base_sequence: the producer of the first; -1 for none.

    Raises:
        InvalidRecordError: a record cannot be encoded, or the producer is not complete.
    """
    cdef MemoryRecords run = None
    cdef bint is_acquired
    cdef RunBuilder builder
    if limits.is_log_append_time or (producer_id >= 0) != (base_sequence >= 0):
        return None
    is_acquired = acquire_flag(&spare._is_used)
    builder = spare._builder if is_acquired else RunBuilder()
    try:
        builder._begin_run()
        builder._producer_id = producer_id
        builder._producer_epoch = producer_epoch
        builder._base_sequence = base_sequence
        if (
            builder._add_fields_of(group, timestamp_ms, size_limit)
            and not builder._has_invalid_record(limits, now_ms)
        ):
            run = builder._finish(None)
            run.has_producers = producer_id >= 0
    finally:
        if is_acquired:
            release_flag(&spare._is_used)
    return run


def pack_batch(SpareBuilder spare not None, list keys not None, list values not None,
               list timestamps not None, Py_ssize_t start, int64_t size_limit):
    """
    Return a run of one batch, with as many of the records in lists as it has space for.

    The result equals that of `reset`, `extend_lists`, `close_batch` and `finish` of a RunBuilder.

    Args:
        spare: has the builder, unless another call uses it.
        keys, values: bytes or None each.
        timestamps: of each record.
        start: slot of the first record.
        size_limit: largest size of the batch; a record that is larger has it alone.

    Raises:
        ValueError: the lists have different lengths, or there is no record at the slot.
        InvalidRecordError: a record cannot be encoded.
    """
    cdef bint is_acquired
    cdef RunBuilder builder
    if len(keys) != len(values) or len(timestamps) != len(values):
        raise ValueError(
            f"keys, values and timestamps must be as many, got {len(keys)}, {len(values)} and"
            f" {len(timestamps)}"
        )
    if not 0 <= start < len(values):
        raise ValueError(f"start must be below {len(values)}, got {start}")
    is_acquired = acquire_flag(&spare._is_used)
    builder = spare._builder if is_acquired else RunBuilder()
    try:
        builder._begin_run()
        builder._add_batch(keys, values, timestamps, start, size_limit)
        return builder._finish(None)
    finally:
        if is_acquired:
            release_flag(&spare._is_used)
