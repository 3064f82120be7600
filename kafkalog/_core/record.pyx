"""Decoders of the records of v2 batches (DefaultRecord, DefaultRecordBatch) to Python objects.

`decode_records` returns lazy objects that lock the buffer, `decode_tuples` and `decode_lists` plain
bytes; columns.pyx fills positions and sizes. All of them, and `check_records`, have the same
verdict on the same bytes: every record is returned, or CorruptRecordError is raised with the
position of the record at fault.

Verdicts are Kafka's (those of its full parse, not of the leader's partial one), with one
difference: `strict=True`, the default, also refuses offset deltas that do not rise or leave
0..last_offset_delta, which Kafka's readers accept. `strict=False` reads such stored data.
For a record count of 0 the result is empty and no byte after the header is read; only
`check_records` refuses bytes there. Timestamps are read unchanged, below -1 too.

Never decompresses: `payload[start:end]` are uncompressed records. Never checks a CRC.

Thread-safety: functions are pure; a Record caches a field on its first use, under the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New
from cpython.object cimport PyObject, PyObject_GenericGetAttr
from cpython.tuple cimport PyTuple_New
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.header cimport BatchHeader
from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.layout cimport NO_TIMESTAMP
from kafkalog._core.mapping cimport LOSSES, check_read, has_losses, refuse_lost
from kafkalog._core.objects cimport new_field, set_item, store_in_list, store_in_tuple
from kafkalog._core.status cimport (
    STATUS_HEADER_COUNT,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
    STATUS_TRAILING_BYTES,
    STATUS_TRUNCATED,
    raise_for_status,
)
from kafkalog._core.timestamps cimport timestamp_from
from kafkalog._core.varint cimport read_varint, read_varlong

cdef extern from "Python.h":
    object PyBytes_FromObject(object item)
    object PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)
    void PyObject_GC_UnTrack(PyObject* item)


# Interned, as names of attributes in code are.
cdef str KEY = "key"
cdef str VALUE = "value"
cdef str OFFSET = "offset"

cdef enum:
    # Rows between two anchors, and largest number of anchors.
    ANCHOR_ROWS = 512
    ANCHOR_COUNT = 16
    # Larger bytes objects are not in an arena; their header takes 33 bytes.
    ANCHOR_SIZE_MAX = 512 - 33


# ---- slow path of one record ------------------------------------------------------------------

cdef int _check_headers(Cursor* cursor, int32_t count) noexcept nogil:
    cdef const uint8_t* data = NULL
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    cdef int status
    if count < 0 or count > remaining(cursor):
        return STATUS_HEADER_COUNT
    while count > 0:
        count -= 1
        status = read_header(cursor, &data, &key_size, &data, &value_size)
        if status != STATUS_OK:
            return status
    return STATUS_OK


cdef int read_record_slow(
    const uint8_t* position, const uint8_t* limit, RecordFields* fields
) noexcept nogil:
    cdef Cursor body
    cdef int32_t length = 0
    cdef int status
    body.position = position
    body.end = limit
    status = read_varint(&body, &length)
    if status != STATUS_OK:
        return status
    if length < 0:
        return STATUS_RECORD_LENGTH
    if length > remaining(&body):
        return STATUS_TRUNCATED
    body.end = body.position + length
    fields.end = body.end
    if length == 0:
        return STATUS_RECORD_LENGTH
    body.position += 1
    status = read_varlong(&body, &fields.timestamp_delta)
    if status == STATUS_OK:
        status = read_varint(&body, &fields.offset_delta)
    if status == STATUS_OK:
        status = read_field(&body, &fields.key, &fields.key_size)
    if status == STATUS_OK:
        status = read_field(&body, &fields.value, &fields.value_size)
    if status == STATUS_OK:
        status = read_varint(&body, &fields.header_count)
    if status == STATUS_TRUNCATED:
        return STATUS_RECORD_LENGTH
    if status != STATUS_OK:
        return status
    fields.headers = body.position
    status = _check_headers(&body, fields.header_count)
    if status != STATUS_OK:
        return status
    return STATUS_OK if body.position == body.end else STATUS_RECORD_LENGTH


cdef int _check_kernel(RecordsContext* context, Cursor* cursor) noexcept nogil:
    cdef RecordFields fields
    cdef int64_t left = context.record_count
    cdef const uint8_t* next_position
    cdef int status = check_count(context, cursor)
    if status != STATUS_OK:
        return status
    while left > 0:
        left -= 1
        next_position = next_record(context, cursor.position, cursor.end, &fields)
        if next_position == NULL:
            return record_error_status(cursor.position, cursor.end)
        cursor.position = next_position
    return STATUS_OK if cursor.position == cursor.end else STATUS_TRAILING_BYTES


# ---- the record object ------------------------------------------------------------------------

cdef class PayloadRef:
    """
    Keep the buffer of lazy records alive; shared by all records of one call.

    Thread-safety: immutable.
    """

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef object bytes_or_none(object field, str name):
    """Return a field as immutable bytes, or None; runs no Python code."""
    if field is None or type(field) is bytes:
        return field
    if isinstance(field, (bytes, bytearray, memoryview)):
        return PyBytes_FromObject(field)
    raise TypeError(f"{name} must be bytes or None, got {type(field).__name__}")


cdef tuple header_tuple(object headers):
    """Return headers as a tuple of (str, bytes or None) tuples."""
    cdef list pairs = []
    if isinstance(headers, (str, bytes)):
        raise TypeError("headers must be a sequence of (str, bytes or None) pairs")
    for header in headers:
        try:
            key, value = header
        except (TypeError, ValueError) as error:
            raise TypeError("a header must be a pair of str and bytes or None") from error
        if not isinstance(key, str):
            raise TypeError(f"header key must be str, got {type(key).__name__}")
        pairs.append((str(key), bytes_or_none(value, "header value")))
    return tuple(pairs)


cdef inline bytes _make_bytes(const uint8_t* data, int32_t size):
    """As PyBytes_FromStringAndSize, but copying by blocks, as for all fields; see copying.pxd."""
    if size <= 1:
        return PyBytes_FromStringAndSize(<const char*>data, size)
    cdef bytes field = PyBytes_FromStringAndSize(NULL, size)
    copy_bytes(<uint8_t*>PyBytes_AS_STRING(field), data, size)
    return field


# A record is in no cycle: it refers to bytes, str and a PayloadRef.
@cython.no_gc
@cython.freelist(512)
cdef class Record:
    """
    One record: to be appended, or read from a batch.

    `timestamp_ms` is an int of milliseconds since 1970, -1 for none, or a datetime with a time
    zone, rounded down to milliseconds; floats and naive datetimes are refused.

    Two records are equal if offset, timestamp, key, value and headers are. Records that were read
    make key, value and headers on first use and lock the buffer until then; `detach()` releases
    it. Bytes of a header key that are not UTF-8 become surrogates (`surrogateescape`).

    >>> record = Record(key=b"k", value=b"v", headers=[("trace", b"1")], timestamp_ms=7)
    >>> record.key, record.headers, record.offset
    (b'k', (('trace', b'1'),), -1)

    Thread-safety: immutable; fields are made under the GIL.
    """

    def __init__(
        self, *, key=None, value=None, headers=(), timestamp_ms=NO_TIMESTAMP, int64_t offset=-1
    ):
        # A second call would change an object that other code uses.
        if self._headers is not None or self._ref is not None:
            raise TypeError("a Record is immutable")
        self._key = bytes_or_none(key, "key")
        self._value = bytes_or_none(value, "value")
        self._headers = header_tuple(headers)
        self._key_size = -1 if self._key is None else 0
        self._value_size = -1 if self._value is None else 0
        self._header_count = <int32_t>len(self._headers)
        self.timestamp_ms = timestamp_from(timestamp_ms, "timestamp_ms")
        self.offset = offset

    cdef bytes key_bytes(self):
        if self._key is None and self._key_size >= 0:
            self._key = _make_bytes(self._key_data, self._key_size)
            if has_losses(LOSSES):
                self._key = self._check_mapped(self._key, self._key_data)
        return self._key

    cdef bytes value_bytes(self):
        if self._value is None and self._value_size >= 0:
            self._value = _make_bytes(self._value_data, self._value_size)
            if has_losses(LOSSES):
                self._value = self._check_mapped(self._value, self._value_data)
        return self._value

    cdef bytes _check_mapped(self, bytes field, const uint8_t* data):
        """Drop a field whose page was lost, and raise; return any other field."""
        # Other threads must not find the field before it was checked.
        self._key = None if self._key is field else self._key
        self._value = None if self._value is field else self._value
        refuse_lost(data, PyBytes_GET_SIZE(field))
        return field

    cdef tuple header_pairs(self):
        if self._headers is None:
            self._headers = () if self._header_count == 0 else _make_headers(self)
        return self._headers

    def __getattribute__(self, name):
        # Finding the descriptor of a field takes longer than returning the field.
        if name is VALUE:
            return self.value_bytes()
        if name is KEY:
            return self.key_bytes()
        if name is OFFSET:
            return self.offset
        return PyObject_GenericGetAttr(self, name)

    @property
    def key(self):
        """The key as bytes, or None."""
        return self.key_bytes()

    @property
    def value(self):
        """The value as bytes, or None for a tombstone."""
        return self.value_bytes()

    @property
    def headers(self):
        """The headers as a tuple of (str, bytes or None) pairs, in their order."""
        return self.header_pairs()

    def detach(self):
        """Make all fields, release the buffer, and return this record."""
        self.key_bytes()
        self.value_bytes()
        self.header_pairs()
        self._ref = None
        return self

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        cdef Record that = <Record>other
        return (
            self.offset == that.offset
            and self.timestamp_ms == that.timestamp_ms
            and self.key_bytes() == that.key_bytes()
            and self.value_bytes() == that.value_bytes()
            and self.header_pairs() == that.header_pairs()
        )

    def __hash__(self):
        return hash((self.offset, self.timestamp_ms, self.key, self.value, self.headers))

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        return _restore_record, (
            self.offset, self.timestamp_ms, self.timestamp_type, self.key, self.value, self.headers
        )


def _restore_record(offset, timestamp_ms, int timestamp_type, key, value, headers):
    cdef Record record = Record(
        key=key, value=value, headers=headers, timestamp_ms=timestamp_ms, offset=offset
    )
    record.timestamp_type = timestamp_type
    return record


cdef tuple _make_headers(Record record):
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    cdef Cursor cursor
    cdef list pairs = []
    cdef int status
    cursor.position = record._headers_data
    cursor.end = record._headers_end
    for _ in range(record._header_count):
        # Checked when the record was read; a writable buffer may have changed since then.
        status = read_header(&cursor, &key, &key_size, &value, &value_size)
        if status != STATUS_OK:
            check_read(record._headers_data, record._headers_end - record._headers_data)
            raise_for_status(status, 0, None, record.offset)
        pairs.append((
            PyUnicode_DecodeUTF8(<const char*>key, key_size, b"surrogateescape"),
            None if value_size < 0
            else PyBytes_FromStringAndSize(<const char*>value, value_size),
        ))
    check_read(record._headers_data, record._headers_end - record._headers_data)
    return tuple(pairs)


# ---- entry points -----------------------------------------------------------------------------

cdef Record make_record(
    const RecordsContext* context, const RecordFields* fields, PayloadRef ref
):
    cdef Record record = Record.__new__(Record)
    record.offset = offset_of(context, fields)
    record.timestamp_ms = timestamp_of(context, fields)
    record.timestamp_type = context.timestamp_type
    record._ref = ref
    record._key_data = fields.key
    record._key_size = fields.key_size
    record._value_data = fields.value
    record._value_size = fields.value_size
    record._headers_data = fields.headers
    record._headers_end = fields.end
    record._header_count = fields.header_count
    return record


@cython.final
cdef class ArenaAnchors:
    """
    Sixteen small objects that keep arenas of CPython allocated between two batches.

    CPython returns an arena of small objects, a mebibyte, to the system once it is empty. If a
    caller decodes batch after batch, the system would clear that memory for each: a third of the
    time of `decode_lists`. Batches of fewer than 512 records leave no anchor.

    Thread-safety: none; a thread has its own.
    """

    def __cinit__(self):
        self._anchors = [None] * ANCHOR_COUNT

    cdef int add(self, const RecordFields* fields) except -1:
        """Allocate an object next to a value, or key, that was just made."""
        cdef int32_t size = fields.value_size
        if size > ANCHOR_SIZE_MAX:
            size = fields.key_size
        if 0 < size <= ANCHOR_SIZE_MAX:
            self._anchors[self._next] = PyBytes_FromStringAndSize(NULL, size)
            self._next = (self._next + 1) % ANCHOR_COUNT
        return 0


cdef tuple make_pair(const RecordFields* fields):
    cdef tuple pair = PyTuple_New(2)
    store_in_tuple(<PyObject*>pair, 0, new_field(fields.key, fields.key_size))
    store_in_tuple(<PyObject*>pair, 1, new_field(fields.value, fields.value_size))
    # Bytes and None form no cycle: the collector need not find that out for each tuple.
    PyObject_GC_UnTrack(<PyObject*>pair)
    return pair


# Objects that records are decoded to. One loop serves all forms: 349 instructions an object, 844 a
# tuple and 529 a record of lists, where three loops took 421, 855 and 543.
cdef enum Form:
    LAZY_RECORDS
    TUPLES                             # (key, value)
    LISTS                              # one of keys, one of values


cdef object _decode(
    const Py_buffer* view, PayloadRef ref, BatchHeader header, Py_ssize_t start, Py_ssize_t end,
    bint strict, ArenaAnchors anchors, Form form,
):
    """Return all records of a batch; `ref` keeps the buffer of lazy records."""
    cdef RecordFields fields
    cdef list items
    cdef list values = None
    cdef const uint8_t* next_position
    cdef Py_ssize_t row
    cdef RecordsContext context = header_context(header, strict)
    cdef Cursor cursor = open_payload(view, start, end)
    cdef int status = check_count(&context, &cursor)
    if status == STATUS_OK:
        items = PyList_New(context.record_count)
        if form == LISTS:
            values = PyList_New(context.record_count)
        for row in range(context.record_count):
            next_position = next_record(&context, cursor.position, cursor.end, &fields)
            if next_position == NULL:
                status = record_error_status(cursor.position, cursor.end)
                break
            cursor.position = next_position
            if form == LAZY_RECORDS:
                set_item(items, row, make_record(&context, &fields, ref))
                continue
            if form == TUPLES:
                set_item(items, row, make_pair(&fields))
            else:
                store_in_list(<PyObject*>items, row, new_field(fields.key, fields.key_size))
                store_in_list(<PyObject*>values, row, new_field(fields.value, fields.value_size))
            if row % ANCHOR_ROWS == ANCHOR_ROWS - 1 and anchors is not None:
                anchors.add(&fields)
        else:
            status = check_end(&context, &cursor)
            if status == STATUS_OK:
                check_payload(view, start, end)
                return items if values is None else (items, values)
    check_payload(view, start, end)
    raise_for_status(status, cursor.position - <const uint8_t*>view.buf, None, header.base_offset)


cdef object _decode_fields(
    object payload, BatchHeader header, Py_ssize_t start, Py_ssize_t end, bint strict,
    ArenaAnchors anchors, Form form,
):
    """As `_decode`, for forms that keep no buffer."""
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return _decode(&view, None, header, start, end, strict, anchors, form)
    finally:
        PyBuffer_Release(&view)


def decode_records(payload not None, BatchHeader header not None, Py_ssize_t start, Py_ssize_t end,
                   *, bint strict=True):
    """
    Return the records in `payload[start:end]` as a list of lazy Record objects.

    Args:
        payload: any buffer; locked until every record is freed or detached.
        header: the batch's header; offsets, timestamps and the record count come from it.
        start: position of the first record; `end`: one past the last.
        strict: also refuse offset deltas that fall, repeat or leave the batch.

    Raises:
        CorruptRecordError: the bytes are not `header.record_count` whole records.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    return _decode(&ref.view, ref, header, start, end, strict, None, LAZY_RECORDS)


