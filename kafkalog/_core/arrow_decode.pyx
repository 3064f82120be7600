"""Decoder of v2 batches directly into Arrow columns: the path of nearly all records.

There is no intermediate form: CRC, record, cells, tile by tile, so that bytes are read from memory
once and written once. A record of 100 bytes takes a third of the instructions that it needs through
positions and sizes, and no cache for those.

A run is of plain batches, or of compressed ones: after the CRC their codec is undone into memory of
the run's, and the records continue from there while they are in the near caches. Where that takes a
library of Python's, the caller calls it for several batches at a time (`list_compressed`,
`add_decompressed`).

Other batches are left to the caller: another format or kind, offsets outside of the requested
range, records that are not all good. Columns are then as before the batch, and the general path
decides on the error. So there is one verdict.

Where a batch does not fit, its first rows go into one Arrow batch and the rest into the next; all
of it is looked at before the first of them is given away.

Thread-safety: one caller at a time for a run.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kafkalog._core.crc32c cimport crc32c
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.codec cimport is_decoded_here, is_known_codec
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_legacy,
    last_offset_of,
    load_whole_batch,
)
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.mapping cimport check_object
from kafkalog._core.payloads cimport (
    DecompressedPayload,
    discard_payloads,
    find_decompressed,
    open_payload,
)
from kafkalog._core.record cimport (
    RecordFields,
    RecordsContext,
    check_count,
    check_end,
    context_of,
    next_record,
)
from kafkalog._core.row_columns cimport (
    COLUMN_HEADERS,
    COLUMN_KEY,
    COLUMN_OFFSET,
    COLUMN_SEQUENCE,
    COLUMN_TIMESTAMP,
    COLUMN_VALUE,
    LAYOUT_NARROW,
    LAYOUT_VIEWS,
    VIEW_SIZE,
    Build,
    Column,
    Window,
    add_constants,
)
from kafkalog._core.row_filter cimport RowRunInfo
from kafkalog._core.arrow_decode_step cimport Cells, Rows, RunState, add_tile, open_rows
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_CRC,
    STATUS_FULL,
    STATUS_NO_MEMORY,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
)


cdef enum:
    # Bytes that the CRC reads before the decoder does; as in columns.pyx.
    TILE_SIZE = 16 * 1024
    # Below it, the CRC of batches that a library is to decompress holds the GIL: few microseconds.
    CRC_NOGIL_SIZE_MIN = 32 * 1024


# Ends of the columns that grow with each record.
cdef struct Marks:
    int64_t key_bytes
    int64_t value_bytes
    int64_t header_total
    int64_t header_nulls
    int64_t header_key_slots
    int64_t header_key_bytes
    int64_t header_value_slots
    int64_t header_value_bytes
    int64_t header_validity


cdef bint can_add_runs(const Build* build) noexcept nogil:
    """True if runs can be added to the requested columns: sequences need the offsets."""
    return build.has_column[COLUMN_OFFSET] or not build.has_column[COLUMN_SEQUENCE]


# ---- one batch --------------------------------------------------------------------------------

cdef Marks _mark(const Build* build) noexcept nogil:
    cdef Marks marks
    marks.key_bytes = build.columns[COLUMN_KEY].octets.size
    marks.value_bytes = build.columns[COLUMN_VALUE].octets.size
    marks.header_total = build.header_total
    marks.header_nulls = build.header_values.null_count
    marks.header_key_slots = build.header_keys.slots.size
    marks.header_key_bytes = build.header_keys.octets.size
    marks.header_value_slots = build.header_values.slots.size
    marks.header_value_bytes = build.header_values.octets.size
    marks.header_validity = build.header_values.validity.size
    return marks


cdef void _return_to(Build* build, const Marks* marks) noexcept nogil:
    """Forget the rows of a batch; other columns count none before it is found good."""
    build.columns[COLUMN_KEY].octets.size = marks.key_bytes
    build.columns[COLUMN_VALUE].octets.size = marks.value_bytes
    build.header_total = marks.header_total
    build.header_values.null_count = marks.header_nulls
    build.header_keys.slots.size = marks.header_key_slots
    build.header_keys.octets.size = marks.header_key_bytes
    build.header_values.slots.size = marks.header_value_slots
    build.header_values.octets.size = marks.header_value_bytes
    build.header_values.validity.size = marks.header_validity
    _trim_validity(&build.columns[COLUMN_TIMESTAMP], build.count)
    _trim_validity(&build.columns[COLUMN_KEY], build.count)
    _trim_validity(&build.columns[COLUMN_VALUE], build.count)


cdef void _trim_validity(Column* column, int64_t count) noexcept nogil:
    column.validity.size = (count + 7) // 8 if column.null_count > 0 else 0


cdef void _keep_cells(Build* build, int number, const Cells* cells, int64_t row) noexcept nogil:
    cdef Column* column = &build.columns[number]
    if not cells.is_selected:
        return
    column.null_count = cells.null_count
    _trim_validity(column, row)
    if build.layout == LAYOUT_VIEWS:
        column.slots.size = VIEW_SIZE * row
        return
    column.slots.size = (row + 1) * (4 if build.layout == LAYOUT_NARROW else 8)


cdef int _keep_rows(Build* build, const Rows* rows, const BatchFields* fields) noexcept nogil:
    """Let the rows of a batch count."""
    cdef int64_t count = rows.row - build.count
    cdef Column* timestamps = &build.columns[COLUMN_TIMESTAMP]
    cdef RowRunInfo facts
    cdef int status
    if rows.offsets != NULL:
        build.columns[COLUMN_OFFSET].slots.size = 8 * rows.row
    if rows.timestamps != NULL:
        timestamps.slots.size = 8 * rows.row
        timestamps.null_count = rows.timestamp_nulls
        _trim_validity(timestamps, rows.row)
    _keep_cells(build, COLUMN_KEY, &rows.key, rows.row)
    _keep_cells(build, COLUMN_VALUE, &rows.value, rows.row)
    if rows.header_ends != NULL:
        build.columns[COLUMN_HEADERS].slots.size = 4 * (rows.row + 1)
    facts.end_row = count
    facts.base_offset = fields.base_offset
    facts.producer_id = fields.producer_id
    facts.leader_epoch = fields.partition_leader_epoch
    facts.base_sequence = fields.base_sequence
    facts.producer_epoch = fields.producer_epoch
    facts.timestamp_type = (fields.attributes & TIMESTAMP_TYPE_MASK) != 0
    status = add_constants(
        build, &facts, 1, NULL if rows.offsets == NULL else rows.offsets + build.count, 0, count
    )
    build.count = rows.row
    build.size_bytes = rows.size_bytes
    return status


cdef int _check_remaining(const RunState* run) noexcept nogil:
    """Look at the records of a batch that did not fit: all are good, or none is given."""
    cdef RecordsContext context = run.context
    cdef RecordFields fields
    cdef Cursor cursor
    cdef int64_t left = run.left
    cursor.position = run.position
    cursor.end = run.records_end
    while left > 0:
        left -= 1
        cursor.position = next_record(&context, cursor.position, cursor.end, &fields)
        if cursor.position == NULL:
            return STATUS_RECORD_LENGTH
    return check_end(&context, &cursor)


cdef int _verdict(const RunState* run, int status) noexcept nogil:
    """Return the verdict on a batch after its good records that fit were added."""
    cdef Cursor cursor
    if status == STATUS_FULL:
        return STATUS_FULL if _check_remaining(run) == STATUS_OK else STATUS_RECORD_LENGTH
    if status == STATUS_OK and run.left > 0:
        return STATUS_RECORD_LENGTH
    cursor.position = run.position
    cursor.end = run.records_end
    return check_end(&run.context, &cursor) if status == STATUS_OK else status


cdef int _add_whole(
    Build* build, RunState* run, const BatchFields* fields, Rows* rows
) noexcept nogil:
    """Check and decode a batch from its beginning; STATUS_FULL: it is good, and a part is left."""
    cdef const uint8_t* tile = run.batch + ATTRIBUTES_POSITION
    cdef const uint8_t* tile_end
    cdef uint32_t crc = 0
    cdef int status = STATUS_OK
    if run.compressed:                 # and its CRC was looked at
        return _verdict(run, add_tile(build, run, rows, run.records_end))
    while tile < run.records_end:
        tile_end = run.records_end
        if status == STATUS_OK and tile_end - tile > TILE_SIZE + TILE_SIZE // 2:
            tile_end = tile + TILE_SIZE
        if run.check_crc:
            crc = crc32c(crc, tile, <size_t>(tile_end - tile))
        tile = tile_end
        if status == STATUS_OK:
            status = add_tile(build, run, rows, tile_end)
    # A wrong CRC is the verdict, whatever the records looked like.
    if run.check_crc and crc != fields.crc:
        return STATUS_CRC
    return _verdict(run, status)


cdef bint _is_full(const Build* build) noexcept nogil:
    return build.count >= build.rows_max or build.size_bytes >= build.bytes_max


cdef inline bint _needs_library(int codec) noexcept nogil:
    return codec != CODEC_NONE and is_known_codec(codec) and not is_decoded_here(codec)


cdef int64_t count_compressed(const RunState* run, int64_t bytes_max) noexcept nogil:
    """Count the next batches that take a library, have the right CRC, and no more bytes."""
    cdef BatchFields fields
    cdef Cursor cursor
    cdef int64_t count = 0
    cursor.position = run.batch
    cursor.end = run.end
    while cursor.position < cursor.end and load_whole_batch(&cursor, &fields) == STATUS_OK:
        if (
            is_legacy(&fields)
            or not _needs_library(fields.attributes & CODEC_MASK)
            or last_offset_of(&fields) >= run.offset_end
        ):
            break
        bytes_max -= fields.size_bytes
        if count > 0 and bytes_max < 0:
            break
        if run.check_crc and crc_of_batch(cursor.position, fields.size_bytes) != fields.crc:
            break
        count += 1
        cursor.position += fields.size_bytes
    return count


cdef int _open_compressed(
    RunState* run, Payloads* payloads, const BatchFields* fields
) noexcept nogil:
    """Check the CRC of a batch, and let the run stand before its records as they were."""
    cdef int codec = fields.attributes & CODEC_MASK
    cdef const DecompressedPayload* decompressed = NULL
    cdef int64_t size = 0
    cdef int status
    if is_decoded_here(codec):
        if run.check_crc and crc_of_batch(run.batch, fields.size_bytes) != fields.crc:
            return STATUS_CRC
        status = open_payload(
            payloads, codec, run.batch + RECORD_BATCH_OVERHEAD,
            fields.size_bytes - RECORD_BATCH_OVERHEAD, &run.position, &size,
        )
        if status != STATUS_OK:
            run.position = NULL
            return STATUS_SLOW_PATH if status == STATUS_COMPRESSED else status
    else:
        decompressed = find_decompressed(payloads, run.batch)
        if decompressed == NULL:
            return STATUS_COMPRESSED if _needs_library(codec) else STATUS_SLOW_PATH
        run.position = decompressed.data
        size = decompressed.size
    run.records_end = run.readable_end = run.position + size
    return STATUS_OK


cdef int _open_batch(
    RunState* run, Payloads* payloads, const BatchFields* fields
) noexcept nogil:
    """Let the run stand before the first record of the next batch."""
    cdef Cursor cursor
    cdef int status
    if (
        is_legacy(fields)
        or (fields.attributes & CODEC_MASK != CODEC_NONE) != run.compressed
        or fields.base_offset < run.offset_min
        or last_offset_of(fields) >= run.offset_end
    ):
        return STATUS_SLOW_PATH
    if run.compressed:
        status = _open_compressed(run, payloads, fields)
        if status != STATUS_OK:
            return status
    else:
        run.position = run.batch + RECORD_BATCH_OVERHEAD
        run.records_end = run.batch + fields.size_bytes
    run.context = context_of(fields, True)
    run.left = fields.record_count
    cursor.position = run.position
    cursor.end = run.records_end
    return check_count(&run.context, &cursor)


cdef int _add_batch(Build* build, RunState* run, Payloads* payloads) noexcept nogil:
    """Add the current batch of a run, or the rest of it."""
    cdef bint is_continued = run.position != NULL
    cdef Marks marks = _mark(build)
    cdef BatchFields fields
    cdef Cursor cursor
    cdef Rows rows
    cdef int status
    memset(&fields, 0, sizeof(fields))
    cursor.position = run.batch
    cursor.end = run.end
    status = load_whole_batch(&cursor, &fields)
    if status != STATUS_OK:
        return STATUS_SLOW_PATH
    if not is_continued:
        if _is_full(build):
            return STATUS_FULL
        status = _open_batch(run, payloads, &fields)
    if status == STATUS_OK:
        status = open_rows(build, run, &rows)
    if status == STATUS_OK and is_continued:
        status = add_tile(build, run, &rows, run.records_end)
    elif status == STATUS_OK:
        status = _add_whole(build, run, &fields, &rows)
    if status != STATUS_OK and status != STATUS_FULL:
        _return_to(build, &marks)
        if not is_continued:
            run.position = NULL
        return status
    if _keep_rows(build, &rows, &fields) != STATUS_OK:
        return STATUS_NO_MEMORY
    if status == STATUS_FULL:
        return status
    run.batch += fields.size_bytes
    run.position = NULL
    run.batch_count += 1
    run.offset_min = max(run.offset_min, last_offset_of(&fields) + 1)
    return STATUS_OK


cdef void _aim_window(Build* build, const RunState* run, bint is_continued) noexcept nogil:
    """Let the last window reach over a run, where it is of the same data, or open another."""
    cdef Window* window
    if is_continued and build.window_count > 0:
        window = &build.windows[build.window_count - 1]
        if window.start <= run.batch and run.end - window.start <= INT32_MAX:
            window.size = max(window.size, <int64_t>(run.end - window.start))
            return
    window = &build.windows[build.window_count]
    window.start = run.batch
    window.size = run.end - run.batch
    build.window_count += 1


cdef int add_run_kernel(
    Build* build, RunState* run, Payloads* payloads, bint is_continued
) noexcept nogil:
    """
    Add batch after batch of a run, up to the capacity of the columns.

    Returns STATUS_OK after the last one; STATUS_FULL if the columns have to be taken first;
    STATUS_COMPRESSED if decompressed records are needed; STATUS_NO_MEMORY; else, before a batch for
    the general path, its error, if that is known: STATUS_CRC is certain. If `run.position` is set
    then, a batch that was good has changed.
    """
    cdef int status
    if build.layout == LAYOUT_VIEWS and not run.compressed:
        _aim_window(build, run, is_continued)
    while run.batch < run.end:
        status = _add_batch(build, run, payloads)
        if status != STATUS_OK:
            return status
    return STATUS_OK


# ---- entry points -----------------------------------------------------------------------------

# Not for the collector: it would clear `view` without a release, and memory that is exported. No
# cycle goes through a run, for what it holds is older, and bytes.
@cython.no_gc
@cython.final
cdef class ArrowBatchRun:
    """
    Batches side by side that are to become rows; what RowBuilder.add_run takes.

    Args:
        data: their bytes, which never change.
        position: start of the first.
        end: end of the last.
        check_crc: whether their CRCs are not checked yet.
        offset_min: first requested offset; rises with the finished batches.
        offset_end: one above the last.
        compressed: whether all batches are compressed; else none is.
        limit_bytes: largest size of the records of a compressed one.

    Attributes:
        data: the same.

    Thread-safety: none; one caller at a time.
    """

    def __cinit__(
        self,
        data not None,
        Py_ssize_t position,
        Py_ssize_t end,
        *,
        bint check_crc,
        int64_t offset_min,
        int64_t offset_end,
        bint compressed=False,
        int64_t limit_bytes=0,
    ):
        cdef const uint8_t* start
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.data = data
        if not 0 <= position <= end <= self.view.len:
            raise IndexError(f"batches at {position} to {end} of {self.view.len} bytes")
        start = <const uint8_t*>self.view.buf
        self.state.batch = start + position
        self.state.end = start + end
        self.state.readable_end = start + self.view.len
        self.state.check_crc = check_crc
        self.state.offset_min = offset_min
        self.state.offset_end = offset_end
        self.state.compressed = compressed
        self.payloads.limit_bytes = limit_bytes

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
        PyBuffer_Release(&self._decompressed_view)
        discard_payloads(&self.payloads)
        free(self.payloads.decompressed)

    @property
    def batch_count(self):
        """Number of finished batches."""
        return self.state.batch_count

    def resume_at(self, Py_ssize_t position, Py_ssize_t batch_count, int64_t offset_min):
        """Continue after batches that the caller has decoded."""
        cdef Py_ssize_t end = self.state.end - <const uint8_t*>self.view.buf
        if self.state.position != NULL or not 0 <= position <= end:
            raise ValueError(f"position must be in 0 to {end}, between batches, got {position}")
        self.state.batch = <const uint8_t*>self.view.buf + position
        self.state.batch_count += batch_count
        self.state.offset_min = max(self.state.offset_min, offset_min)

    def list_compressed(self, Py_ssize_t bytes_max):
        """
        Return which of the next batches take a library: a list of (codec, position, end).

        These are the batches for which `add_run` returned COMPRESSED, as ranges of their compressed
        records in `data`; at least one, and at most `bytes_max` together. The CRC of each is right;
        the list ends before a batch with a wrong CRC, or of another kind.

        Releases the GIL for CRC_NOGIL_SIZE_MIN bytes and more.
        """
        cdef const uint8_t* start = <const uint8_t*>self.view.buf
        cdef const uint8_t* batch = self.state.batch
        cdef BatchFields fields
        cdef Cursor cursor
        cdef list parts = []
        cdef int64_t count
        if min(bytes_max, self.state.end - batch) < CRC_NOGIL_SIZE_MIN:
            count = count_compressed(&self.state, bytes_max)
        else:
            with nogil:
                count = count_compressed(&self.state, bytes_max)
        cursor.position = batch
        cursor.end = self.state.end
        while len(parts) < count and load_whole_batch(&cursor, &fields) == STATUS_OK:
            parts.append((
                fields.attributes & CODEC_MASK,
                cursor.position + RECORD_BATCH_OVERHEAD - start,
                cursor.position + fields.size_bytes - start,
            ))
            cursor.position += fields.size_bytes
        check_object(self.data)
        return parts

    def add_decompressed(self, list parts not None, memory not None, list ends not None):
        """
        Hand over what libraries have made of the first of what `list_compressed` returned.

        Args:
            parts: the returned ranges.
            memory: the records of batch after batch. It must not change until `add_run` returns OK
                or COMPRESSED, and is released then.
            ends: end of the records of each batch; of no more batches than `parts` has.
        """
        cdef Py_ssize_t count = len(ends)
        cdef Py_ssize_t slot
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t end
        cdef DecompressedPayload* decompressed
        if self.state.position != NULL or count > len(parts):
            raise ValueError(f"ends must be at most as many as parts, {len(parts)}, got {count}")
        self.clear_decompressed()
        decompressed = <DecompressedPayload*>realloc(
            self.payloads.decompressed, <size_t>max(count, 1) * sizeof(DecompressedPayload)
        )
        if decompressed == NULL:
            raise MemoryError(f"no memory for {count} batches")
        self.payloads.decompressed = decompressed
        PyObject_GetBuffer(memory, &self._decompressed_view, PyBUF_SIMPLE)
        for slot in range(count):
            end = ends[slot]
            if not start <= end <= self._decompressed_view.len:
                raise IndexError(f"records at {start} to {end} of"
                                 f" {self._decompressed_view.len} bytes")
            decompressed[slot].batch = <const uint8_t*>self.view.buf + (
                <Py_ssize_t>parts[slot][1] - RECORD_BATCH_OVERHEAD
            )
            decompressed[slot].data = <const uint8_t*>self._decompressed_view.buf + start
            decompressed[slot].size = end - start
            start = end
        self.payloads.decompressed_count = count

    cdef int clear_decompressed(self) except -1:
        """Release the decompressed bytes, so that their memory can be used again."""
        self.payloads.decompressed_count = self.payloads.next_decompressed = 0
        PyBuffer_Release(&self._decompressed_view)
        return 0
