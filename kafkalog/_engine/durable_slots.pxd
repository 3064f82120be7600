"""Slots of the file of durable offsets."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class SlotImage:
    cdef readonly bytearray content
    cdef readonly bint collects
    cdef object _acquire
    cdef object _release
    cdef set _waiting
    cdef unsigned long _collector
    cdef int _process

    cdef int set_slot_offset(self, Py_ssize_t number, int64_t offset) except -1


@cython.final
cdef class DurableSlot:
    cdef readonly Py_ssize_t number
    cdef SlotImage _image

    cdef bint collect(self, int64_t offset) except -1
