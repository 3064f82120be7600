"""Slots of the file of durable offsets, in memory; `kafkalog.state.durable_offsets` has the layout.

Thread-safety: methods of `SlotImage`, and `DurableSlot.retire`, under the guard; `collect_offset`
from any thread: it acquires the guard itself.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.byteorder cimport store_i64, store_u32
from kafkalog._core.crc32c cimport crc32c

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "unistd.h":
    int getpid() nogil

cdef enum:
    SLOT_BYTES = 64
    OFFSET_POSITION = 16
    CRC_POSITION = 60

# Of slots that have none any more.
cdef enum:
    NO_NUMBER = -1


@cython.final
cdef class SlotImage:
    """
    All slots of one file, and which of them a thread collects for one write.

    Args:
        guard: lock of the writer of the file.

    Attributes:
        content: the slots.
        collects: whether a thread collects slots.
    """

    def __cinit__(self, guard):
        self._acquire = guard.acquire
        self._release = guard.release
        self.content = bytearray()
        self._waiting = set()
        self._process = getpid()

    def __reduce__(self):
        raise TypeError("a SlotImage cannot be pickled or copied")

    @property
    def slot_count(self):
        """Number of slots, with free ones."""
        return PyByteArray_GET_SIZE(self.content) // SLOT_BYTES

    def set(self, Py_ssize_t number, bytes slot not None):
        """Set a slot, or add the next one."""
        if len(slot) != SLOT_BYTES or not 0 <= number <= self.slot_count:
            raise ValueError(f"slot must be the next of {SLOT_BYTES} bytes, got {number}")
        self.content[SLOT_BYTES * number : SLOT_BYTES * (number + 1)] = slot

    def set_offset(self, Py_ssize_t number, int64_t offset):
        """
        Set the offset of a slot, and its checksum.

        Raises:
            IndexError: there is no such slot.
        """
        self.set_slot_offset(number, offset)

    cdef int set_slot_offset(self, Py_ssize_t number, int64_t offset) except -1:
        cdef uint8_t* slot
        if not 0 <= number < PyByteArray_GET_SIZE(self.content) // SLOT_BYTES:
            raise IndexError(f"slot must be below {self.slot_count}, got {number}")
        slot = <uint8_t*>PyByteArray_AS_STRING(self.content) + SLOT_BYTES * number
        store_i64(slot + OFFSET_POSITION, offset)
        store_u32(slot + CRC_POSITION, crc32c(0, slot, CRC_POSITION))
        return 0

    def begin_collection(self):
        """Let the calling thread collect slots, unless another one does; return whether it does."""
        if self.collects:
            return False
        self.collects = True
        self._collector = PyThread_get_thread_ident()
        return True

    def collect(self, Py_ssize_t number):
        """Collect a slot, if this thread does; return whether it was collected."""
        if not self.collects or self._collector != PyThread_get_thread_ident():
            return False
        self._waiting.add(number)
        return True

    def end_collection(self):
        """Return the numbers of the collected slots, in order."""
        waiting, self._waiting = sorted(self._waiting), set()
        self.collects = False
        return waiting

    def clear(self):
        """Drop all slots: nothing is published any more."""
        self.content = bytearray()
        self._waiting.clear()


@cython.final
cdef class DurableSlot:
    """
    The slot of a partition, for offsets that one commit of many logs publishes.

    Args:
        image: the slots.
        number: its number.

    Attributes:
        number: its number; -1 once it was removed.
    """

    def __cinit__(self, SlotImage image not None, Py_ssize_t number):
        self._image = image
        self.number = number

    def __reduce__(self):
        raise TypeError("a DurableSlot cannot be pickled or copied")

    def retire(self):
        """Take no more offsets: the slot is another partition's, or free."""
        self.number = NO_NUMBER

    def collect_offset(self, int64_t offset):
        """
        Set the offset, to be written with the other slots that this thread collects.

        Returns:
            False, and nothing has changed, if this thread collects none, or the slot was removed.
        """
        return self.collect(offset)

    cdef bint collect(self, int64_t offset) except -1:
        cdef SlotImage image = self._image
        # Without the guard: in a forked child a thread of the parent may have it.
        if (
            not image.collects or image._collector != PyThread_get_thread_ident()
            or image._process != getpid()
        ):
            return False
        image._acquire()
        try:
            if not 0 <= self.number < PyByteArray_GET_SIZE(image.content) // SLOT_BYTES:
                return False
            image.set_slot_offset(self.number, offset)
            image._waiting.add(self.number)
        finally:
            image._release()
        return True
