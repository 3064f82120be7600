"""Rows of the records of plain batches, read batch by batch in both passes of a cleaning.

A plain batch has format v2 and is neither transactional nor a control batch, so that no rule
applies to it as a whole. A function of the caller decompresses each compressed batch; the rest
runs without Python.

Callers are the kernels of key_collection.pyx and run_filter.pyx. Every batch is checked: framing,
order, CRC, and records against the header.

Thread-safety: none; one caller at a time.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.columns cimport RecordColumns, decode_payload, decode_plain_batch
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_plain_v2,
    last_offset_of,
    load_whole_batch,
    open_cursor,
    prefetch_header,
)
from kafkalog._core.layout cimport (
    CODEC_MASK,
    CODEC_NONE,
    CONTROL_MASK,
    RECORDS_POSITION,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.mapping cimport check_object
from kafkalog._core.status cimport STATUS_COMPRESSED, STATUS_CRC, STATUS_OK


def survey_run(const uint8_t[::1] run not None, int64_t next_offset):
    """
    Look at the headers of a run of whole batches.

    Args:
        run: the batches.
        next_offset: no batch may begin below it, nor below the end of the batch before.

    Returns:
        (next offset, most records in one batch, records in batches that are not compressed), all by
        the headers; None if a batch is not plain, or its header shows damage.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    cdef int64_t rows_max = 0
    cdef int64_t plain_rows = 0
    open_cursor(run, 0, None, &cursor)
    while cursor.position < cursor.end:
        if (
            load_whole_batch(&cursor, &fields) != STATUS_OK
            or not is_plain_v2(&fields, TRANSACTIONAL_MASK | CONTROL_MASK)
            or fields.base_offset < next_offset
        ):
            check_object(run)
            return None
        next_offset = last_offset_of(&fields) + 1
        rows_max = max(rows_max, <int64_t>fields.record_count)
        if fields.attributes & CODEC_MASK == CODEC_NONE:
            plain_rows += fields.record_count
        prefetch_header(&cursor, 2 * fields.size_bytes)
        cursor.position += fields.size_bytes
    check_object(run)
    return next_offset, rows_max, plain_rows


cdef int load_plain(RunRows* rows) noexcept nogil:
    """
    Add the rows of the next batch, and move the cursor past it.

    Return STATUS_COMPRESSED if it must be decompressed; STATUS_FULL if rows must be freed first.
    """
    cdef int status = load_whole_batch(&rows.cursor, &rows.fields)
    if status != STATUS_OK:
        return status
    if rows.fields.attributes & CODEC_MASK != CODEC_NONE:
        return STATUS_COMPRESSED
    status = decode_plain_batch(
        rows.cursor.position,
        &rows.fields,
        rows.start,
        rows.cursor.end,
        &rows.columns,
        rows.capacity,
        &rows.count,
        True,
        True,
    )
    if status == STATUS_OK:
        rows.cursor.position += rows.fields.size_bytes
    return status


cdef class BatchRows:
    """
    The batches of one run, and the rows of those that were read last.

    Args:
        run: whole batches, all of them plain.
        columns: for the rows; larger than any batch.
        decompress: called with codec and compressed records, a memoryview; returns bytes.
    """

    def __cinit__(self, run not None, RecordColumns columns not None, decompress not None):
        self._run = memoryview(run)
        self._octets = run
        self._columns = columns
        self._decompress = decompress
        self.rows.columns = columns.pointers
        self.rows.capacity = columns.capacity
        self.rows.start = open_cursor(self._octets, 0, None, &self.rows.cursor)
        self.close_compressed()

    cdef int open_compressed(self) except -1:
        """
        Read the next batch, whose header was loaded, as the only one with rows; return a status.

        Raises: whatever `decompress` does.
        """
        cdef RunRows* rows = &self.rows
        cdef Py_ssize_t first = rows.cursor.position - rows.start
        cdef int64_t size = rows.fields.size_bytes
        cdef int status
        if crc_of_batch(rows.cursor.position, size) != rows.fields.crc:
            return STATUS_CRC
        self._payload = self._decompress(
            rows.fields.attributes & CODEC_MASK, self._run[first + RECORDS_POSITION:first + size]
        )
        rows.data = <const uint8_t*>self._payload
        rows.data_size = len(self._payload)
        status = decode_payload(
            rows.data, rows.data, rows.data_size, &rows.fields, True, &rows.columns, rows.capacity,
            &rows.count,
        )
        if status == STATUS_OK:
            rows.cursor.position += size
        return status

    cdef void close_compressed(self) noexcept:
        """Let rows point into the run again."""
        self.rows.data = self.rows.start
        self.rows.data_size = self._octets.shape[0]
