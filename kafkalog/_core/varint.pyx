"""Entry points to the varint leaves (ByteUtils in Kafka), for tests, tools and the docs.

Hot paths cimport the inline leaves of varint.pxd; these functions cost a Python call each.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.layout cimport VARLONG_SIZE_MAX
from kafkalog._core.status cimport STATUS_INTERNAL, STATUS_OK, raise_for_status
from kafkalog._core.varint cimport (
    read_unsigned_varint,
    read_unsigned_varlong,
    read_varint,
    read_varlong,
    write_unsigned_varlong,
    write_varint,
    write_varlong,
)

cdef enum:
    KIND_VARINT = 0
    KIND_VARLONG = 1
    KIND_UNSIGNED_VARINT = 2
    KIND_UNSIGNED_VARLONG = 3


cdef int _read_kernel(Cursor* cursor, int kind, int64_t* value) noexcept nogil:
    cdef int32_t small = 0
    cdef uint32_t unsigned_small = 0
    cdef int status
    if kind == KIND_VARINT:
        status = read_varint(cursor, &small)
        value[0] = small
        return status
    if kind == KIND_VARLONG:
        return read_varlong(cursor, value)
    if kind == KIND_UNSIGNED_VARINT:
        status = read_unsigned_varint(cursor, &unsigned_small)
        value[0] = unsigned_small
        return status
    if kind == KIND_UNSIGNED_VARLONG:
        return read_unsigned_varlong(cursor, <uint64_t*>value)
    return STATUS_INTERNAL


cdef _decode(const uint8_t[::1] data, Py_ssize_t position, int kind):
    cdef Py_ssize_t size = data.shape[0]
    cdef int64_t value = 0
    cdef Cursor cursor
    cdef uint8_t empty = 0
    cdef const uint8_t* start = &empty
    if position < 0 or position > size:
        raise IndexError(f"position {position} is outside the {size} bytes given")
    if size > 0:
        start = &data[0]
    cursor.position = start + position
    cursor.end = start + size
    cdef int status = _read_kernel(&cursor, kind, &value)
    if status != STATUS_OK:
        raise_for_status(status, position)
    return value, <Py_ssize_t>(cursor.position - start)


def decode_varint(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Return (value, position after it) of the zigzag int32 at `position`."""
    return _decode(data, position, KIND_VARINT)


def decode_varlong(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Return (value, position after it) of the zigzag int64 at `position`."""
    return _decode(data, position, KIND_VARLONG)


def decode_unsigned_varint(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Return (value, position after it) of the unsigned 32-bit varint at `position`."""
    return _decode(data, position, KIND_UNSIGNED_VARINT)


def decode_unsigned_varlong(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Return (value, position after it) of the unsigned 64-bit varint at `position`."""
    value, end = _decode(data, position, KIND_UNSIGNED_VARLONG)
    return value & 0xffffffffffffffff, end


def encode_varint(int32_t value):
    """Return the shortest zigzag encoding of an int32: 1 to 5 bytes."""
    cdef uint8_t[VARLONG_SIZE_MAX] buffer
    cdef uint8_t* end = write_varint(buffer, value)
    return buffer[:end - buffer]


def encode_varlong(int64_t value):
    """Return the shortest zigzag encoding of an int64: 1 to 10 bytes."""
    cdef uint8_t[VARLONG_SIZE_MAX] buffer
    cdef uint8_t* end = write_varlong(buffer, value)
    return buffer[:end - buffer]


def encode_unsigned_varint(uint32_t value):
    """Return the shortest encoding of an unsigned 32-bit integer: 1 to 5 bytes."""
    return encode_unsigned_varlong(value)


def encode_unsigned_varlong(uint64_t value):
    """Return the shortest encoding of an unsigned 64-bit integer: 1 to 10 bytes."""
    cdef uint8_t[VARLONG_SIZE_MAX] buffer
    cdef uint8_t* end = write_unsigned_varlong(buffer, value)
    return buffer[:end - buffer]
