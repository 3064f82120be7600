"""Entries of one commit of a journal, with the bytes that they have.

The layout is described, and read, by `kafkalog.state.commit_journal`. The bytes of a segment are
read from its file to where the commit is built, so that an entry needs no other object.

Thread-safety: none; one caller at a time.
"""

cimport cython
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from kafkalog._core.byteorder cimport store_i64, store_u16, store_u32
from kafkalog._core.crc32c cimport crc32c
from kafkalog._engine.commit_source cimport PendingCommit
from kafkalog._engine.file_writer cimport Descriptor

cdef extern from "<unistd.h>" nogil:
    ctypedef long long off_t
    Py_ssize_t pread(int descriptor, void* data, size_t size, off_t position)

cdef enum:
    DATA_KIND = 2
    DATA_ENTRY_BYTES = 52
    RECORDS_KIND = 4
    RECORDS_ENTRY_BYTES = 32
    RECORD_HEAD_BYTES = 16
    ANCHOR_MAX = 64
    # More bytes are read without the GIL; to give it up takes longer than to read fewer.
    NOGIL_SIZE_MIN = 64 * 1024
    CAPACITY_MIN = 4096


cdef Py_ssize_t read_at(int descriptor, uint8_t* target, Py_ssize_t size,
                        int64_t position) except -1:
    """Read bytes; return fewer only at the end of the file."""
    cdef Py_ssize_t done = 0, count
    while done < size:
        if size - done >= NOGIL_SIZE_MIN:
            with nogil:
                count = pread(descriptor, target + done, <size_t>(size - done), position + done)
        else:
            count = pread(descriptor, target + done, <size_t>(size - done), position + done)
        if count == 0:
            break
        if count > 0:
            done += count
        elif errno == EINTR:
            PyErr_CheckSignals()
        else:
            PyErr_SetFromErrno(OSError)
    return done


cdef inline Py_ssize_t field_size(list fields, Py_ssize_t row) noexcept:
    """Return the size of a key or value; 0 for None."""
    cdef PyObject* field = PyList_GET_ITEM(fields, row)
    return 0 if field == <PyObject*>None else PyBytes_GET_SIZE(<object>field)


cdef inline uint8_t* store_field(uint8_t* place, uint8_t* size_place, list fields,
                                 Py_ssize_t row) noexcept:
    """Store a key or value, and its size; return the place after it."""
    cdef PyObject* field = PyList_GET_ITEM(fields, row)
    cdef Py_ssize_t size
    if field == <PyObject*>None:
        store_u32(size_place, 0xFFFFFFFFU)
        return place
    size = PyBytes_GET_SIZE(<object>field)
    store_u32(size_place, <uint32_t>size)
    memcpy(place, PyBytes_AS_STRING(<object>field), <size_t>size)
    return place + size


