"""Columns out of anything that exports Arrow's C data interface, for the batch builder.

What comes is taken over, not copied: a column points into the producer's buffers and releases them
when it goes. Only timestamps are copied, for their units differ and nulls become -1.

The interface has no sizes of buffers, so that a producer has to be believed for them. Everything
else is checked before the first byte is read: types and names against what records have, numbers of
buffers and children, lengths and offsets against those of the parent, alignment; and for each cell
that its offsets rise and stay within the last one.

Thread-safety: a source belongs to one thread at a time; columns are immutable.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kafkalog._core.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from kafkalog._core.bytes_column cimport BytesCells, CellColumn, is_valid, no_cells
from kafkalog._core.headers_column cimport HeadersColumn

import numpy

from kafkalog.errors import InvalidRecordError

cdef enum Layout:
    LAYOUT_NULL
    LAYOUT_OFFSETS
    LAYOUT_WIDE_OFFSETS
    LAYOUT_VIEWS
    LAYOUT_FIXED

# Columns of a scan whose values an append assigns again.
COLUMNS_SET_BY_LOG = frozenset({
    "offset", "timestamp_type", "topic", "partition", "producer_id", "producer_epoch", "sequence",
    "leader_epoch",
})
# Milliseconds in a unit, or below 0 units in a millisecond.
_UNITS = {b"l": 1, b"tsm": 1, b"tss": 1000, b"tsu": -1000, b"tsn": -1_000_000}
_LAYOUTS = {
    b"n": LAYOUT_NULL, b"z": LAYOUT_OFFSETS, b"u": LAYOUT_OFFSETS, b"Z": LAYOUT_WIDE_OFFSETS,
    b"U": LAYOUT_WIDE_OFFSETS, b"vz": LAYOUT_VIEWS, b"vu": LAYOUT_VIEWS,
}
_TYPE_NAMES = {
    b"n": "null", b"b": "bool", b"c": "int8", b"C": "uint8", b"s": "int16", b"S": "uint16",
    b"i": "int32", b"I": "uint32", b"l": "int64", b"L": "uint64", b"e": "float16",
    b"f": "float32", b"g": "float64", b"z": "binary", b"Z": "large_binary", b"u": "string",
    b"U": "large_string", b"vz": "binary_view", b"vu": "string_view", b"tdD": "date32",
    b"tdm": "date64", b"+s": "struct", b"+l": "list", b"+L": "large_list", b"+m": "map",
}


@cython.final
cdef class SchemaRef:
    """A schema that is released with this object."""

    cdef ArrowSchema schema

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)


@cython.final
cdef class ArrayRef:
    """An array that is released with this object, and with the columns that point into it."""

    cdef ArrowArray array

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)


@cython.final
cdef class ArrowColumn(CellColumn):
    """
    A column of byte strings in an Arrow array.

    Thread-safety: immutable; the array stays held until the column is gone.
    """

    cdef ArrayRef _ref


@cython.final
cdef class ArrowRows:
    """
    One record batch.

    Attributes:
        count: its rows.
        keys, values, headers: columns, None where there are none.
        timestamps: int64 array of milliseconds, None where there are none.
    """

    cdef readonly Py_ssize_t count
    cdef readonly CellColumn keys
    cdef readonly CellColumn values
    cdef readonly HeadersColumn headers
    cdef readonly object timestamps

    def __len__(self):
        return self.count


@cython.final
cdef class ArrowSource:
    """
    The record batches of an object with `__arrow_c_array__` or `__arrow_c_stream__`.

    Iterate over it; each step gives ArrowRows. A table, a record batch or an array of structures
    must have columns `key` and `value`, or one of them, and may have `timestamp` and `headers`.

    Raises:
        TypeError: the object exports neither.
        InvalidRecordError: what it exports are no records, or contradicts itself.
        OSError: the stream failed.

    Thread-safety: one thread at a time.
    """

    cdef SchemaRef _schema
    cdef ArrowArrayStream _stream
    cdef ArrayRef _pending_array            # of a source that is one array
    cdef bint _is_stream

    def __cinit__(self, source not None):
        cdef ArrowArrayStream* stream
        cdef int error
        self._schema = SchemaRef()
        if hasattr(source, "__arrow_c_array__"):
            self._pending_array = _import_array(source, self._schema)
        elif hasattr(source, "__arrow_c_stream__"):
            capsule = source.__arrow_c_stream__()
            stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
            if stream.release == NULL:
                raise InvalidRecordError("the Arrow stream was released, or consumed before")
            memcpy(&self._stream, stream, sizeof(ArrowArrayStream))
            stream.release = NULL
            self._is_stream = True
            with nogil:                # the producer may wait for threads that need the GIL
                error = self._stream.get_schema(&self._stream, &self._schema.schema)
            self._check(error)
            if self._schema.schema.release == NULL:
                raise InvalidRecordError("the Arrow stream has no schema")
        else:
            raise TypeError(f"a {type(source).__name__} exports no Arrow array and no stream")

    def __dealloc__(self):
        if self._stream.release != NULL:
            self._stream.release(&self._stream)

    def __iter__(self):
        return self

    def __next__(self):
        cdef ArrayRef hold = self._pending_array
        cdef int error
        self._pending_array = None
        if self._is_stream:
            hold = ArrayRef()
            with nogil:
                error = self._stream.get_next(&self._stream, &hold.array)
            self._check(error)
            if hold.array.release == NULL:
                raise StopIteration
        elif hold is None:
            raise StopIteration
        return _rows_of(&self._schema.schema, hold)

    cdef int _check(self, int error) except -1:
        cdef const char* message
        if error == 0:
            return 0
        message = self._stream.get_last_error(&self._stream)
        text = "no reason given" if message == NULL else (<bytes>message).decode("utf-8", "replace")
        raise OSError(error, f"the Arrow stream failed: {text}")


def arrow_column(source not None):
    """
    Return the only column that an object with `__arrow_c_array__` exports, None for a structure.

    Raises:
        InvalidRecordError: it is no column of byte strings, or contradicts itself.
    """
    cdef SchemaRef schema = SchemaRef()
    cdef ArrayRef hold = _import_array(source, schema)
    if _format_of(&schema.schema) == b"+s":
        return None
    return _cells_of(&schema.schema, &hold.array, hold, 0, hold.array.length, "it")


def arrow_headers(source not None):
    """
    Return what an object with `__arrow_c_array__` exports as a column of headers.

    Raises:
        InvalidRecordError: it is no list of structures and no map, or contradicts itself.
    """
    cdef SchemaRef schema = SchemaRef()
    cdef ArrayRef hold = _import_array(source, schema)
    return _headers_of(&schema.schema, &hold.array, hold, 0, hold.array.length)


cdef ArrayRef _import_array(object source, SchemaRef schema):
    """Take over what a producer exports; its capsules are empty afterwards."""
    cdef ArrayRef hold = ArrayRef()
    cdef ArrowSchema* its_schema
    cdef ArrowArray* its_array
    schema_capsule, array_capsule = source.__arrow_c_array__()
    its_schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    its_array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
    if its_schema.release == NULL or its_array.release == NULL:
        raise InvalidRecordError("the Arrow array was released, or consumed before")
    memcpy(&schema.schema, its_schema, sizeof(ArrowSchema))
    its_schema.release = NULL
    memcpy(&hold.array, its_array, sizeof(ArrowArray))
    its_array.release = NULL
    return hold


# ---- arrays against their schema

cdef bytes _format_of(const ArrowSchema* schema):
    if schema.format == NULL:
        raise InvalidRecordError("an Arrow type has no format")
    return <bytes>schema.format


cdef str _name_of(const ArrowSchema* schema):
    return "" if schema.name == NULL else (<bytes>schema.name).decode("utf-8", "replace")


cdef int _check_array(
    const ArrowSchema* schema, const ArrowArray* array, int64_t buffers, int64_t children, str name
) except -1:
    """See that an array has the shape of its type; buffers below 0: so many or more."""
    if array.dictionary != NULL or schema.dictionary != NULL:
        raise InvalidRecordError(f"Arrow: {name} is dictionary-encoded; cast it to its values")
    # Longer ones are no memory, and what is counted with them below fits 64 bits.
    if not (0 <= array.length <= INT64_MAX // 64 and 0 <= array.offset <= INT64_MAX // 64):
        raise InvalidRecordError(f"Arrow: {name} has length {array.length}, offset {array.offset}")
    if (array.n_buffers < -buffers) if buffers < 0 else (array.n_buffers != buffers):
        raise InvalidRecordError(f"Arrow: {name} has {array.n_buffers} buffers")
    if array.n_children != children or schema.n_children != children:
        raise InvalidRecordError(f"Arrow: {name} has {array.n_children} children")
    if (array.n_buffers > 0 and array.buffers == NULL) or (
        children > 0 and (array.children == NULL or schema.children == NULL)
    ):
        raise InvalidRecordError(f"Arrow: {name} has no buffers or children where it counts some")
    if array.null_count < -1 or array.null_count > array.length:
        raise InvalidRecordError(f"Arrow: {name} counts {array.null_count} nulls")
    return 0


cdef int _check_range(
    const ArrowArray* array, int64_t first, int64_t count, str name
) except -1:
    if first < 0 or count < 0 or first > array.length - count:
        raise InvalidRecordError(
            f"Arrow: {name} has {array.length} cells, and {first + count} are needed"
        )
    return 0


cdef const uint8_t* _validity_of(const ArrowArray* array, str name) except? NULL:
    """Return the bitmap, NULL where nothing is null."""
    if array.null_count == 0:
        return NULL
    if array.buffers[0] == NULL and array.null_count > 0:
        raise InvalidRecordError(f"Arrow: {name} must have a validity bitmap, because it has nulls")
    return <const uint8_t*>array.buffers[0]


cdef int _check_no_nulls(
    const ArrowArray* array, int64_t first, int64_t count, str name
) except -1:
    cdef const uint8_t* validity = _validity_of(array, name)
    cdef int64_t bit
    if validity != NULL:
        for bit in range(array.offset + first, array.offset + first + count):
            if not is_valid(validity, bit):
                raise InvalidRecordError(f"Arrow: {name} may have no nulls, and row {bit} is one")
    return 0


cdef int _check_aligned(const void* buffer, uintptr_t size, str name) except -1:
    if <uintptr_t>buffer % size:
        raise InvalidRecordError(f"Arrow: a buffer of {name} is not aligned to {size} bytes")
    return 0


# ---- columns

cdef str _type_name(bytes type_format):
    """Return the name of a type; its format of the C interface where it is an unusual one."""
    name = _TYPE_NAMES.get(type_format)
    return name or f"the type {type_format.decode('ascii', 'replace')!r}"


cdef int _layout_of(bytes type_format, str name) except -1:
    if type_format.startswith(b"w:"):
        return LAYOUT_FIXED
    layout = _LAYOUTS.get(type_format)
    if layout is None:
        raise InvalidRecordError(
            f"Arrow: {name} must be binary or string (plain, large, as views) or fixed-size binary,"
            f" got {_type_name(type_format)}"
        )
    return layout


cdef ArrowColumn _cells_of(
    const ArrowSchema* schema, const ArrowArray* array, ArrayRef hold,
    int64_t first, int64_t count, str name,
):
    """Return `count` cells from `first` on as a column."""
    cdef ArrowColumn column = ArrowColumn()
    if schema == NULL or array == NULL:
        raise InvalidRecordError(f"Arrow: {name} is missing")
    cdef bytes type_format = _format_of(schema)
    cdef int layout = _layout_of(type_format, name)
    cdef int64_t buffers = 3
    if layout == LAYOUT_NULL:
        buffers = 0
    elif layout == LAYOUT_VIEWS:
        buffers = -3
    elif layout == LAYOUT_FIXED:
        buffers = 2
    _check_array(schema, array, buffers, 0, name)
    _check_range(array, first, count, name)
    column.cells = no_cells()
    column.count = count
    column._ref = hold
    if layout != LAYOUT_NULL and count > 0:
        column.cells.validity = _validity_of(array, name)
        column.cells.validity_shift = array.offset + first
        if layout == LAYOUT_VIEWS:
            _point_at_views(&column.cells, array, first, name)
        elif layout == LAYOUT_FIXED:
            _point_at_fixed(&column.cells, array, first, count, type_format, name)
        else:
            _point_at_offsets(&column.cells, array, first, count, layout, name)
    return column


cdef int _point_at_offsets(
    BytesCells* cells, const ArrowArray* array, int64_t first, int64_t count, int layout, str name
) except -1:
    cdef const void* offsets = array.buffers[1]
    if offsets == NULL:
        raise InvalidRecordError(f"Arrow: {name} has {count} cells and no offsets")
    if layout == LAYOUT_OFFSETS:
        _check_aligned(offsets, sizeof(int32_t), name)
        cells.offsets = <const int32_t*>offsets + array.offset + first
        cells.data_size = cells.offsets[count]
    else:
        _check_aligned(offsets, sizeof(int64_t), name)
        cells.wide_offsets = <const int64_t*>offsets + array.offset + first
        cells.data_size = cells.wide_offsets[count]
    if cells.data_size < 0:
        raise InvalidRecordError(f"Arrow: the last offset of {name} is {cells.data_size}")
    cells.data = <const uint8_t*>array.buffers[2]
    if cells.data == NULL:
        if cells.data_size > 0:
            raise InvalidRecordError(f"Arrow: the {cells.data_size} bytes of {name} are missing")
        # NULL means that all cells are null; an empty cell may have any other address.
        cells.data = <const uint8_t*>offsets
    return 0


cdef int _point_at_views(
    BytesCells* cells, const ArrowArray* array, int64_t first, str name
) except -1:
    """Validity, views, the buffers that they point into, and the sizes of those."""
    cdef int64_t slot
    cells.view_buffer_count = array.n_buffers - 3
    cells.view_buffers = <const uint8_t**>array.buffers + 2
    cells.view_sizes = <const int64_t*>array.buffers[array.n_buffers - 1]
    if array.buffers[1] == NULL:
        raise InvalidRecordError(f"Arrow: {name} has cells and no views")
    cells.views = <const uint8_t*>array.buffers[1] + 16 * (array.offset + first)
    cells.data = cells.views
    if cells.view_buffer_count == 0:
        return 0
    if cells.view_buffer_count > INT32_MAX or cells.view_sizes == NULL:
        raise InvalidRecordError(f"Arrow: {name} must have the sizes of its buffers")
    _check_aligned(cells.view_sizes, sizeof(int64_t), name)
    for slot in range(cells.view_buffer_count):
        if cells.view_sizes[slot] < 0 or (
            cells.view_sizes[slot] > 0 and cells.view_buffers[slot] == NULL
        ):
            raise InvalidRecordError(f"Arrow: buffer {slot} of {name} is missing")
    return 0


cdef int _point_at_fixed(
    BytesCells* cells, const ArrowArray* array, int64_t first, int64_t count, bytes type_format,
    str name,
) except -1:
    digits = type_format[2:]
    if not digits.isdigit() or len(digits) > 9:
        raise InvalidRecordError(f"Arrow: {name} has the type {type_format!r}")
    cells.width = int(digits)
    if array.buffers[1] == NULL and cells.width > 0:
        raise InvalidRecordError(f"Arrow: {name} has {count} cells, whose bytes are missing")
    if cells.width > 0 and array.offset + first + count > INT64_MAX // cells.width:
        raise InvalidRecordError(f"Arrow: {name} is larger than memory")
    cells.data_size = cells.width * count
    # Without a byte, any address will do that is not NULL.
    cells.data = <const uint8_t*>array.buffers
    if cells.width > 0:
        cells.data = <const uint8_t*>array.buffers[1] + cells.width * (array.offset + first)
    return 0


cdef object _timestamps_of(
    const ArrowSchema* schema, const ArrowArray* array, int64_t first, int64_t count
):
    """Return milliseconds in an int64 array, -1 for null."""
    cdef bytes type_format = _format_of(schema)
    cdef const uint8_t* validity
    cdef const uint8_t* source
    cdef int64_t unit, slot, value = 0
    cdef int64_t[::1] times
    known_unit = _UNITS.get(type_format.split(b":")[0])
    if known_unit is None:
        raise InvalidRecordError(
            f"Arrow: timestamp must be int64 (milliseconds) or a timestamp with a time zone, got"
            f" {_type_name(type_format)}"
        )
    if type_format.startswith(b"ts") and not type_format.partition(b":")[2]:
        raise InvalidRecordError(
            "Arrow: timestamp must have a time zone, got one without; cast it to timestamp(unit,"
            ' "UTC") if its times are UTC'
        )
    unit = known_unit
    _check_array(schema, array, 2, 0, "timestamp")
    _check_range(array, first, count, "timestamp")
    result = numpy.empty(count, numpy.int64)
    if count == 0:
        return result
    validity = _validity_of(array, "timestamp")
    if array.buffers[1] == NULL:
        raise InvalidRecordError("Arrow: timestamp has cells, whose bytes are missing")
    times = result
    # A copy of single bytes for the compiler: they need not be aligned.
    source = <const uint8_t*>array.buffers[1] + 8 * (array.offset + first)
    if unit == 1 and validity == NULL:
        memcpy(&times[0], source, <size_t>count * 8)
        return result
    for slot in range(count):
        memcpy(&value, source + 8 * slot, 8)
        if not is_valid(validity, array.offset + first + slot):
            value = -1
        elif unit > 1:
            if not -(INT64_MAX // unit) <= value <= INT64_MAX // unit:
                raise InvalidRecordError(f"Arrow: timestamp {value} does not fit milliseconds")
            value *= unit
        elif unit < 0:
            # Downwards, as a clock does. (C divides towards zero.)
            value = value // -unit - (1 if value % -unit < 0 else 0)
        times[slot] = value
    return result


cdef HeadersColumn _headers_of(
    const ArrowSchema* schema, const ArrowArray* array, ArrayRef hold, int64_t first, int64_t count
):
    """Return a list of structures, or a map, as a column of headers; None for none at all."""
    cdef HeadersColumn column = HeadersColumn.__new__(HeadersColumn)
    cdef bytes type_format = _format_of(schema)
    cdef const ArrowSchema* entry_schema
    cdef const ArrowArray* entries
    cdef int64_t start, end
    if type_format == b"n":
        return None
    if type_format not in (b"+l", b"+L", b"+m"):
        raise InvalidRecordError(
            "Arrow: headers must be a list of structures of a key and a value, or a map, got the"
            f" type {type_format.decode('ascii', 'replace')!r}"
        )
    _check_array(schema, array, 2, 1, "headers")
    _check_range(array, first, count, "headers")
    if count == 0:
        return column
    if array.buffers[1] == NULL:
        raise InvalidRecordError(f"Arrow: headers of {count} records have no offsets")
    if type_format == b"+L":
        _check_aligned(array.buffers[1], sizeof(int64_t), "headers")
        column.cells.wide_offsets = <const int64_t*>array.buffers[1] + array.offset + first
        start, end = column.cells.wide_offsets[0], column.cells.wide_offsets[count]
    else:
        _check_aligned(array.buffers[1], sizeof(int32_t), "headers")
        column.cells.offsets = <const int32_t*>array.buffers[1] + array.offset + first
        start, end = column.cells.offsets[0], column.cells.offsets[count]
    column.cells.validity = _validity_of(array, "headers")
    column.cells.validity_shift = array.offset + first
    entry_schema, entries = schema.children[0], array.children[0]
    if entry_schema == NULL or entries == NULL:
        raise InvalidRecordError("Arrow: headers have no entries")
    _check_array(entry_schema, entries, 1, 2, "headers' entries")
    if _format_of(entry_schema) != b"+s":
        raise InvalidRecordError("Arrow: headers must be a list of structures")
    if start < 0 or end < start or end > entries.length:
        raise InvalidRecordError(f"Arrow: headers {start} to {end} of {entries.length}")
    _check_no_nulls(entries, start, end - start, "headers' entries")
    # By place, for maps name theirs as they like: the key first.
    column.set_cells(
        _cells_of(entry_schema.children[0], entries.children[0], hold, entries.offset,
                  entries.length, "header keys"),
        _cells_of(entry_schema.children[1], entries.children[1], hold, entries.offset,
                  entries.length, "header values"),
    )
    column.count = count
    column.owner = hold
    return column


cdef ArrowRows _rows_of(const ArrowSchema* schema, ArrayRef hold):
    """Return the columns of a record batch, by their names."""
    cdef ArrowRows rows = ArrowRows()
    cdef const ArrowArray* array = &hold.array
    cdef const ArrowSchema* column_schema
    cdef int64_t slot
    if _format_of(schema) != b"+s":
        raise InvalidRecordError(
            "Arrow: the data must be a table, a record batch or structures, got the type"
            f" {_format_of(schema).decode('ascii', 'replace')!r}"
        )
    if schema.n_children < 0:
        raise InvalidRecordError(f"Arrow: {schema.n_children} columns")
    _check_array(schema, array, 1, schema.n_children, "the record batch")
    _check_no_nulls(array, 0, array.length, "the record batch")
    rows.count = array.length
    seen = set()
    for slot in range(schema.n_children):
        column_schema = schema.children[slot]
        if column_schema == NULL or array.children[slot] == NULL:
            raise InvalidRecordError(f"Arrow: column {slot} is missing")
        name = _name_of(column_schema)
        if name in seen:
            raise InvalidRecordError(f"Arrow: there are two columns {name!r}")
        seen.add(name)
        _read_column(rows, column_schema, array.children[slot], hold, name)
    if "key" not in seen and "value" not in seen:
        raise InvalidRecordError(f"Arrow: columns must include key or value, got {sorted(seen)}")
    return rows


cdef int _read_column(
    ArrowRows rows, const ArrowSchema* schema, const ArrowArray* array, ArrayRef hold, str name
) except -1:
    cdef int64_t first = hold.array.offset
    if name == "key":
        rows.keys = _cells_of(schema, array, hold, first, rows.count, name)
    elif name == "value":
        rows.values = _cells_of(schema, array, hold, first, rows.count, name)
    elif name == "timestamp":
        rows.timestamps = _timestamps_of(schema, array, first, rows.count)
    elif name == "headers":
        rows.headers = _headers_of(schema, array, hold, first, rows.count)
    elif name not in COLUMNS_SET_BY_LOG:
        raise InvalidRecordError(
            f"Arrow: no record has a {name!r}; key, value, timestamp and headers are taken"
        )
    return 0
