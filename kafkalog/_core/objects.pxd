"""Python objects of decoded fields: bytes or None, put straight into new lists and tuples.

Inline, because each is a few instructions around CPython's allocator. Callers hold the GIL.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, uint8_t

from kafkalog._core.copying cimport copy_bytes


cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    void store_in_list "PyList_SET_ITEM"(PyObject* target, Py_ssize_t slot, PyObject* item)
    void store_in_tuple "PyTuple_SET_ITEM"(PyObject* target, Py_ssize_t slot, PyObject* item)
    char* bytes_address "PyBytes_AS_STRING"(PyObject* field)


cdef inline PyObject* new_field(const uint8_t* data, int32_t size) except NULL:
    """Return a new reference to a field's bytes, or to None; to be stored, never counted again."""
    if size < 0:
        Py_INCREF(None)
        return <PyObject*>None
    if size <= 1:
        return new_bytes(<const char*>data, size)      # CPython shares these objects
    cdef PyObject* field = new_bytes(NULL, size)
    copy_bytes(<uint8_t*>bytes_address(field), data, size)
    return field


cdef inline void set_item(list target, Py_ssize_t slot, object item) noexcept:
    """Fill a slot of a new list; the item's reference is counted here."""
    Py_INCREF(item)
    store_in_list(<PyObject*>target, slot, <PyObject*>item)


cdef extern from "Python.h":
    ctypedef struct TupleType "PyTypeObject":
        object tp_new(type kind, tuple arguments, PyObject* keywords)
    TupleType PyTuple_Type
    PyObject* PyTuple_GetItem(object fields, Py_ssize_t slot) except NULL


cdef inline object new_named_tuple(type kind, tuple fields):
    """Return what `kind(*fields)` does, without the Python function that a named tuple has."""
    return PyTuple_Type.tp_new(kind, (fields,), NULL)


cdef inline object field_of(object fields, Py_ssize_t slot):
    """Return `fields[slot]` of a named tuple, without asking its type how it is indexed."""
    return <object>PyTuple_GetItem(fields, slot)
