"""Builder of Arrow batches from decoded rows, or from plain batches of a log.

Only requested columns are built, by `row_columns.pyx` and `arrow_decode.pyx`. This module owns
their memory until a batch is finished, which takes it. The next batch begins with the size of the
last one, in the same memory if the consumer has released it.

Thread-safety: one caller at a time for a RowBuilder.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kafkalog._core.arrow cimport ArrowArray
from kafkalog._core.arrow_export cimport ArrayOwner, ArrowBatch, add_array, new_owner
from kafkalog._core.arrow_memory cimport (
    MemoryPool,
    Octets,
    discard,
    drop_pool,
    detach_block,
    new_pool,
    reserve,
)
from kafkalog._core.columns cimport RecordColumns
from kafkalog._core.mapping cimport check_object
from kafkalog._core.row_columns cimport (
    COLUMN_COUNT,
    COLUMN_HEADERS,
    COLUMN_KEY,
    COLUMN_TOPIC,
    COLUMN_VALUE,
    LAYOUT_NARROW,
    LAYOUT_VIEWS,
    LAYOUT_WIDE,
    STATUS_NOT_UTF8,
    Build,
    Column,
    Portion,
    Window,
    add_rows_kernel,
    open_offsets,
    needs_run_info,
)
from kafkalog._core.row_filter cimport BatchRuns
from kafkalog._core.arrow_decode cimport (
    STATUS_SLOW_PATH,
    ArrowBatchRun,
    add_run_kernel,
    can_add_runs,
)
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_CRC,
    STATUS_FULL,
    STATUS_NO_MEMORY,
    STATUS_OK,
    raise_for_status,
)

from kafkalog._core.arrow_export import ArrowField
from kafkalog.errors import InvalidRecordError


cdef enum:
    # Adding holds the GIL below this many rows, which take some ten microseconds.
    NOGIL_ROWS_MIN = 1024
    # The same for batches that are still bytes.
    NOGIL_SIZE_MIN = 128 * 1024
    NOGIL_COMPRESSED_MIN = 16 * 1024
    # Largest number, and size, of released batches that are kept for the next ones.
    KEPT_BATCHES = 4
    KEPT_BYTES_MAX = 16 * 1024 * 1024


# ---- memory of columns ------------------------------------------------------------------------

cdef void _discard_column(Column* column) noexcept nogil:
    discard(&column.validity)
    discard(&column.slots)
    discard(&column.octets)
    column.null_count = 0


cdef void _use_pool(Column* column, MemoryPool* pool) noexcept nogil:
    column.validity.pool = column.slots.pool = column.octets.pool = pool


cdef void _use_pool_for_all(Build* build, MemoryPool* pool) noexcept nogil:
    cdef int number
    for number in range(COLUMN_COUNT):
        _use_pool(&build.columns[number], pool)
    _use_pool(&build.header_keys, pool)
    _use_pool(&build.header_values, pool)


cdef void _discard_all(Build* build) noexcept nogil:
    cdef int number
    for number in range(COLUMN_COUNT):
        _discard_column(&build.columns[number])
    _discard_column(&build.header_keys)
    _discard_column(&build.header_values)


cdef inline void _export_buffer(
    ArrayOwner* owner, int place, Octets* octets, bint optional
) noexcept nogil:
    """Pass a buffer to its owner; consumers expect NULL only for "nothing is null"."""
    if optional and octets.data == NULL:
        return
    owner.sizes[place] = octets.size
    owner.owned[place] = detach_block(octets)
    owner.buffers[place] = owner.owned[place]


cdef int _export_column(
    ArrowArray* array, Column* column, int64_t length, int buffer_count
) noexcept nogil:
    """Make an array of [validity, slots] or [validity, offsets, bytes]."""
    cdef ArrayOwner* owner
    cdef int64_t null_count = column.null_count
    if reserve(&column.slots, 0) != STATUS_OK or reserve(&column.octets, 0) != STATUS_OK:
        return STATUS_NO_MEMORY
    if null_count == 0:
        discard(&column.validity)
    owner = new_owner(buffer_count)
    if owner == NULL:
        return STATUS_NO_MEMORY
    _export_buffer(owner, 0, &column.validity, True)
    _export_buffer(owner, 1, &column.slots, False)
    if buffer_count > 2:
        _export_buffer(owner, 2, &column.octets, False)
    column.null_count = 0
    return add_array(array, owner, length, null_count, 0)


cdef int _export_views(
    ArrowArray* array, Column* column, const Build* build, PyObject* hold
) noexcept nogil:
    """Make an array of [validity, views, copied bytes, windows ..., sizes of those]."""
    cdef ArrayOwner* owner
    cdef Octets sizes
    cdef int64_t* size
    cdef int64_t null_count = column.null_count
    cdef int64_t slot
    memset(&sizes, 0, sizeof(Octets))
    sizes.pool = column.slots.pool
    if reserve(&column.slots, 0) != STATUS_OK or reserve(&column.octets, 0) != STATUS_OK:
        return STATUS_NO_MEMORY
    if reserve(&sizes, 8 * (1 + build.window_count)) != STATUS_OK:
        return STATUS_NO_MEMORY
    owner = new_owner(4 + build.window_count)
    if owner == NULL:
        discard(&sizes)
        return STATUS_NO_MEMORY
    if null_count == 0:
        discard(&column.validity)
    size = <int64_t*>sizes.data
    size[0] = column.octets.size
    _export_buffer(owner, 0, &column.validity, True)
    _export_buffer(owner, 1, &column.slots, False)
    _export_buffer(owner, 2, &column.octets, False)
    for slot in range(build.window_count):
        size[1 + slot] = build.windows[slot].size
        owner.buffers[3 + slot] = build.windows[slot].start
        owner.sizes[3 + slot] = build.windows[slot].size
    owner.owned[3] = sizes.data
    owner.buffers[3 + build.window_count] = sizes.data
    owner.sizes[3 + build.window_count] = 8 * (1 + build.window_count)
    owner.hold = hold
    column.null_count = 0
    return add_array(array, owner, build.count, null_count, 0)


cdef int _export_headers(ArrowArray* array, Build* build) noexcept nogil:
    """Make list<struct<key, value>>."""
    cdef ArrowArray* pairs
    cdef int64_t count = build.header_total
    cdef ArrayOwner* owner
    cdef Column* column = &build.columns[COLUMN_HEADERS]
    if reserve(&column.slots, 0) != STATUS_OK:
        return STATUS_NO_MEMORY
    owner = new_owner(2)
    if owner == NULL:
        return STATUS_NO_MEMORY
    _export_buffer(owner, 1, &column.slots, False)
    if add_array(array, owner, build.count, 0, 1) != STATUS_OK:
        return STATUS_NO_MEMORY
    pairs = array.children[0]
    if add_array(pairs, new_owner(1), count, 0, 2) != STATUS_OK:
        return STATUS_NO_MEMORY
    build.header_total = 0
    if open_offsets(&build.header_keys, 0, 4) or open_offsets(&build.header_values, 0, 4):
        return STATUS_NO_MEMORY
    if _export_column(pairs.children[0], &build.header_keys, count, 3) != STATUS_OK:
        return STATUS_NO_MEMORY
    return _export_column(pairs.children[1], &build.header_values, count, 3)


# ---- the builder ------------------------------------------------------------------------------

# Name, format, whether it may be null, and bytes of a row of fixed width; key and value as well as
# headers have their own.
_COLUMNS = (
    ("offset", "l", False, 8),
    ("timestamp", "tsm:UTC", True, 8),
    ("timestamp_type", "i", True, 4),
    ("key", "", True, 4),
    ("value", "", True, 4),
    ("headers", "+l", False, 4),
    ("topic", "u", False, 4),
    ("partition", "i", False, 4),
    ("producer_id", "l", True, 8),
    ("producer_epoch", "s", True, 2),
    ("sequence", "i", True, 4),
    ("leader_epoch", "i", True, 4),
)

COLUMN_NAMES = tuple([column[0] for column in _COLUMNS])

BINARY_FORMATS = {"binary": "z", "large_binary": "Z", "binary_view": "vz"}

_LAYOUTS = {"binary": LAYOUT_NARROW, "large_binary": LAYOUT_WIDE, "binary_view": LAYOUT_VIEWS}


def row_fields(columns not None, *, str binary_type="binary", bint text_keys=True):
    """
    Return the ArrowFields of the columns named.

    Args:
        columns: names, in the order of the result.
        binary_type: "binary", "large_binary" or "binary_view", for key and value.
        text_keys: whether keys of headers are utf8, else binary.
    """
    fields = []
    for name in columns:
        number = COLUMN_NAMES.index(name)
        kind, nullable = _COLUMNS[number][1:3]
        children = ()
        if name in ("key", "value"):
            kind = BINARY_FORMATS[binary_type]
        elif name == "headers":
            pair = (
                ArrowField("key", "u" if text_keys else "z", False),
                ArrowField("value", "z", True),
            )
            children = (ArrowField("element", "+s", False, pair),)
        fields.append(ArrowField(name, kind, nullable, children))
    return tuple(fields)


@cython.final
cdef class RowBuilder:
    """
    Columns of one batch after the other.

    Args:
        columns: names, in the order of the result.
        binary_type: "binary", "large_binary" or "binary_view", for key and value.
        text_keys: whether keys of headers are utf8, which has to be true of them.
        rows_max: rows of a batch at most.
        bytes_max: bytes of a batch at most, unless its first row alone has more.

    Thread-safety: none; one caller at a time.
    """

    cdef Build _build
    cdef MemoryPool* _pool
    cdef readonly tuple fields
    cdef tuple _numbers
    cdef bytes _topic
    cdef list _holds                   # data of the windows, in order
    cdef object _last_data

    def __cinit__(
        self,
        columns not None,
        *,
        str binary_type="binary",
        bint text_keys=True,
        int64_t rows_max,
        int64_t bytes_max,
    ):
        if rows_max < 1 or bytes_max < 1:
            raise ValueError(
                f"rows_max and bytes_max must be at least 1, got {rows_max} and {bytes_max}"
            )
        if bytes_max > 2**30 and (binary_type != "large_binary" or "headers" in columns):
            raise ValueError(
                "bytes_max must be at most 1 GiB, but for large_binary without headers, "
                f"got {bytes_max}"
            )
        self.fields = row_fields(columns, binary_type=binary_type, text_keys=text_keys)
        self._numbers = tuple([COLUMN_NAMES.index(name) for name in columns])
        for number in self._numbers:
            self._build.has_column[number] = True
            self._build.row_bytes += _COLUMNS[number][3]
        self._build.layout = _LAYOUTS[binary_type]
        self._build.text_keys = text_keys
        self._build.rows_max = rows_max
        self._build.bytes_max = bytes_max
        self._pool = new_pool(min(KEPT_BATCHES * min(bytes_max, 2**30), KEPT_BYTES_MAX))
        if self._pool == NULL:
            raise MemoryError("no memory for a pool")
        _use_pool_for_all(&self._build, self._pool)
        self._holds = []
        self.set_partition("", 0)

    def __dealloc__(self):
        _discard_all(&self._build)
        drop_pool(self._pool)
        free(self._build.windows)

    def __len__(self):
        return self._build.count

    @property
    def is_full(self):
        """True if the batch has its largest size."""
        return (
            self._build.count >= self._build.rows_max
            or self._build.size_bytes >= self._build.bytes_max
        )

    @property
    def can_add_runs(self):
        """True if `add_run` may be called."""
        return can_add_runs(&self._build)

    @property
    def needs_batch_runs(self):
        """True if a column has values of batch headers."""
        return needs_run_info(&self._build)

    def set_partition(self, str topic not None, int32_t partition):
        """Set topic and partition of the following rows."""
        self._topic = topic.encode("utf-8")
        if self._build.has_column[COLUMN_TOPIC]:
            self._build.row_bytes += len(self._topic) - self._build.topic_size
        self._build.topic = self._topic
        self._build.topic_size = len(self._topic)
        self._build.partition = partition

    cdef int _make_window(self, object data) except -1:
        """Reserve one more window, and hold its data until the batch is finished."""
        cdef Py_ssize_t count = self._build.window_count + 1
        cdef Window* windows = <Window*>realloc(
            self._build.windows, <size_t>count * sizeof(Window)
        )
        if windows == NULL:
            raise MemoryError(f"no memory for {count} windows")
        self._build.windows = windows
        if self._last_data is not data:
            self._holds.append(memoryview(data))
        return 0

    def add(
        self,
        data not None,
        RecordColumns columns not None,
        Py_ssize_t start,
        BatchRuns runs not None,
        *,
        bint lasting=False,
    ):
        """
        Add rows from `start` on until the batch is full; return the first row that is left.

        Releases the GIL for NOGIL_ROWS_MIN rows and more.

        Args:
            data: buffer of the columns.
            columns: rows that were decoded.
            start: the first to be added.
            runs: the batches that the rows came from; may be empty where `needs_batch_runs`
                is false.
            lasting: whether `data` stays as it is for good, and views may show it.

        Raises:
            CorruptRecordError: a row does not lie in the data.
            InvalidRecordError: the key of a header is not UTF-8; the rows before were added.
        """
        cdef Portion portion
        cdef Py_buffer view
        cdef bint is_continued = False
        cdef int status
        if not 0 <= start <= columns.count:
            raise IndexError(f"start must be in 0 to {columns.count}, got {start}")
        if needs_run_info(&self._build) and runs.rows() != columns.count:
            raise ValueError(f"runs must have {columns.count} rows, got {runs.rows()}")
        memset(&portion, 0, sizeof(Portion))
        portion.start = start
        lasting = lasting and self._build.layout == LAYOUT_VIEWS
        if lasting:
            is_continued = self._last_data is data
            self._make_window(data)
            self._last_data = data
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if columns.count - start < NOGIL_ROWS_MIN:
            status = add_rows_kernel(
                &self._build, &columns.pointers, <const uint8_t*>view.buf, view.len, runs.facts,
                runs.count, lasting, is_continued, columns.count, &portion,
            )
        else:
            with nogil:
                status = add_rows_kernel(
                    &self._build, &columns.pointers, <const uint8_t*>view.buf, view.len, runs.facts,
                    runs.count, lasting, is_continued, columns.count, &portion,
                )
        PyBuffer_Release(&view)
        check_object(data)
        if status == STATUS_NOT_UTF8:
            raise InvalidRecordError(
                f"the key of a header of the record at offset {columns.pointers.offset[start]} is"
                " not UTF-8; as binary it can be read"
            )
        raise_for_status(status, start)
        return portion.stop

    def add_run(self, ArrowBatchRun run not None):
        """
        Add the records of a run until the batch is full; return a status.

        OK after the last record, FULL if `finish` must be called first, COMPRESSED before batches
        whose records must be passed. Else the run stops at a batch that needs another method: its
        CRC is wrong (CRC), or only the slow path can decide (ELSEWHERE).

        Releases the GIL for NOGIL_SIZE_MIN bytes and more, and for compressed ones.

        Raises:
            CorruptRecordError: records changed after they were checked.
        """
        cdef bint is_continued = self._last_data is run.data
        cdef int status
        if not can_add_runs(&self._build):
            raise ValueError("sequences of a run need its offsets")
        if self._build.layout == LAYOUT_VIEWS and not run.state.compressed:
            self._make_window(run.data)
            self._last_data = run.data
        run.payloads.memory.pool = self._pool
        if run.state.end - run.state.batch < (
            NOGIL_COMPRESSED_MIN if run.state.compressed else NOGIL_SIZE_MIN
        ):
            status = add_run_kernel(&self._build, &run.state, &run.payloads, is_continued)
        else:
            with nogil:
                status = add_run_kernel(&self._build, &run.state, &run.payloads, is_continued)
        check_object(run.data)
        if status == STATUS_OK or status == STATUS_COMPRESSED:
            run.clear_decompressed()
        if status in (STATUS_OK, STATUS_FULL, STATUS_CRC, STATUS_COMPRESSED):
            return status
        if status == STATUS_NO_MEMORY or run.state.position != NULL:
            raise_for_status(status, run.state.batch - <const uint8_t*>run.view.buf)
        return STATUS_SLOW_PATH

    def finish(self):
        """Return the rows as a batch, and begin another."""
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef int64_t count = self._build.count
        cdef int slot
        cdef int number
        batch.fields = self.fields
        if add_array(&batch.array, new_owner(1), count, 0, len(self._numbers)) != STATUS_OK:
            raise MemoryError("no memory for an Arrow array")
        for slot in range(len(self._numbers)):
            number = self._numbers[slot]
            self._export(batch.array.children[slot], number)
        self._build.count = 0
        self._build.size_bytes = 0
        self._build.window_count = 0
        self._holds = []
        self._last_data = None
        return batch

    cdef int _export(self, ArrowArray* array, int number) except -1:
        cdef Column* column = &self._build.columns[number]
        cdef int status
        cdef bint cells = number == COLUMN_KEY or number == COLUMN_VALUE
        if cells and self._build.layout == LAYOUT_VIEWS:
            status = self._export_views(array, column)
        elif cells or number == COLUMN_TOPIC:
            open_offsets(column, 0, 8 if cells and self._build.layout == LAYOUT_WIDE else 4)
            status = _export_column(array, column, self._build.count, 3)
        elif number == COLUMN_HEADERS:
            open_offsets(column, 0, 4)
            status = _export_headers(array, &self._build)
        else:
            status = _export_column(array, column, self._build.count, 2)
        if status != STATUS_OK:
            raise MemoryError("no memory for an Arrow array")
        return 0

    cdef int _export_views(self, ArrowArray* array, Column* column) except -1:
        cdef PyObject* hold = NULL
        if self._holds:
            held = tuple(self._holds)
            Py_INCREF(held)
            hold = <PyObject*>held
        return _export_views(array, column, &self._build, hold)