def decode_tuples(payload not None, BatchHeader header not None, Py_ssize_t start, Py_ssize_t end,
                  *, bint strict=True, ArenaAnchors anchors=None):
    """
    Return the records in `payload[start:end]` as a list of (key, value) tuples of bytes or None.

    Arguments and errors are those of `decode_records`; the payload is not locked afterwards.
    `anchors` save time if the caller decodes many batches.
    """
    return _decode_fields(payload, header, start, end, strict, anchors, TUPLES)


def decode_lists(payload not None, BatchHeader header not None, Py_ssize_t start, Py_ssize_t end,
                 *, bint strict=True, ArenaAnchors anchors=None):
    """
    Return the records in `payload[start:end]` as two lists, keys and values, of bytes or None.

    Arguments and errors are those of `decode_records`; the payload is not locked afterwards.
    `anchors` save time if the caller decodes many batches.
    """
    return _decode_fields(payload, header, start, end, strict, anchors, LISTS)


def check_records(payload not None, BatchHeader header not None, Py_ssize_t start, Py_ssize_t end,
                  *, bint strict=True):
    """
    Return the status of `payload[start:end]`: 0, or that of the error of the decoders.

    One difference: a record count of 0 with bytes after the header is refused here.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef int status
    cdef RecordsContext context = header_context(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
    if end - start < NOGIL_SIZE_MIN:
        status = _check_kernel(&context, &cursor)
    else:
        with nogil:
            status = _check_kernel(&context, &cursor)
    check_payload(&ref.view, start, end)
    return status
