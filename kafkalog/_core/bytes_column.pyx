"""A column of byte strings that the caller holds in Arrow's layout: input of the batch builder.

One run of bytes, `count + 1` offsets into it (int32 or int64, native order), and optionally a
validity bitmap, least significant bit first, 0 for null. This is the memory of a pyarrow `binary`,
`large_binary` or `string` array, and two lines of NumPy make it. Nothing is copied; offsets are
checked when a cell is loaded, not here, so that making a column costs nothing per row.

Thread-safety: immutable; the buffers stay held until the column is gone.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kafkalog._core.timestamps cimport PyLong_CheckExact, timestamp_from


cdef class CellColumn:
    """
    A column of byte strings, wherever they are: of buffers, or of an Arrow array.

    Thread-safety: immutable; what the cells point to stays held until the column is gone.
    """

    def __len__(self):
        return self.count


cdef class BytesColumn(CellColumn):
    """
    A read-only column of byte strings, some of them perhaps null, over buffers of the caller.

    Args:
        data: the bytes of all cells.
        offsets: contiguous int32 or int64, one more than there are cells, never falling.
        validity: bitmap with at least one bit a cell, or None if no cell is null.

    An Arrow array that begins at a slot above 0 is given whole; `extend_columns` takes the range.
    """

    def __cinit__(self, data not None, offsets not None, validity=None):
        self.cells = no_cells()
        PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
        load_offsets(offsets, &self._offsets)
        self.count = self._offsets.len // self._offsets.itemsize - 1
        load_validity(validity, &self._validity, self.count)
        self.cells.data = <const uint8_t*>self._data.buf
        if self.cells.data == NULL:
            # NULL means that all cells are null; an empty cell may have any other address.
            self.cells.data = <const uint8_t*>self._offsets.buf
        self.cells.data_size = self._data.len
        self.cells.validity = <const uint8_t*>self._validity.buf
        if self._offsets.itemsize == 4:
            self.cells.offsets = <const int32_t*>self._offsets.buf
        else:
            self.cells.wide_offsets = <const int64_t*>self._offsets.buf

    def __dealloc__(self):
        PyBuffer_Release(&self._data)
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._validity)


cdef int load_offsets(object offsets, Py_buffer* view) except -1:
    """Take a buffer of offsets, or raise; the caller releases it in both cases."""
    PyObject_GetBuffer(offsets, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    kind = memoryview(offsets).format.lstrip("@=")
    if view.ndim != 1 or kind not in ("i", "l", "q") or view.itemsize not in (4, 8):
        raise TypeError(f"offsets must be one row of int32 or int64, not of format {kind!r}")
    if <uintptr_t>view.buf % <uintptr_t>view.itemsize:
        raise ValueError("offsets must be aligned to their size")
    if view.len == 0:
        raise ValueError("offsets must hold one number more than there are cells")
    return 0


cdef int load_validity(object validity, Py_buffer* view, Py_ssize_t count) except -1:
    """Take a bitmap, if there is one, or raise; the caller releases it in both cases."""
    if validity is not None:
        PyObject_GetBuffer(validity, view, PyBUF_SIMPLE)
        if view.len < (count + 7) // 8:
            raise ValueError(
                f"validity must have a bit for each of {count} cells, "
                f"got {view.len} bytes"
            )
    return 0


cdef class TimestampColumn:
    """
    One timestamp for all rows, or one a row from an int64 array.

    Thread-safety: immutable.
    """

    def __cinit__(self, timestamps):
        cdef char kind
        if PyLong_CheckExact(timestamps) or not PyObject_CheckBuffer(timestamps):
            self.constant = timestamp_from(timestamps, "timestamps")
            self.count = -1
            return
        # Not a typed view: making one takes longer than a batch of a dozen records.
        PyObject_GetBuffer(timestamps, &self._view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        if self._view.ndim == 0:       # a NumPy scalar
            self.constant = timestamp_from(timestamps, "timestamps")
            self.count = -1
            return
        kind = self._view.format[0] if self._view.format != NULL else 0
        if self._view.ndim != 1 or self._view.itemsize != 8 or not (
            (kind == c"l" or kind == c"q") and self._view.format[1] == 0
        ):
            raise ValueError("timestamps must be one row of int64 in native order")
        if <uintptr_t>self._view.buf % 8:
            raise ValueError("timestamps must be aligned to their size")
        self.count = self._view.len // 8
        if self.count > 0:
            self.each = <const int64_t*>self._view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    cdef int check(self, Py_ssize_t count) except -1:
        if 0 <= self.count < count:
            raise ValueError(f"timestamps must be one per record, {count}, got {self.count}")
        return 0
