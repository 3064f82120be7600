"""Decoder of compressed batches into caller-owned columns: CRC, codec and records in one call.

It is `decode_run` of columns.pyx for compressed batches. The records of all batches are in one
reused memory, and positions count from its beginning. Only the common batch is decoded here: of
format v2, with a codec that kernels decode, without a fault except perhaps the CRC. Any other is
left to the caller: decoded alone, its verdict counts.

Thread-safety: one caller at a time for a PayloadMemory, and for the columns.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from kafkalog._core.columns cimport ColumnPointers, RecordColumns, decode_payload
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.codec cimport is_decoded_here
from kafkalog._core.header cimport BatchFields, crc_of_batch, is_legacy, load_whole_batch
from kafkalog._core.layout cimport CODEC_MASK, RECORD_BATCH_OVERHEAD
from kafkalog._core.payloads cimport Payloads, discard_payloads, open_payload
from kafkalog._core.record cimport PayloadRef, check_payload, open_payload as open_data
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_CRC,
    STATUS_FULL,
    STATUS_NO_MEMORY,
    STATUS_OK,
    raise_for_status,
)


cdef enum:
    # Decoding holds the GIL below this many compressed bytes: they take some ten microseconds.
    NOGIL_SIZE_MIN = 16 * 1024
    # A run ends after this many bytes of records, which fit a common second-level cache.
    RUN_SIZE_ENOUGH = 256 * 1024


ENOUGH_BYTES = RUN_SIZE_ENOUGH


@cython.final
cdef class PayloadMemory:
    """
    Records of the compressed batches that were decoded last, as a read-only buffer.

    Args:
        limit_bytes: largest size of the records of one batch.

    Thread-safety: none; one caller at a time.
    """

    cdef Payloads payloads
    cdef Py_ssize_t _exports

    def __cinit__(self, int64_t limit_bytes=INT64_MAX):
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must not be negative, got {limit_bytes}")
        self.payloads.limit_bytes = limit_bytes

    def __dealloc__(self):
        discard_payloads(&self.payloads)

    def __len__(self):
        return self.payloads.memory.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(
            view, self, self.payloads.memory.data, self.payloads.memory.size, 1, flags
        )
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self._exports -= 1

    cdef Payloads* open(self) except NULL:
        """Return the memory, empty."""
        if self._exports > 0:
            raise BufferError("the memory must have no exported buffer to be filled again")
        self.payloads.memory.size = 0
        return &self.payloads


# Arguments and results of one call.
cdef struct Decoding:
    Payloads* payloads
    bint check_crc
    bint strict
    ColumnPointers columns
    int64_t capacity
    int64_t rows
    int64_t batches


cdef int _batch_kernel(
    const uint8_t* batch, const BatchFields* fields, Decoding* run
) noexcept nogil:
    """Add the rows of one whole batch."""
    cdef Payloads* payloads = run.payloads
    cdef const uint8_t* records = NULL
    cdef int64_t size = 0
    cdef int64_t free_rows = run.capacity - run.rows
    cdef int codec = fields.attributes & CODEC_MASK
    cdef int status
    if is_legacy(fields) or not is_decoded_here(codec):
        return STATUS_COMPRESSED
    if run.rows > 0 and (
        fields.record_count > free_rows or payloads.memory.size >= RUN_SIZE_ENOUGH
    ):
        return STATUS_FULL             # checked, with its CRC, by the next call
    if run.check_crc and crc_of_batch(batch, fields.size_bytes) != fields.crc:
        return STATUS_CRC
    if fields.record_count > free_rows:
        return STATUS_COMPRESSED
    status = open_payload(
        payloads, codec, batch + RECORD_BATCH_OVERHEAD, fields.size_bytes - RECORD_BATCH_OVERHEAD,
        &records, &size,
    )
    if status != STATUS_OK:
        return status
    if decode_payload(
        payloads.memory.data, records, size, fields, run.strict, &run.columns, run.capacity,
        &run.rows,
    ) != STATUS_OK:
        return STATUS_COMPRESSED
    payloads.memory.size += size
    run.batches += 1
    return STATUS_OK


cdef int _run_kernel(Cursor* cursor, Decoding* run) noexcept nogil:
    cdef BatchFields fields
    cdef int status
    while cursor.position < cursor.end:
        status = load_whole_batch(cursor, &fields)
        if status == STATUS_OK:
            status = _batch_kernel(cursor.position, &fields, run)
        if status != STATUS_OK:
            return status
        cursor.position += fields.size_bytes
    return STATUS_OK


def decode_compressed_run(
    data not None,
    Py_ssize_t position,
    RecordColumns columns not None,
    PayloadMemory memory not None,
    *,
    end=None,
    bint check_crc=True,
    bint strict=True,
):
    """
    Fill empty columns with the records of the compressed batches from `position` to `end`.

    Stops before the first batch that it cannot decode. The status gives the reason: STATUS_FULL
    (too few free rows for the whole batch, or enough bytes in the memory), STATUS_TRUNCATED (the
    last batch is cut), STATUS_CRC, or the fault of a header. STATUS_COMPRESSED: the caller must
    decode the batch alone, because it is uncompressed, of an old format, of a codec of a Python
    package, or its records or compressed bytes have a fault, which the caller reports.

    Releases the GIL for NOGIL_SIZE_MIN bytes and more.

    Args:
        data: any buffer with the batches.
        position: start of the first batch.
        columns: their rows are replaced; positions count from the beginning of `memory`.
        memory: for the records, which are replaced; no buffer of it may be exported.
        end: end of the last batch, None for all of the data.
        check_crc: whether to check the CRC of each.
        strict: refuse offset deltas that fall, repeat or leave the batch.

    Returns:
        (rows, batches read, position reached, status)
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, data)
    cdef Decoding run
    cdef int status
    cdef Cursor cursor = open_data(&ref.view, position, ref.view.len if end is None else end)
    run.payloads = memory.open()
    run.check_crc = check_crc
    run.strict = strict
    run.columns = columns.pointers
    run.capacity = columns.capacity
    run.rows = run.batches = columns.count = 0
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = _run_kernel(&cursor, &run)
    else:
        with nogil:
            status = _run_kernel(&cursor, &run)
    check_payload(&ref.view, position, ref.view.len)
    position = cursor.position - <const uint8_t*>ref.view.buf
    if status == STATUS_NO_MEMORY:
        raise_for_status(status, position)
    columns.count = run.rows
    return run.rows, run.batches, position, status
