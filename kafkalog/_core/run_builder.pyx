"""Uncompressed v2 batches of one append, back to back in one piece of memory.

A BatchBuilder holds one batch, and what it made is copied to where the run is put together. Here
each batch is written where it stays: behind the one before it, with its header in front when the
next one begins. Of each, the facts that an append needs are kept as they come.

Thread-safety: none; one caller at a time. The GIL stays held, as in records_builder.pyx.
"""

cimport cython
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kafkalog._core.bytes_column cimport CellColumn, TimestampColumn
from kafkalog._core.header cimport BatchFields
from kafkalog._core.header_writer cimport write_batch_header
from kafkalog._core.headers_column cimport HeadersColumn
from kafkalog._core.layout cimport (
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
from kafkalog._core.records_builder cimport RecordsBuilder
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._core.append_limits cimport AppendLimits

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
    # Asked for at least where there is too little, so that batches do not ask again and again.
    ROOM = 64 * 1024
    # A run begins with room for the last one and an eighth more: at least, and at most. No batch
    # is so small that it leaves half of the least, which would be given back.
    USUAL_MIN = 128
    USUAL_MAX = 4 * 1024 * 1024


@cython.final
cdef class RunBuilder(RecordsBuilder):
    """
    A run of batches under construction, reused for run after run.

    Records go into the last batch, by the ways that all builders have; `close_batch` begins the
    next. Attributes of the builders tell of the last batch, those here of all that were closed.

    Attributes:
        record_count: records in the closed batches.
        nulls: how many of them have no key.
        earliest, latest: smallest and largest timestamp of a record that has one, -1 for none.
    """

    cdef bytearray _run
    cdef BatchMetadata _facts
    cdef int64_t _begins               # where the last batch does, in the run
    cdef int64_t _usual
    cdef uint64_t _earliest
    cdef readonly int64_t record_count
    cdef readonly int64_t nulls
    cdef readonly int64_t latest

    def __cinit__(self):
        self._open(MAGIC_V2, RECORD_BATCH_OVERHEAD, 0)
        self._usual = USUAL_MIN
        self._begin_run()

    @property
    def earliest(self):
        return <int64_t>self._earliest

    def reset(self):
        """Begin another run."""
        self._begin_run()

    cdef int _begin_run(self) except -1:
        self._run = PyByteArray_FromStringAndSize(NULL, self._usual)
        self._facts = BatchMetadata.__new__(BatchMetadata)
        self._begins = 0
        self._earliest = <uint64_t>NO_TIMESTAMP
        self.record_count = 0
        self.nulls = 0
        self.latest = NO_TIMESTAMP
        self._begin_batch()
        return 0

    cdef int _begin_batch(self) except -1:
        self._start()
        self.draft.data = <uint8_t*>PyByteArray_AS_STRING(self._run) + self._begins
        self.draft.capacity = len(self._run) - self._begins
        return 0

    cdef int _reserve(self) except -1:
        cdef int64_t capacity = max(2 * self.draft.capacity, self.draft.needed)
        self._check_begun()
        capacity = min(max(capacity, ROOM), INT32_MAX)
        PyByteArray_Resize(self._run, self._begins + capacity)
        self.draft.data = <uint8_t*>PyByteArray_AS_STRING(self._run) + self._begins
        self.draft.capacity = capacity
        return 0

    cdef int64_t _close_batch(self, int64_t append_time) except -1:
        """Write the header of the last batch, and begin another; return the size of the batch."""
        cdef BatchFields fields
        cdef int64_t size = self.draft.size
        cdef int64_t last = self.record_count + self.draft.last_offset_delta
        cdef int64_t largest = self.draft.max_timestamp
        fields.attributes = 0
        if append_time != NO_TIMESTAMP:
            fields.attributes = <int16_t>TIMESTAMP_TYPE_MASK
            largest = append_time
        fields.base_offset = self.record_count
        fields.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
        fields.base_timestamp = self.draft.base_timestamp
        fields.max_timestamp = largest
        fields.producer_id = NO_PRODUCER_ID
        fields.producer_epoch = NO_PRODUCER_EPOCH
        fields.base_sequence = NO_SEQUENCE
        fields.record_count = <int32_t>self.draft.count
        fields.last_offset_delta = <int32_t>self.draft.last_offset_delta
        write_batch_header(self.draft.data, size, &fields)
        self._facts.add_row(size, self.record_count, last, largest, last if largest >= 0 else -1)
        self._begins += size
        self._earliest = min(self._earliest, self.draft.min_timestamp)
        self.record_count = last + 1
        self.nulls += self.draft.null_key_count
        self.latest = max(self.latest, self.draft.max_timestamp)
        self._begin_batch()
        return size

    def close_batch(self, int64_t append_time=NO_TIMESTAMP):
        """
        Close the last batch, which has records, and begin another; return its size.

        Args:
            append_time: what all its records carry; -1 where they keep their own times.
        """
        if self.draft.count == 0:
            raise ValueError("a batch without records is not closed")
        return self._close_batch(append_time)

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
            self._close_batch(append_time)
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
                raise ValueError(f"{count} rows of a column of {len(column)}")
        if keys is None and values is None:
            raise ValueError("keys or values must be given")
        times.check(count)
        while slot < count:
            slot += self._extend_cells(keys, values, headers, times, slot, count, size_limit)
            self._close_batch(append_time)

    def finish(self, log_append_time_ms=None):
        """
        Return the batches, a MemoryRecords. Then `reset` before anything else.

        Args:
            log_append_time_ms: what all records carry, None where they keep their own times.
        """
        return self._finish(log_append_time_ms)

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
        # Nothing is in the way of a run that goes on to be written: no room, so no record goes in.
        self._run = None
        self._facts = None
        self._start()
        self.draft.data = NULL
        self.draft.capacity = 0
        return make_run(run, facts, self.record_count, log_append_time_ms)

    cdef bint _has_invalid_record(self, AppendLimits limits, int64_t now_ms) noexcept:
        """Say whether a closed batch, or a record in it, is one that the limits forbid."""
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

    cdef RunBuilder _builder
    cdef int _is_used

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
