"""Filter of the rows that were decoded into columns; no byte of a value is read.

Rows that are not selected are closed up over, in place. `BatchRuns` remembers which rows came from
which batch, and is closed up with them.

Thread-safety: one caller at a time for the columns and the runs; a RowFilter is immutable.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from kafkalog._core.columns cimport ColumnPointers, RecordColumns
from kafkalog._core.header cimport BatchHeader
from kafkalog._core.layout cimport NO_TIMESTAMP
from kafkalog._core.mapping cimport check_object
from kafkalog._core.message_set cimport timestamp_type_of
from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_OK, raise_for_status


cdef enum:
    # Filtering holds the GIL below this many rows: they take some microseconds.
    NOGIL_ROWS_MIN = 2048


cdef class BatchRuns:
    """
    Runs of rows of a RecordColumns by their batches, and the fields of these batches.

    Thread-safety: none; one caller at a time.
    """

    def __dealloc__(self):
        free(self.facts)

    def __len__(self):
        return self.count

    cdef RowRunInfo* _next(self) except NULL:
        cdef Py_ssize_t capacity
        cdef RowRunInfo* grown
        if self.count == self._capacity:
            capacity = max(2 * self._capacity, 64)
            grown = <RowRunInfo*>realloc(self.facts, <size_t>capacity * sizeof(RowRunInfo))
            if grown == NULL:
                raise MemoryError(f"no memory for {capacity} batches")
            self.facts = grown
            self._capacity = capacity
        self.count += 1
        return &self.facts[self.count - 1]

    cdef int64_t rows(self) noexcept:
        return self.facts[self.count - 1].end_row if self.count > 0 else 0

    def clear(self):
        """Forget all batches."""
        self.count = 0

    def add_batch(self, BatchHeader header not None, Py_ssize_t row_count):
        """Add the next `row_count` rows as those of a batch."""
        cdef int64_t end_row = self.rows() + max(row_count, 0)
        cdef RowRunInfo* facts = self._next()
        facts.end_row = end_row
        facts.base_offset = header.base_offset
        facts.producer_id = header.producer_id
        facts.leader_epoch = header.partition_leader_epoch
        facts.base_sequence = header.base_sequence
        facts.producer_epoch = header.producer_epoch
        facts.timestamp_type = <int16_t>timestamp_type_of(header.magic, header.attributes)

    def add_message(self, BatchHeader header not None, int timestamp_type):
        """Add the next row as a message of a wrapper, with its timestamp type."""
        self.add_batch(header, 1)
        self.facts[self.count - 1].timestamp_type = <int16_t>timestamp_type

    def add_batches(self, batches not None, Py_ssize_t start, Py_ssize_t stop):
        """Add the next rows as those of the batches `start` to `stop` of a BatchColumns."""
        cdef const int32_t[::1] record_count = batches.record_count
        cdef const int64_t[::1] base_offset = batches.base_offset
        cdef const int64_t[::1] producer_id = batches.producer_id
        cdef const int32_t[::1] leader_epoch = batches.leader_epoch
        cdef const int32_t[::1] base_sequence = batches.base_sequence
        cdef const int16_t[::1] producer_epoch = batches.producer_epoch
        cdef const int16_t[::1] attributes = batches.attributes
        cdef const int8_t[::1] magic = batches.magic
        cdef int64_t end_row = self.rows()
        cdef RowRunInfo* facts
        cdef Py_ssize_t row
        if not 0 <= start <= stop <= len(batches):
            raise IndexError(f"batches {start} to {stop} of {len(batches)}")
        for row in range(start, stop):
            facts = self._next()
            end_row += max(record_count[row], 0)
            facts.end_row = end_row
            facts.base_offset = base_offset[row]
            facts.producer_id = producer_id[row]
            facts.leader_epoch = leader_epoch[row]
            facts.base_sequence = base_sequence[row]
            facts.producer_epoch = producer_epoch[row]
            facts.timestamp_type = <int16_t>timestamp_type_of(magic[row], attributes[row])


cdef struct KeyBytes:
    const uint8_t* data
    int64_t size


# Numbers that rise.
cdef struct Numbers:
    int64_t* data
    int64_t count


cdef struct RowConditions:
    int64_t offset_min
    int64_t offset_end
    int64_t timestamp_min
    int64_t timestamp_max              # inclusive
    bint by_time
    bint by_key
    bint null_key                      # null is one of the keys
    int64_t key_count
    const KeyBytes* keys               # in order of size, then of bytes
    bint by_offset_list
    bint by_time_list
    Numbers offsets
    Numbers timestamps


cdef inline int _compare(const KeyBytes* key, const uint8_t* data, int64_t size) noexcept nogil:
    if key.size != size:
        return -1 if key.size < size else 1
    return memcmp(key.data, data, <size_t>size) if size > 0 else 0


cdef bint _has_key(
    const RowConditions* conditions, const uint8_t* data, int64_t size
) noexcept nogil:
    cdef int64_t lower = 0
    cdef int64_t upper = conditions.key_count
    cdef int64_t middle
    cdef int order
    while lower < upper:
        middle = (lower + upper) // 2
        order = _compare(&conditions.keys[middle], data, size)
        if order == 0:
            return True
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    return False


cdef bint _is_listed(const Numbers* numbers, int64_t number) noexcept nogil:
    cdef int64_t lower = 0
    cdef int64_t upper = numbers.count
    cdef int64_t middle
    while lower < upper:
        middle = (lower + upper) // 2
        if numbers.data[middle] < number:
            lower = middle + 1
        else:
            upper = middle
    return lower < numbers.count and numbers.data[lower] == number


cdef inline void _move_row(const ColumnPointers* columns, int64_t row, int64_t to) noexcept nogil:
    columns.offset[to] = columns.offset[row]
    columns.timestamp[to] = columns.timestamp[row]
    columns.key_position[to] = columns.key_position[row]
    columns.value_position[to] = columns.value_position[row]
    columns.headers_position[to] = columns.headers_position[row]
    columns.key_size[to] = columns.key_size[row]
    columns.value_size[to] = columns.value_size[row]
    columns.headers_size[to] = columns.headers_size[row]
    columns.header_count[to] = columns.header_count[row]


cdef int _matches(
    const RowConditions* conditions,
    const ColumnPointers* columns,
    int64_t row,
    const uint8_t* data,
    int64_t data_size,
) noexcept nogil:
    """Return 1 for a requested row, 0 for any other, -1 for a row outside the data."""
    cdef int64_t timestamp
    cdef int64_t position
    cdef int64_t size
    if columns.offset[row] < conditions.offset_min or columns.offset[row] >= conditions.offset_end:
        return 0
    if conditions.by_time:
        timestamp = columns.timestamp[row]
        if (
            timestamp < conditions.timestamp_min
            or timestamp > conditions.timestamp_max
            or timestamp == NO_TIMESTAMP
        ):
            return 0
        if conditions.by_time_list and not _is_listed(&conditions.timestamps, timestamp):
            return 0
    if conditions.by_offset_list and not _is_listed(&conditions.offsets, columns.offset[row]):
        return 0
    if not conditions.by_key:
        return 1
    size = columns.key_size[row]
    if size < 0:
        return conditions.null_key
    position = columns.key_position[row]
    if position < 0 or position > data_size or size > data_size - position:
        return -1
    return _has_key(conditions, data + position, size)


cdef int _filter_kernel(
    const RowConditions* conditions,
    const ColumnPointers* columns,
    int64_t count,
    const uint8_t* data,
    int64_t data_size,
    RowRunInfo* runs,
    int64_t run_count,
    int64_t* kept,
) noexcept nogil:
    """Close up over rows that are not selected; `kept` is how many stay, or the row at fault."""
    cdef int64_t target = 0
    cdef int64_t run = 0
    cdef int64_t row
    cdef int verdict
    for row in range(count):
        while run < run_count and runs[run].end_row <= row:
            runs[run].end_row = target
            run += 1
        verdict = _matches(conditions, columns, row, data, data_size)
        if verdict < 0:
            kept[0] = row
            return STATUS_FIELD_LENGTH
        if verdict == 0:
            continue
        if target != row:
            _move_row(columns, row, target)
        target += 1
    while run < run_count:
        runs[run].end_row = target
        run += 1
    kept[0] = target
    return STATUS_OK


cdef int _copy_numbers(Numbers* numbers, list values) except -1:
    cdef Py_ssize_t slot
    numbers.data = <int64_t*>calloc(<size_t>max(len(values), 1), sizeof(int64_t))
    if numbers.data == NULL:
        raise MemoryError(f"no memory for {len(values)} numbers")
    for slot in range(len(values)):
        numbers.data[slot] = values[slot]
    numbers.count = len(values)
    return 0


@cython.final
cdef class RowFilter:
    """
    Conditions that all have to hold, in addition to a range of offsets.

    Args:
        timestamps: (first, last) in ms, both inclusive; None for any. Records without a timestamp
            have none.
        listed_timestamps: further, a list of them; None for any.
        keys: the keys, None among them for a null key; None for any.
        offsets: the offsets; None for any.

    Thread-safety: immutable.
    """

    cdef RowConditions _conditions
    cdef KeyBytes* _keys
    cdef list _key_bytes                    # the bytes that the keys point to
    cdef readonly bint has_conditions

    def __cinit__(self, *, timestamps=None, listed_timestamps=None, keys=None, offsets=None):
        self._conditions.timestamp_min = INT64_MIN
        self._conditions.timestamp_max = INT64_MAX
        if timestamps is not None:
            self._conditions.by_time = True
            self._conditions.timestamp_min, self._conditions.timestamp_max = timestamps
        if listed_timestamps is not None:
            self._conditions.by_time = self._conditions.by_time_list = True
            _copy_numbers(&self._conditions.timestamps, sorted(listed_timestamps))
        if keys is not None:
            self._copy_keys(keys)
        if offsets is not None:
            self._conditions.by_offset_list = True
            _copy_numbers(&self._conditions.offsets, sorted(offsets))
        self.has_conditions = (
            self._conditions.by_time or self._conditions.by_key or self._conditions.by_offset_list
        )

    cdef int _copy_keys(self, object keys) except -1:
        cdef Py_ssize_t slot
        cdef bytes key
        keys = list(keys)
        held = {bytes(each) for each in keys if each is not None}
        self._key_bytes = sorted(held, key=lambda each: (len(each), each))
        self._conditions.by_key = True
        self._conditions.null_key = None in keys
        self._keys = <KeyBytes*>calloc(<size_t>max(len(held), 1), sizeof(KeyBytes))
        if self._keys == NULL:
            raise MemoryError(f"no memory for {len(held)} keys")
        for slot in range(len(self._key_bytes)):
            key = self._key_bytes[slot]
            self._keys[slot].data = key
            self._keys[slot].size = len(key)
        self._conditions.keys = self._keys
        self._conditions.key_count = len(self._key_bytes)
        return 0

    def __dealloc__(self):
        free(self._keys)
        free(self._conditions.offsets.data)
        free(self._conditions.timestamps.data)

    def apply(
        self,
        data not None,
        RecordColumns columns not None,
        BatchRuns runs not None,
        int64_t offset_min,
        int64_t offset_end,
    ):
        """
        Leave in the columns, and in the runs, only the selected rows; return how many.

        Args:
            data: what the columns point into.
            columns: rows that were decoded.
            runs: the batches they came from, or none.
            offset_min: first offset.
            offset_end: one past the last.
        """
        cdef RowConditions conditions = self._conditions
        cdef Py_buffer view
        cdef int64_t kept = 0
        cdef int status
        if runs.rows() not in (0, columns.count):
            raise ValueError(f"runs must have {columns.count} rows, got {runs.rows()}")
        conditions.offset_min = offset_min
        conditions.offset_end = offset_end
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if columns.count < NOGIL_ROWS_MIN:
            status = _filter_kernel(
                &conditions, &columns.pointers, columns.count, <const uint8_t*>view.buf, view.len,
                runs.facts, runs.count, &kept,
            )
        else:
            with nogil:
                status = _filter_kernel(
                    &conditions, &columns.pointers, columns.count, <const uint8_t*>view.buf,
                    view.len, runs.facts, runs.count, &kept,
                )
        PyBuffer_Release(&view)
        check_object(data)
        raise_for_status(status, kept)
        columns.count = kept
        return kept
