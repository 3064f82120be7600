"""Iterators over records: of a batch, made one at a time, or of a closable list.

`decode_records` and `decode_tuples` make a whole list first; in `RecordIterator` the memory of each
record is used again before the next is made. That is faster for large batches, and no object is
made for records that are not reached. In exchange, records before damage are yielded before the
error.

Batches of the old formats are iterated as those of v2 are: an outer entry's messages.

`ClosableRecords` goes over a list that holds more than its reader may be given once something has
happened elsewhere: between two records no Python runs that could look.

Thread-safety: an iterator belongs to one thread at a time.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchHeader
from kafkalog._core.layout cimport MAGIC_V2
from kafkalog._core.mapping cimport check_read
from kafkalog._core.message_set cimport (
    MessageSet,
    check_end_of_messages,
    messages_of,
    next_message,
    survey_messages,
)
from kafkalog._core.record cimport (
    check_count,
    check_end,
    check_payload,
    header_context,
    make_pair,
    make_record,
    next_record,
    open_payload,
    PayloadRef,
    RecordFields,
    RecordsContext,
    record_error_status,
)
from kafkalog._core.status cimport STATUS_OK, raise_for_status


@cython.final
cdef class RecordIterator:
    """
    Iterator over the records in `payload[start:end]`, as lazy Record objects or as tuples.

    Args:
        payload: any buffer; held until the iterator, and every record that is not detached, is
            gone.
        header: the batch's header.
        start: position of the first record; `end`: one past the last.
        pairs: yield (key, value) tuples instead of Record objects.
        strict: as in `decode_records`.

    Raises:
        CorruptRecordError: at the record that is damaged; at once if the count cannot be true.

    Thread-safety: one thread at a time.
    """

    cdef PayloadRef _ref
    cdef BatchHeader _header
    cdef RecordsContext _context
    cdef MessageSet _messages          # instead of the context, below magic 2
    cdef Cursor _cursor
    cdef int64_t _left
    cdef bint _pairs
    cdef bint _is_old

    def __cinit__(
        self,
        payload not None,
        BatchHeader header not None,
        Py_ssize_t start,
        Py_ssize_t end,
        *,
        bint pairs=False,
        bint strict=True,
    ):
        self._ref = PayloadRef.__new__(PayloadRef, payload)
        self._header = header
        cdef int status
        self._cursor = open_payload(&self._ref.view, start, end)
        self._pairs = pairs
        self._is_old = header.magic < MAGIC_V2
        if self._is_old:
            self._messages = messages_of(header, strict)
            status = survey_messages(&self._messages, &self._cursor)
            self._left = self._messages.count
        else:
            self._context = header_context(header, strict)
            status = check_count(&self._context, &self._cursor)
            self._left = self._context.record_count
        if status != STATUS_OK:
            self._refuse(status)

    cdef int _refuse(self, int status) except -1:
        """Raise, and be exhausted from now on."""
        self._left = 0
        self._context.record_count = 0
        cdef const uint8_t* position = self._cursor.position
        self._cursor.end = position
        check_payload(&self._ref.view, 0, self._ref.view.len)
        raise_for_status(
            status,
            position - <const uint8_t*>self._ref.view.buf,
            None,
            self._header.base_offset,
        )
        return 0

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self._left

    def __reduce__(self):
        raise TypeError("a RecordIterator cannot be pickled or copied")

    cdef object _next_message(self):
        cdef RecordFields fields
        cdef int status
        if self._left == 0:
            status = check_end_of_messages(&self._cursor)
            if status != STATUS_OK:
                self._refuse(status)
            raise StopIteration
        status = next_message(
            &self._messages, self._cursor.position, self._cursor.end, &fields
        )
        if status != STATUS_OK:
            self._refuse(status)
        cdef const uint8_t* position = self._cursor.position
        self._cursor.position = fields.end
        self._left -= 1
        if self._pairs:
            made = make_pair(&fields)
        else:
            made = make_record(&self._messages.context, &fields, self._ref)
        check_read(position, fields.end - position)
        return made

    def __next__(self):
        cdef RecordFields fields
        cdef const uint8_t* next_position
        cdef int status
        if self._is_old:
            return self._next_message()
        if self._left == 0:
            status = check_end(&self._context, &self._cursor)
            if status != STATUS_OK:
                self._refuse(status)
            raise StopIteration
        next_position = next_record(
            &self._context, self._cursor.position, self._cursor.end, &fields
        )
        if next_position == NULL:
            self._refuse(record_error_status(self._cursor.position, self._cursor.end))
        cdef const uint8_t* position = self._cursor.position
        self._cursor.position = next_position
        self._left -= 1
        if self._pairs:
            made = make_pair(&fields)
        else:
            made = make_record(&self._context, &fields, self._ref)
        check_read(position, next_position - position)
        return made


@cython.final
cdef class CloseSignal:
    """
    Signal that ends iterators: open until it is closed, for good.

    Thread-safety: any thread may shut it; the next record of an iterator in another one is refused.
    """

    cdef bint _is_open

    def __cinit__(self):
        self._is_open = True

    @property
    def is_open(self):
        """True until it is closed."""
        return self._is_open

    def close(self):
        """Let every iterator end before its next record."""
        self._is_open = False

    def __reduce__(self):
        raise TypeError("a CloseSignal cannot be pickled or copied")


@cython.final
cdef class ClosableRecords:
    """
    Iterator over a list that ends when its CloseSignal is closed.

    Args:
        records: they must not change during the iteration.
        signal: checked before each of them.

    Thread-safety: one thread at a time.
    """

    cdef list _records
    cdef CloseSignal _signal
    cdef Py_ssize_t _next

    def __cinit__(self, list records not None, CloseSignal signal not None):
        self._records = records
        self._signal = signal

    def __iter__(self):
        return self

    def __length_hint__(self):
        return len(self._records) - self._next

    def __next__(self):
        cdef Py_ssize_t slot = self._next
        if slot >= len(self._records) or not self._signal._is_open:
            raise StopIteration
        self._next = slot + 1
        return self._records[slot]

    def __reduce__(self):
        raise TypeError("a ClosableRecords cannot be pickled or copied")