@cython.final
cdef class CommitTable:
    """
    Entries and bytes of one commit.

    Attributes:
        entry_count: number of entries.
        table_bytes, data_bytes: sizes of the entries, and of their bytes.
    """

    def __cinit__(self):
        self._table = PyByteArray_FromStringAndSize(NULL, CAPACITY_MIN)
        self._data = PyByteArray_FromStringAndSize(NULL, CAPACITY_MIN)
        self.entry_count = self.table_bytes = self.data_bytes = 0

    def __reduce__(self):
        raise TypeError("a CommitTable cannot be pickled or copied")

    def add_entry(self, bytes entry not None, bytes data=b""):
        """Add an encoded entry, and its bytes."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(entry)
        memcpy(self._table_space(size), PyBytes_AS_STRING(entry), <size_t>size)
        memcpy(self._data_space(len(data)), PyBytes_AS_STRING(data), <size_t>len(data))
        self.table_bytes += size
        self.data_bytes += len(data)
        self.entry_count += 1

    def add_data(self, uint32_t number, int64_t base_offset, int64_t position,
                 int64_t first_offset, int64_t end_offset,
                 const uint8_t[::1] bytes_before not None, const uint8_t[::1] data not None):
        """
        Add an entry of data.

        Args:
            number: number of the partition.
            base_offset: names the segment.
            position: position of the bytes in its file.
            first_offset, end_offset: first offset, and one above the last.
            bytes_before: up to 64 bytes before the position.
            data: whole batches.
        """
        cdef const uint8_t* before = NULL
        cdef Py_ssize_t size = data.shape[0]
        if bytes_before.shape[0] > ANCHOR_MAX:
            raise ValueError(f"bytes_before must be at most {ANCHOR_MAX} bytes")
        if bytes_before.shape[0]:
            before = &bytes_before[0]
        if size:
            memcpy(self._data_space(size), &data[0], <size_t>size)
        self._add_data_entry(number, base_offset, position, first_offset, end_offset, before,
                             bytes_before.shape[0], size)

    def read_data(self, uint32_t number, PendingCommit pending not None):
        """
        Add the bytes of a log from its file; return False if the file has no descriptor.

        Raises:
            OSError: the file cannot be read; nothing was added.
            ValueError: it ends before the bytes.
        """
        cdef Descriptor descriptor = pending.file_end.descriptor()
        cdef uint8_t anchor[ANCHOR_MAX]
        cdef Py_ssize_t anchor_size = min(pending.position, <int64_t>ANCHOR_MAX)
        cdef Py_ssize_t size = pending.end - pending.position
        cdef uint8_t* space
        if descriptor is None:
            return False
        # Both by one call; then the bytes move over the anchor.
        space = self._data_space(anchor_size + size)
        if (
            read_at(descriptor.number, space, anchor_size + size, pending.position - anchor_size)
            != anchor_size + size
        ):
            raise ValueError(f"{pending.file.path} ends before {pending.end}")
        memcpy(anchor, space, <size_t>anchor_size)
        memmove(space, space + anchor_size, <size_t>size)
        self._add_data_entry(
            number, pending.base_offset, pending.position,
            min(pending.start_offset, pending.end_offset), pending.end_offset, anchor, anchor_size,
            size,
        )
        return True

    def entries(self):
        """Return all entries."""
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self._table), self.table_bytes)

    def data(self):
        """Return a view of the bytes of all entries; nothing may be added while it is used."""
        return memoryview(self._data)[:self.data_bytes]

    cdef int add_records(self, uint32_t number, int64_t first_offset, list keys, list values,
                         int64_t timestamp_ms, const int32_t* rows, Py_ssize_t count) except -1:
        """
        Add an entry of records.

        Args:
            number: number of the partition.
            first_offset: offset of the first record; the others follow it.
            keys, values: bytes or None each, of these records and others.
            timestamp_ms: of all of them.
            rows: numbers of the records in the lists, in order.
            count: number of records.
        """
        cdef Py_ssize_t size = 0, each
        cdef uint8_t* data
        cdef uint8_t* place
        cdef uint8_t* head
        cdef uint8_t* entry
        for each in range(count):
            size += RECORD_HEAD_BYTES
            size += field_size(keys, rows[each]) + field_size(values, rows[each])
        data = place = self._data_space(size)
        for each in range(count):
            head = place
            store_i64(head, timestamp_ms)
            place = store_field(head + RECORD_HEAD_BYTES, head + 8, keys, rows[each])
            place = store_field(place, head + 12, values, rows[each])
        entry = self._table_space(RECORDS_ENTRY_BYTES)
        entry[0] = RECORDS_KIND
        entry[1] = 0
        store_u16(entry + 2, 0)
        store_u32(entry + 4, number)
        store_u32(entry + 8, <uint32_t>size)
        store_u32(entry + 12, crc32c(0, data, <size_t>size))
        store_i64(entry + 16, first_offset)
        store_i64(entry + 24, first_offset + count)
        self.table_bytes += RECORDS_ENTRY_BYTES
        self.data_bytes += size
        self.entry_count += 1
        return 0

    cdef int _add_data_entry(self, uint32_t number, int64_t base_offset, int64_t position,
                             int64_t first_offset, int64_t end_offset, const uint8_t* before,
                             Py_ssize_t anchor_size, Py_ssize_t size) except -1:
        """Add the entry of bytes that are in the data space already."""
        cdef uint8_t* entry = self._table_space(DATA_ENTRY_BYTES)
        cdef const uint8_t* data = self._data_space(size)
        entry[0] = DATA_KIND
        entry[1] = <uint8_t>anchor_size
        store_u16(entry + 2, 0)
        store_u32(entry + 4, number)
        store_u32(entry + 8, <uint32_t>size)
        store_u32(entry + 12, crc32c(0, data, <size_t>size))
        store_i64(entry + 16, base_offset)
        store_i64(entry + 24, position)
        store_i64(entry + 32, first_offset)
        store_i64(entry + 40, end_offset)
        store_u32(entry + 48, crc32c(0, before, <size_t>anchor_size))
        self.table_bytes += DATA_ENTRY_BYTES
        self.data_bytes += size
        self.entry_count += 1
        return 0

    cdef uint8_t* _table_space(self, Py_ssize_t size) except NULL:
        """Return space for so many bytes after the entries."""
        if len(self._table) < self.table_bytes + size:
            PyByteArray_Resize(self._table, 2 * len(self._table) + size)
        return <uint8_t*>PyByteArray_AS_STRING(self._table) + self.table_bytes

    cdef uint8_t* _data_space(self, Py_ssize_t size) except NULL:
        """Return space for so many bytes after the data."""
        if len(self._data) < self.data_bytes + size:
            PyByteArray_Resize(self._data, 2 * len(self._data) + size)
        return <uint8_t*>PyByteArray_AS_STRING(self._data) + self.data_bytes
