"""Base of the builders: adds records, lists, columns and decoded rows to a batch of any magic.

The batch grows in one piece of memory that is kept from batch to batch: it doubles when it is
full, and a reset gives most of it back only if it exceeds RETAINED_CAPACITY and the batch just
built used less than a quarter. Records are written after space for a header, so that closing an
uncompressed batch copies nothing.

Views that were returned stay valid and never change: if one is alive when the builder is used
again, the builder continues in other memory. Release views before the next batch, and the memory
is reused.

`add_to_draft` writes a record in the batch's format; subclasses close a batch. Never compresses,
never reads a clock.

Thread-safety: none; one caller at a time. The GIL stays held: encoding a batch takes some ten
microseconds, and no other thread must see a half-written batch.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.batch_memory cimport BatchMemory
from kafkalog._core.builder cimport (
    ADD_BAD_TIMESTAMP,
    ADD_HEADERS,
    ADD_OVER_LIMIT,
    RecordParts,
    add_to_draft,
    load_field,
    point_at_bytes,
)
from kafkalog._core.bytes_column cimport BytesCells, CellColumn, TimestampColumn, no_cells
from kafkalog._core.column_writer cimport extend_kernel
from kafkalog._core.decoded_rows cimport CONSECUTIVE, DecodedRows, extend_rows_kernel, load_row
from kafkalog._core.encoded_headers cimport EncodedHeaders
from kafkalog._core.headers_column cimport (
    HEADERS_FULL,
    HEADERS_OFFSETS,
    HeaderSpace,
    HeadersColumn,
    extend_with_headers_kernel,
)
from kafkalog._core.layout cimport NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from kafkalog._core.record cimport Record, header_tuple
from kafkalog._core.status cimport (
    STATUS_FIELD_LENGTH,
    STATUS_FULL,
    STATUS_HEADER_KEY,
    STATUS_OK,
    STATUS_TOO_LARGE,
    raise_for_status,
)
from kafkalog._core.timestamps cimport timestamp_from

from kafkalog.errors import InvalidRecordError, UnsupportedForMessageFormatError

cdef enum:
    CAPACITY_MIN = RECORD_BATCH_OVERHEAD
    RETAINED_CAPACITY = 4 * 1024 * 1024
    NEXT_DELTA = -1                    # one above that of the last record


cdef class RecordsBuilder:
    """
    Common part of `BatchBuilder`, `RunBuilder` and `MessageSetBuilder`; never used by itself.

    Thread-safety: none; one caller at a time.
    """

    def __cinit__(self, *_arguments, **_options):
        if type(self) is RecordsBuilder:
            raise TypeError("make a BatchBuilder or a MessageSetBuilder")

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied")

    def __repr__(self):
        return f"{type(self).__name__}({self.draft.count} records, {self.draft.size} bytes)"

    @property
    def count(self):
        """Records in the batch."""
        return self.draft.count

    @property
    def size_bytes(self):
        """Size of the batch if it is not compressed, header included."""
        return self.draft.size

    @property
    def capacity(self):
        """Bytes that the batch may grow to before more memory is needed."""
        return self.draft.capacity

    @property
    def max_timestamp(self):
        """Largest timestamp of a record, -1 if there is none."""
        return self.draft.max_timestamp

    @property
    def min_timestamp(self):
        """Smallest timestamp of a record that has one, -1 if there is none."""
        return <int64_t>self.draft.min_timestamp

    @property
    def null_key_count(self):
        """Records in the batch whose key is null."""
        return self.draft.null_key_count

    @property
    def last_offset_delta(self):
        """Offset delta of the last record, -1 if there is none."""
        return self.draft.last_offset_delta
    # ---- memory

    cdef int _open(self, int magic, Py_ssize_t head_size, Py_ssize_t capacity) except -1:
        """Initialize the builder and begin its first batch; called by subclasses' constructors."""
        if capacity > INT32_MAX:
            raise ValueError(f"capacity must be at most {INT32_MAX}, got {capacity}")
        self.memory = BatchMemory(max(capacity, CAPACITY_MIN))
        self.headers = EncodedHeaders()
        self.head_size = head_size
        self.draft.magic = magic
        self._start()
        return 0

    cdef void _start(self) noexcept:
        self.draft.data = self.memory.data
        self.draft.capacity = self.memory.capacity
        self.draft.size = self.head_size
        self.draft.base_timestamp = NO_TIMESTAMP
        self.draft.max_timestamp = NO_TIMESTAMP
        self.draft.min_timestamp = <uint64_t>NO_TIMESTAMP
        self.draft.append_time = NO_TIMESTAMP
        self.draft.base_offset = 0
        self.draft.sealed = 0
        self.draft.last_offset_delta = -1
        self.draft.count = 0
        self.draft.null_key_count = 0
        self.draft.attributes = 0
        self.draft.has_base_timestamp = False

    cdef int _move(self, int64_t capacity) except -1:
        """Continue in other memory: the old one belongs to its views."""
        cdef BatchMemory memory = BatchMemory(capacity)
        memcpy(memory.data, self.draft.data, <size_t>self.draft.size)
        self.memory = memory
        self.draft.data = memory.data
        self.draft.capacity = capacity
        return 0

    cdef int _own(self) except -1:
        """Called before any change: the bytes of a living view must not change."""
        if self.memory.exports > 0:
            self._move(self.draft.capacity)
        return 0

    cdef int _reserve(self) except -1:
        cdef int64_t capacity = min(max(2 * self.draft.capacity, self.draft.needed), INT32_MAX)
        self.memory.grow(capacity)
        self.draft.data = self.memory.data
        self.draft.capacity = capacity
        return 0

    cdef int _clear(self) except -1:
        """Begin another batch, in the same memory if it may be reused."""
        cdef int64_t capacity = self.draft.capacity
        if capacity > RETAINED_CAPACITY and self.draft.size < capacity // 4:
            capacity = max(2 * self.draft.size, INITIAL_CAPACITY)
        if capacity != self.draft.capacity or self.memory.exports > 0:
            self.memory = BatchMemory(capacity)
        if self.compressed is not None and self.compressed.capacity > RETAINED_CAPACITY:
            self.compressed = None
        self._start()
        return 0

    cdef uint8_t* _reserve_compressed(self, Py_ssize_t size) except NULL:
        """Return memory for a compressed batch of `size` bytes, its header included."""
        if size > INT32_MAX:
            raise_for_status(STATUS_TOO_LARGE, 0)
        if (
            self.compressed is None
            or self.compressed.exports > 0
            or self.compressed.capacity < size
        ):
            self.compressed = BatchMemory(max(size, INITIAL_CAPACITY))
        return self.compressed.data

    # ---- adding records

    cdef int _add(self, const RecordParts* parts, int64_t size_limit) except -1:
        """Add a record and return 1, or return 0 if it is for the next batch."""
        cdef int status = add_to_draft(&self.draft, parts, size_limit)
        if status == STATUS_OK:
            return 1
        if status == STATUS_FULL:
            self._reserve()
            status = add_to_draft(&self.draft, parts, size_limit)
            if status == STATUS_OK:
                return 1
        if status == ADD_OVER_LIMIT:
            return 0
        self._refuse(status, parts)

    cdef int _refuse(self, int status, const RecordParts* parts) except -1:
        if status == ADD_BAD_TIMESTAMP:
            raise InvalidRecordError(f"timestamp must be -1 or more, got {parts.timestamp_ms}")
        if status == ADD_HEADERS:
            raise UnsupportedForMessageFormatError(
                f"a record with {parts.header_count} headers: messages of magic "
                f"{self.draft.magic} have none"
            )
        raise_for_status(status, self.draft.size)
        return 0

    cdef int _add_fields(
        self, object key, object value, int64_t timestamp_ms, object headers,
        int64_t offset_delta, int64_t size_limit,
    ) except -1:
        cdef RecordParts parts
        cdef tuple pairs = None
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        if headers is not None and headers != ():
            pairs = header_tuple(headers)
        # From here on no code of the caller runs: the pointers stay valid.
        if not point_at_bytes(key, &parts.key, &parts.key_size):
            key = load_field(key, "key", &parts.key, &parts.key_size)
        if not point_at_bytes(value, &parts.value, &parts.value_size):
            value = load_field(value, "value", &parts.value, &parts.value_size)
        if pairs is not None:
            self.headers.load(pairs, &parts)
        parts.timestamp_ms = timestamp_ms
        parts.offset_delta = self.draft.last_offset_delta + 1
        if offset_delta >= 0:
            if offset_delta < parts.offset_delta or offset_delta > INT32_MAX:
                raise InvalidRecordError(
                    f"offset delta must be in {parts.offset_delta} to {INT32_MAX}, "
                    f"got {offset_delta}"
                )
            parts.offset_delta = offset_delta
        self._own()
        return self._add(&parts, size_limit)

    # Not bound: a plain method of the type is called a few nanoseconds faster.
    @cython.binding(False)
    def append(self, key, value, timestamp_ms=NO_TIMESTAMP, headers=None):
        """
        Add a record at the next offset and return the size of the batch, header included.

        Args:
            key: bytes, bytearray or memoryview, or None.
            value: the same; None is a tombstone.
            timestamp_ms: milliseconds since 1970, -1 for none, or an aware datetime.
            headers: (str, bytes or None) pairs, or None; the formats before v2 have none.

        Raises:
            InvalidRecordError: the timestamp is below -1, a header key cannot be encoded, or the
                format has no headers.
            RecordTooLargeError: the batch would not fit 32-bit lengths; it is unchanged.
        """
        cdef int64_t time = timestamp_from(timestamp_ms, "timestamp_ms")
        self._add_fields(key, value, time, headers, NEXT_DELTA, INT32_MAX)
        return self.draft.size

    @cython.binding(False)
    def try_append(
        self,
        int64_t size_limit,
        key,
        value,
        timestamp_ms=NO_TIMESTAMP,
        headers=None,
    ):
        """
        As `append`, if the batch stays within `size_limit` or is empty; else return 0.
        """
        cdef int64_t time = timestamp_from(timestamp_ms, "timestamp_ms")
        if not self._add_fields(key, value, time, headers, NEXT_DELTA, size_limit):
            return 0
        return self.draft.size

    def append_at(
        self,
        int64_t offset_delta,
        key,
        value,
        timestamp_ms=NO_TIMESTAMP,
        headers=None,
    ):
        """As `append`, at an offset delta above all before: how compacted batches are written."""
        if offset_delta < 0:
            raise InvalidRecordError(f"offset delta must not be negative, got {offset_delta}")
        cdef int64_t time = timestamp_from(timestamp_ms, "timestamp_ms")
        self._add_fields(key, value, time, headers, offset_delta, INT32_MAX)
        return self.draft.size

    cdef int _add_record(
        self, Record record, int64_t default_timestamp_ms, int64_t size_limit
    ) except -1:
        cdef RecordParts parts
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        if record._header_count > 0:
            self.headers.load(record.header_pairs(), &parts)
        if record._key is not None:
            parts.key = <const uint8_t*>PyBytes_AS_STRING(record._key)
            parts.key_size = PyBytes_GET_SIZE(record._key)
        else:
            parts.key = record._key_data
            parts.key_size = record._key_size
        if record._value is not None:
            parts.value = <const uint8_t*>PyBytes_AS_STRING(record._value)
            parts.value_size = PyBytes_GET_SIZE(record._value)
        else:
            parts.value = record._value_data
            parts.value_size = record._value_size
        parts.timestamp_ms = record.timestamp_ms
        if parts.timestamp_ms == NO_TIMESTAMP:
            parts.timestamp_ms = default_timestamp_ms
        parts.offset_delta = self.draft.last_offset_delta + 1
        return self._add(&parts, size_limit)

    def append_record(
        self, Record record not None, int64_t default_timestamp_ms=NO_TIMESTAMP
    ):
        """
        Add a record at the next offset, whatever its own, and return the size of the batch.

        Args:
            record: the record; one without timestamp (-1) gets the default.
            default_timestamp_ms: milliseconds since 1970, -1 for none.
        """
        self._own()
        self._add_record(record, default_timestamp_ms, INT32_MAX)
        return self.draft.size

    cdef Py_ssize_t _extend_records(
        self, list records, Py_ssize_t start, int64_t default_timestamp_ms, int64_t size_limit
    ) except -1:
        cdef Py_ssize_t slot = start
        cdef object item
        while slot < len(records):
            item = records[slot]
            if not isinstance(item, Record):
                raise TypeError(f"records must be of type Record, got {type(item).__name__}")
            if not self._add_record(<Record>item, default_timestamp_ms, size_limit):
                break
            slot += 1
        return slot - start if slot > start else 0

    def extend_records(
        self,
        records not None,
        Py_ssize_t start=0,
        int64_t default_timestamp_ms=NO_TIMESTAMP,
        int64_t size_limit=INT32_MAX,
    ):
        """
        Add records from `start` on while the batch stays within `size_limit`; return how many.

        The first record of a batch always goes in. Records that went in before one was refused
        stay in.

        Args:
            records: list or tuple of Record; anything else is copied to a list first.
        """
        cdef list items = records if type(records) is list else list(records)
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        self._own()
        return self._extend_records(items, start, default_timestamp_ms, size_limit)

    def extend_lists(
        self,
        keys,
        values not None,
        timestamps=NO_TIMESTAMP,
        Py_ssize_t start=0,
        int64_t size_limit=INT32_MAX,
        headers=None,
    ):
        """
        Add records from slot `start` on, as `extend_records` does.

        Args:
            keys: list of bytes-like or None; None instead of a list means no keys.
            values: list of bytes-like or None, as long as keys.
            timestamps: one int for all, or an int64 array with one for each slot.
            headers: list of headers as for `append`, as long as values; None means no headers.
        """
        cdef list key_list = None if keys is None else (
            keys if type(keys) is list else list(keys)
        )
        cdef list value_list = values if type(values) is list else list(values)
        cdef list header_list = None if headers is None else (
            headers if type(headers) is list else list(headers)
        )
        cdef TimestampColumn times = TimestampColumn(timestamps)
        cdef RecordParts parts
        cdef tuple pairs
        cdef Py_ssize_t slot = start
        cdef object key = None
        cdef object value
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        if key_list is not None and len(key_list) != len(value_list):
            raise ValueError(
                f"keys must be as many as values, {len(value_list)}, "
                f"got {len(key_list)}"
            )
        if header_list is not None and len(header_list) != len(value_list):
            raise ValueError(
                f"headers must be as many as values, {len(value_list)}, "
                f"got {len(header_list)}"
            )
        times.check(len(value_list))
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        parts.timestamp_ms = times.constant
        self._own()
        while slot < len(value_list):
            if header_list is not None:
                pairs = () if header_list[slot] is None else header_tuple(header_list[slot])
                self._own()            # code of the caller may have made the pairs
                self.headers.load(pairs, &parts)
            if key_list is not None:
                key = key_list[slot]
            key = load_field(key, "key", &parts.key, &parts.key_size)
            value = value_list[slot]
            value = load_field(value, "value", &parts.value, &parts.value_size)
            if times.each != NULL:
                parts.timestamp_ms = times.each[slot]
            parts.offset_delta = self.draft.last_offset_delta + 1
            if not self._add(&parts, size_limit):
                break
            slot += 1
        return slot - start if slot > start else 0

    def extend_columns(
        self,
        CellColumn keys,
        CellColumn values,
        timestamps=NO_TIMESTAMP,
        Py_ssize_t start=0,
        stop=None,
        int64_t size_limit=INT32_MAX,
        HeadersColumn headers=None,
    ):
        """
        Add records from columns, as `extend_records` does; makes no object.

        Args:
            keys: column of keys, or None for no keys.
            values: column of values, or None for tombstones only; one of the two must be there.
            timestamps: one int for all, or an int64 array with one for each slot.
            start: first slot; `stop`: one past the last, None for the end of the columns.
            headers: column of headers, or None for no headers.
        """
        cdef TimestampColumn times = TimestampColumn(timestamps)
        cdef int64_t count
        cdef int64_t end
        if keys is None and values is None:
            raise ValueError("keys or values must be given")
        if keys is None:
            count = values.count
        elif values is None:
            count = keys.count
        else:
            count = min(keys.count, values.count)
        if headers is not None:
            count = min(count, headers.count)
        end = count if stop is None else stop
        if start < 0 or end < start or end > count:
            raise ValueError(f"slots must be in 0 to {count}, got {start} to {end}")
        times.check(end)
        return self._extend_cells(keys, values, headers, times, start, end, size_limit)

    cdef int64_t _extend_cells(
        self, CellColumn keys, CellColumn values, HeadersColumn headers, TimestampColumn times,
        int64_t start, int64_t end, int64_t size_limit,
    ) except -1:
        """Add the cells of existing slots; return how many were added."""
        cdef BytesCells cells[2]
        cdef HeaderSpace space
        cdef RecordParts parts
        cdef int64_t slot = start
        cdef int status = STATUS_OK
        cells[0] = _cells_of(keys)
        cells[1] = _cells_of(values)
        parts.headers_size = 0
        parts.header_count = 0
        parts.headers = NULL
        parts.timestamp_ms = times.constant
        self._own()
        while True:
            if headers is None:
                status = extend_kernel(
                    &self.draft, &cells[0], &cells[1], times.each, &parts, &slot, end, size_limit
                )
            else:
                space.data = self.headers.data
                space.capacity = self.headers.capacity
                status = extend_with_headers_kernel(
                    &self.draft, &cells[0], &cells[1], &headers.cells, &space, times.each, &parts,
                    &slot, end, size_limit,
                )
            if status == STATUS_FULL:
                self._reserve()
            elif status == HEADERS_FULL:
                self.headers.reserve(2 * space.needed)
            else:
                break
        if status == STATUS_FIELD_LENGTH:
            raise ValueError(f"the offsets of slot {slot} must rise and lie in the data")
        if status == HEADERS_OFFSETS:
            raise ValueError(
                f"the offsets of the headers of slot {slot} must rise and lie in the data"
            )
        if status == STATUS_HEADER_KEY:
            raise InvalidRecordError(f"a header key must be text, got null in slot {slot}")
        if status != STATUS_OK and status != ADD_OVER_LIMIT:
            self._refuse(status, &parts)
        return slot - start

    def extend_decoded(
        self,
        data not None,
        columns not None,
        Py_ssize_t start=0,
        stop=None,
        *,
        base_offset=None,
        int64_t size_limit=INT32_MAX,
    ):
        """
        Add decoded records, headers included, as `extend_records` does; makes no object.

        Args:
            data: the buffer that was decoded; `columns`: its rows, a RecordColumns.
            start: first row; `stop`: one past the last, None for all.
            base_offset: what the rows' offsets count from; None gives them consecutive ones. A row
                more than 2^31-1 above it is for the next batch.
        """
        cdef DecodedRows source = DecodedRows(data, columns)
        cdef RecordParts parts
        cdef int64_t base = CONSECUTIVE if base_offset is None else base_offset
        cdef int64_t slot = start
        cdef int64_t end = source.count if stop is None else stop
        cdef int status = STATUS_OK
        if (
            start < 0 or end < start or end > source.count
            or (base_offset is not None and base < 0)
        ):
            raise ValueError(
                f"rows must be in 0 to {source.count} and base_offset not negative, "
                f"got {start} to {end}, base_offset {base_offset}"
            )
        self._own()
        while True:
            status = extend_rows_kernel(&self.draft, &source.rows, base, &slot, end, size_limit)
            if status != STATUS_FULL:
                break
            self._reserve()
        if status != STATUS_OK and status != ADD_OVER_LIMIT:
            load_row(&source.rows, slot, &parts)
            self._refuse(status, &parts)
        return slot - start


cdef BytesCells _cells_of(CellColumn column):
    return no_cells() if column is None else column.cells
