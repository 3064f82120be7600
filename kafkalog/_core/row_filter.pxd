"""Filter of the rows of a scan: fields of their batches, and which rows are requested."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


# Fields of a batch that apply to all its records.
cdef struct RowRunInfo:
    int64_t end_row                    # one past its last row
    int64_t base_offset
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence
    int16_t producer_epoch
    int16_t timestamp_type


@cython.final
cdef class BatchRuns:
    cdef RowRunInfo* facts
    cdef Py_ssize_t count
    cdef Py_ssize_t _capacity

    cdef RowRunInfo* _next(self) except NULL
    cdef int64_t rows(self) noexcept
