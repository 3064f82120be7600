"""The state that decides whether a log takes appends."""

cimport cython


@cython.final
cdef class GateState:
    cdef readonly bint is_closed
    cdef readonly bint is_read_only
    cdef readonly bint is_idle
    cdef readonly bint has_delayed
    cdef readonly object offline_error
    cdef readonly int process_id

    cdef bint can_append(self) noexcept
    cdef bint can_write(self) noexcept
