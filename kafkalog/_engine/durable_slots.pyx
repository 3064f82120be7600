"""Slots of the file of durable offsets, in memory; `kafkalog.state.durable_offsets` has the layout.

Thread-safety: none; under the lock of the file's writer.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.byteorder cimport store_i64, store_u32
from kafkalog._core.crc32c cimport crc32c

cdef enum:
    SLOT_BYTES = 64
    OFFSET_POSITION = 16
    CRC_POSITION = 60


def set_slot_offset(bytearray slots not None, Py_ssize_t number, int64_t offset):
    """
    Set the offset of a slot, and its checksum.

    Raises:
        IndexError: there is no such slot.
    """
    cdef uint8_t* slot
    if number < 0 or PyByteArray_GET_SIZE(slots) // SLOT_BYTES <= number:
        raise IndexError(f"slot must be below {len(slots) // SLOT_BYTES}, got {number}")
    slot = <uint8_t*>PyByteArray_AS_STRING(slots) + SLOT_BYTES * number
    store_i64(slot + OFFSET_POSITION, offset)
    store_u32(slot + CRC_POSITION, crc32c(0, slot, CRC_POSITION))
