"""Direct decoding of the batches of one run into Arrow columns."""

cimport cython
from kafkalog._core.payloads cimport Payloads
from kafkalog._core.row_columns cimport Build
from kafkalog._core.arrow_decode_step cimport RunState


cdef enum:
    # In addition to STATUS_*: the batch needs the general path.
    STATUS_SLOW_PATH = -2


@cython.no_gc
@cython.final
cdef class ArrowBatchRun:
    cdef RunState state
    cdef Py_buffer view
    cdef Payloads payloads
    cdef readonly object data
    cdef Py_buffer _decompressed_view              # memory of `payloads`

    cdef int clear_decompressed(self) except -1


cdef bint can_add_runs(const Build* build) noexcept nogil
cdef int add_run_kernel(
    Build* build, RunState* run, Payloads* payloads, bint is_continued
) noexcept nogil
