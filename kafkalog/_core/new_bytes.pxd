"""Bytes object that a kernel fills: made with the largest size, cut to the written size.

The unwritten part costs address space, hardly ever memory, and is freed at the cut.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF


cdef extern from "Python.h":
    PyObject* allocate_bytes "PyBytes_FromStringAndSize"(
        const char* data, Py_ssize_t size) except NULL
    int _resize_bytes "_PyBytes_Resize"(PyObject** made, Py_ssize_t size) except -1
    char* start_of_bytes "PyBytes_AS_STRING"(PyObject* made) noexcept nogil


cdef inline bytes cut_bytes(PyObject* made, Py_ssize_t size):
    """Return what allocate_bytes made, with its first `size` bytes; `made` is consumed."""
    _resize_bytes(&made, size)
    cdef bytes whole = <bytes>made
    Py_DECREF(whole)
    return whole
