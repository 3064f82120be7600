"""Offsets of records that were sent together, for each group of consecutive records.

Pure functions of their arguments.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from kafkalog._core.objects cimport field_of, new_named_tuple

# A range that is being collected.
cdef struct OpenRange:
    int32_t place
    int64_t offset
    int64_t count


cdef int load_rows(list batches, SentRow* rows, Py_ssize_t total) except -1:
    """Set the batch and the offset of each record that a batch has."""
    cdef Py_ssize_t place
    cdef int64_t offset, row
    cdef object numbers
    for place in range(PyList_GET_SIZE(batches)):
        batch = <object>PyList_GET_ITEM(batches, place)
        if not isinstance(batch, tuple) or not isinstance(field_of(batch, 2), tuple):
            raise TypeError(f"batches must be tuples with a range, got {batch!r}")
        numbers = field_of(batch, 3)
        offset = field_of(field_of(batch, 2), 1)
        for row in numbers:
            if not 0 <= row < total:
                raise IndexError(f"row must be below {total}, got {row}")
            rows[row].place = <int32_t>(place + 1)
            rows[row].offset = offset
            offset += 1
    return 0


cdef list ranges_of(list owners, const OpenRange* ranges, Py_ssize_t count, type kind):
    cdef list found = []
    cdef Py_ssize_t each
    for each in range(count):
        owner = <object>PyList_GET_ITEM(owners, ranges[each].place - 1)
        found.append(new_named_tuple(
            kind,
            (field_of(owner, 0), ranges[each].offset, ranges[each].count, field_of(owner, 1)),
        ))
    return found


cdef list split_rows(const SentRow* rows, list owners, list counts, type kind):
    """
    Return the ranges of each group of consecutive rows, in the order of their first rows.

    Args:
        rows: as many as all groups have.
        owners: a tuple for each place: the partition, and whether its records are duplicates.
        counts: the number of rows of each group.
        kind: named tuple of a range.
    """
    cdef Py_ssize_t row = 0, stop, place, open_count
    cdef OpenRange* ranges = <OpenRange*>malloc(
        <size_t>(PyList_GET_SIZE(owners) + 1) * sizeof(OpenRange)
    )
    # Number of the open range of a place, plus the number of ranges before this group, plus one.
    cdef int64_t* slots = <int64_t*>calloc(<size_t>(PyList_GET_SIZE(owners) + 1), sizeof(int64_t))
    cdef int64_t before = 0, slot
    cdef list found = []
    try:
        if ranges == NULL or slots == NULL:
            raise MemoryError
        for count in counts:
            stop = row + <Py_ssize_t>count
            open_count = 0
            while row < stop:
                place = rows[row].place
                if place:
                    slot = slots[place] - before - 1
                    if slot < 0:
                        slots[place] = before + open_count + 1
                        ranges[open_count].place = <int32_t>place
                        ranges[open_count].offset = rows[row].offset
                        ranges[open_count].count = 1
                        open_count += 1
                    else:
                        ranges[slot].count += 1
                row += 1
            before += open_count
            found.append(ranges_of(owners, ranges, open_count, kind))
    finally:
        free(ranges)
        free(slots)
    return found


def split_ranges(list batches not None, list counts not None, type kind not None):
    """
    Return the ranges of each group of consecutive records, in the order of their first records.

    Args:
        batches: a tuple for each batch, with its range (partition, first offset, count, whether it
            is a duplicate) as third, and the numbers of its records as fourth field.
        counts: the number of records of each group; records in no batch have no range.
        kind: named tuple of a range.

    Raises:
        IndexError: a batch has a record above those of the groups.
    """
    cdef Py_ssize_t total = sum(counts)
    cdef SentRow* rows = <SentRow*>calloc(<size_t>(total + 1), sizeof(SentRow))
    cdef list owners = []
    try:
        if rows == NULL:
            raise MemoryError
        load_rows(batches, rows, total)
        for batch in batches:
            sent = field_of(batch, 2)
            owners.append((field_of(sent, 0), field_of(sent, 3)))
        return split_rows(rows, owners, counts, kind)
    finally:
        free(rows)
