"""Batches of one run, on their way straight into Arrow columns."""

cimport cython
from kafkalog._core.payloads cimport Payloads
from kafkalog._core.row_columns cimport Build
from kafkalog._core.row_step cimport RunState


cdef enum:
    # Beside STATUS_*: the batch is one for the ways that take anything.
    STATUS_ELSEWHERE = -2


@cython.no_gc
@cython.final
cdef class BatchRun:
    cdef RunState state
    cdef Py_buffer view
    cdef Payloads payloads
    cdef readonly object data
    cdef Py_buffer _given              # what `payloads` points into

    cdef int take_back(self) except -1


cdef bint takes_runs(const Build* build) noexcept nogil
cdef int add_run_kernel(
    Build* build, RunState* run, Payloads* payloads, bint goes_on
) noexcept nogil
