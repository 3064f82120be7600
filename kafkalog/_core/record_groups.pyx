"""Records in lists, checked, measured, and grouped by the partition of their key.

Pure functions of their arguments; the lists of the caller are not changed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from kafkalog._core.murmur2 cimport murmur2, partition_of_hash

cdef enum:
    # More than the lengths, deltas and attributes of any record without headers take.
    RECORD_OVERHEAD = 24
    NO_KEY = -1

RECORD_OVERHEAD_BYTES = RECORD_OVERHEAD


@cython.final
cdef class RecordGroup:
    """
    Records of one partition.

    Attributes:
        partition: the partition of the keys; -1 if any may have the records.
        keys: the keys, None for records without keys.
        values: the values.
        rows: numbers of the records in the lists of the caller, in order.
        size_bytes: an upper bound of the bytes of the records in a batch, without its header.
    """

    def __len__(self):
        return len(self.values)

    def bytes_between(self, Py_ssize_t start, Py_ssize_t stop):
        """Return an upper bound of the bytes of some records in a batch."""
        cdef int64_t size = 0
        cdef Py_ssize_t slot
        if not 0 <= start <= stop <= len(self.values):
            raise IndexError(f"slots must be in 0 to {len(self.values)}, got {start} to {stop}")
        for slot in range(start, stop):
            size += size_of(self.keys, self.values, slot)
        return size


cdef int64_t size_of(list keys, list values, Py_ssize_t slot) noexcept:
    """Return an upper bound of the bytes of a checked record."""
    cdef int64_t size = RECORD_OVERHEAD
    cdef PyObject* value = PyList_GET_ITEM(values, slot)
    cdef PyObject* key
    if value != <PyObject*>None:
        size += PyBytes_GET_SIZE(<object>value)
    if keys is not None:
        key = PyList_GET_ITEM(keys, slot)
        if key != <PyObject*>None:
            size += PyBytes_GET_SIZE(<object>key)
    return size


def check_fields(list fields not None, str name not None):
    """Raise TypeError unless all fields are bytes or None."""
    cdef Py_ssize_t row
    cdef PyObject* field
    for row in range(PyList_GET_SIZE(fields)):
        field = PyList_GET_ITEM(fields, row)
        if field != <PyObject*>None and not PyBytes_CheckExact(<object>field):
            raise TypeError(
                f"{name}[{row}] must be bytes or None, got {type(<object>field).__name__}"
            )


def whole_group(list keys, list values not None):
    """
    Return all records as one group for any partition, which has the lists of the caller.

    Args:
        keys: bytes or None for each record, None for no keys.
        values: the same.

    Raises:
        TypeError: a key or value is not bytes or None.
        ValueError: the lists have different lengths.
    """
    cdef RecordGroup made = RecordGroup.__new__(RecordGroup)
    check_lists(keys, values)
    made.partition = NO_KEY
    made.keys, made.values = keys, values
    made.rows = range(PyList_GET_SIZE(values))
    made.size_bytes = made.bytes_between(0, PyList_GET_SIZE(values))
    return made


def group_records(list keys not None, list values not None, int32_t partition_count):
    """
    Return the groups of records, in the order of their first records.

    Args:
        keys: bytes or None for each record.
        values: the same.
        partition_count: number of partitions, at least 1.

    Raises:
        TypeError: a key or value is not bytes or None.
        ValueError: the lists have different lengths, or there are no partitions.
    """
    cdef Py_ssize_t count = PyList_GET_SIZE(values)
    cdef Py_ssize_t row, place, mask = 16
    cdef int32_t partition
    cdef list groups = []
    cdef RecordGroup group
    cdef PyObject* key
    cdef int32_t* slots
    if partition_count < 1:
        raise ValueError(f"partition_count must be >= 1, got {partition_count}")
    check_lists(keys, values)
    while mask < 2 * count:
        mask *= 2
    # Open addressing: number of a group plus one, by its partition.
    slots = <int32_t*>calloc(<size_t>mask, sizeof(int32_t))
    if slots == NULL:
        raise MemoryError
    mask -= 1
    try:
        for row in range(count):
            key = PyList_GET_ITEM(keys, row)
            partition = NO_KEY
            if key != <PyObject*>None:
                partition = partition_of_hash(
                    murmur2(
                        <const uint8_t*>PyBytes_AS_STRING(<object>key),
                        PyBytes_GET_SIZE(<object>key),
                    ),
                    partition_count,
                )
            place = partition & mask
            while slots[place] != 0:
                group = <RecordGroup>PyList_GET_ITEM(groups, slots[place] - 1)
                if group.partition == partition:
                    break
                place = (place + 1) & mask
            else:
                group = RecordGroup.__new__(RecordGroup)
                group.partition = partition
                group.keys, group.values, group.rows = [], [], []
                groups.append(group)
                slots[place] = <int32_t>len(groups)
            group.keys.append(<object>key)
            group.values.append(<object>PyList_GET_ITEM(values, row))
            (<list>group.rows).append(row)
            group.size_bytes += size_of(keys, values, row)
    finally:
        free(slots)
    return groups


cdef int check_lists(list keys, list values) except -1:
    if keys is not None:
        if PyList_GET_SIZE(keys) != PyList_GET_SIZE(values):
            raise ValueError(
                f"keys must be as many as values, {len(values)}, got {len(keys)}"
            )
        check_fields(keys, "keys")
    check_fields(values, "values")
    return 0
