"""Timestamps that a caller gives: an int of milliseconds since 1970, or an aware datetime.

A float is never one: seconds as `time.time()` returns them would be stored as a time in January
1970, and retention would delete the record.
"""

from libc.stdint cimport int64_t


cdef extern from *:
    """
    /* Ints of two digits are the times from 1970 to 2^60 ms, and -1 is none: nearly all callers
       give these. A call for each of them costs more than the rest of the check. */
    static inline int is_plain_timestamp(PyObject *value, int64_t *milliseconds) {
    #if PY_VERSION_HEX < 0x030C0000
        if (PyLong_CheckExact(value)) {
            const digit *digits = ((PyLongObject *)value)->ob_digit;
            const Py_ssize_t count = Py_SIZE(value);
            if (count == 2) {
                *milliseconds = ((int64_t)digits[1] << PyLong_SHIFT) | (int64_t)digits[0];
                return 1;
            }
            if (count >= -1 && count <= 1) {
                *milliseconds = (int64_t)count * (int64_t)digits[0];
                return 1;
            }
        }
    #else
        (void)value;
        (void)milliseconds;
    #endif
        return 0;
    }
    """
    bint is_plain_timestamp(object value, int64_t* milliseconds) noexcept


cdef extern from "Python.h":
    bint PyLong_CheckExact(object value)


cdef int64_t convert_timestamp(object value, str name, bint round_up) except? -2


cdef inline int64_t timestamp_from(object value, str name) except? -2:
    """Return milliseconds; the exact type is checked first, since nearly all values are ints."""
    cdef int64_t milliseconds = 0
    if is_plain_timestamp(value, &milliseconds):
        return milliseconds
    return convert_timestamp(value, name, False)
