"""Conversion of timestamps that a caller gives; the one place that decides what a timestamp is.

Accepted: Python and NumPy integers (milliseconds since 1970) and aware datetimes from 1970 on.
Refused, with the name of the argument: floats, booleans, naive datetimes, `datetime64` (which has
no time zone and many units), and everything else.

Thread-safety: functions are pure.
"""

from cpython.sequence cimport PySequence_Fast
from libc.stdint cimport int64_t

from datetime import datetime, timedelta, timezone

import numpy

cdef extern from "Python.h":
    bint PyBool_Check(object value)
    bint PyIndex_Check(object value)
    object PyNumber_Index(object value)

cdef str ACCEPTED = "an int of milliseconds since 1970 or a datetime with a time zone"

cdef object EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
cdef object MICROSECOND = timedelta(microseconds=1)


cdef int64_t _convert_datetime(object value, str name, bint round_up) except? -2:
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(
            f"{name} must have a time zone, got {value!r}; use astimezone() for local time or"
            " replace(tzinfo=UTC)"
        )
    # Whole microseconds: exact, as a float of seconds is not.
    ms, rest = divmod((value - EPOCH) // MICROSECOND, 1000)
    if ms < 0:
        raise ValueError(f"{name} must not be before 1970, got {value!r}")
    return ms + (1 if round_up and rest else 0)


cdef int64_t convert_timestamp(object value, str name, bint round_up) except? -2:
    if PyLong_CheckExact(value):
        return <int64_t>value
    if PyIndex_Check(value) and not PyBool_Check(value):
        return <int64_t>PyNumber_Index(value)
    if isinstance(value, datetime):
        return _convert_datetime(value, name, round_up)
    message = f"{name} must be {ACCEPTED}, got {type(value).__name__} {value!r:.80}"
    if isinstance(value, float):
        message += "; of time.time(), that is int(time.time() * 1000)"
    raise TypeError(message)


def to_timestamp_ms(value, str name="timestamp_ms", *, bint round_up=False):
    """
    Return a timestamp that a caller gives in milliseconds since 1970.

    Args:
        value: an int of milliseconds, also of NumPy, or a datetime with a time zone, from 1970 on.
        name: the argument that errors name.
        round_up: whether the part of a datetime below a millisecond counts as one more; where a
            search is for times at or above it.

    Raises:
        TypeError: a float, a bool, or another type.
        ValueError: a datetime without a time zone, or before 1970.
        OverflowError: an int that does not fit 64 bits.
    """
    return convert_timestamp(value, name, round_up)


def to_timestamps_ms(values, str name="timestamps", *, bint round_up=False):
    """
    Return timestamps that a caller gives as a contiguous int64 array of milliseconds.

    Arguments and errors as for `to_timestamp_ms`; `values` are an array of one dimension, or a
    sequence of what that takes.
    """
    cdef int64_t[::1] target
    cdef object item
    cdef Py_ssize_t slot = 0
    if not isinstance(values, (list, tuple)):
        found = numpy.asarray(values)
        if found.ndim != 1:
            raise ValueError(f"{name} must have one dimension, got {found.ndim}")
        if found.dtype.kind != "O":
            return _checked_array(found, name)
        values = found.tolist()
    values = PySequence_Fast(values, "a sequence is expected")
    made = numpy.empty(len(values), numpy.int64)
    target = made
    for item in values:
        target[slot] = (
            <int64_t>item if PyLong_CheckExact(item)
            else convert_timestamp(item, name, round_up)
        )
        slot += 1
    return made


cdef object _checked_array(object found, str name):
    """Return an array of numbers as int64; refuse other types, and numbers that do not fit."""
    cdef str kind = found.dtype.kind
    if found.size == 0 and kind == "f":
        kind = "i"                     # type of an empty sequence in NumPy
    if kind == "M":
        raise TypeError(
            f"{name} must be int64 milliseconds, got {found.dtype}, which has no time zone; of UTC,"
            ' that is astype("datetime64[ms]").astype("int64")'
        )
    if kind not in "iu":
        raise TypeError(f"{name} must be integers of milliseconds since 1970, got {found.dtype}")
    if kind == "u" and found.size and found.max() > numpy.iinfo(numpy.int64).max:
        raise OverflowError(f"{name} must fit 64 bits, got {found.max()}")
    return numpy.ascontiguousarray(found, dtype=numpy.int64)
