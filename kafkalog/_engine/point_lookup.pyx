"""The point readers of a log's segments: one call from an offset, or a time, to a record.

Or to the slice that begins with the batch of an offset.

Thread-safety: see the class; the GIL is kept, for a look-up takes less than a microsecond.
"""

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset

from kafkalog._core.point_read cimport FoundBatch, PointReader
from kafkalog._engine.segment_slice cimport SegmentSlice, new_slice
from kafkalog._core.time_read cimport FoundTime

import numpy

cdef enum:
    # Fields of a log's snapshot.
    SNAPSHOT_SEGMENTS = 0
    SNAPSHOT_END = 1
    SNAPSHOT_POSITION = 2
    SNAPSHOT_START = 3
    SNAPSHOT_FIELDS = 4


cdef extern from *:
    """
    static PyObject *kafkalog_make_tuple(PyTypeObject *type, PyObject *first, PyObject *second,
                                         PyObject *third)
    {
        PyObject *made = type->tp_alloc(type, 3);
        if (made != NULL) {
            Py_INCREF(first);
            PyTuple_SET_ITEM(made, 0, first);
            Py_INCREF(second);
            PyTuple_SET_ITEM(made, 1, second);
            Py_INCREF(third);
            PyTuple_SET_ITEM(made, 2, third);
        }
        return made;
    }
    """
    object make_tuple "kafkalog_make_tuple" (PyTypeObject* type, object first, object second,
                                             object third)


cdef Py_ssize_t count_up_to(const int64_t[::1] numbers, int64_t largest) noexcept:
    """Return how many of rising numbers are not above `largest`."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = numbers.shape[0]
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] <= largest:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int64_t number_in(object snapshot, int field) except? -1:
    return <int64_t><object>PyTuple_GET_ITEM(snapshot, field)


@cython.final
cdef class PointLookupTable:
    """
    The point readers of a log's segments, by slot: one call from an offset to its record.

    Asked with a snapshot of the log: the segments, one above the last offset, one above the last
    byte, the first offset. Of another log's segments a table knows nothing.

    Readers are put in as they are needed, at most `capacity` of them at a time, for each may keep
    a mapping alive. Thread-safety: calls may come from any thread, under the GIL.

    Args:
        owner: the segments that the bases were taken from.
        bases: base offsets of the segments, rising.
        capacity: how many readers are kept; one more, and all others go.
        answer: what `find_time` returns: a class of named tuples of three.
        slices: what `slice` returns: a subclass of SegmentSlice without a constructor.
        segments: what each slice is to hold, one for each base.
    """

    cdef readonly object owner
    cdef type _result_type
    cdef type _slices
    cdef tuple _segments
    cdef const int64_t[::1] _bases
    cdef const int64_t[::1] _latest
    cdef list _readers
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count

    def __init__(self, owner, bases, Py_ssize_t capacity, type answer not None=tuple,
                 type slices not None=SegmentSlice, segments=()):
        # Made without its constructor, it must have nothing but its items.
        if not issubclass(answer, tuple) or answer.__dictoffset__ != 0:
            raise TypeError(f"{answer!r} is no class of named tuples")
        if not issubclass(slices, SegmentSlice):
            raise TypeError(f"{slices!r} is no class of slices")
        self.owner = owner
        self._result_type = answer
        self._slices = slices
        self._segments = tuple(segments)
        self._bases = numpy.array(bases, dtype=numpy.int64)
        self._latest = numpy.empty(0, dtype=numpy.int64)
        self._readers = [None] * len(bases)
        self._capacity = capacity
        self._count = 0

    cdef bint _owns(self, snapshot) except -1:
        """Say whether a snapshot is one of the segments that are in here."""
        # A tuple with names, or another: what is asked of it is asked without them.
        if not PyTuple_Check(snapshot) or PyTuple_GET_SIZE(snapshot) != SNAPSHOT_FIELDS:
            raise TypeError(f"a snapshot is a tuple of {SNAPSHOT_FIELDS}, not {snapshot!r}")
        return PyTuple_GET_ITEM(snapshot, SNAPSHOT_SEGMENTS) == <PyObject*>self.owner

    cdef Py_ssize_t _slot_of(self, offset, snapshot, int64_t above_end,
                             int64_t* wanted) except -2:
        """Return in which segment an offset is, -1 for none; `above_end` are no record's."""
        cdef int overflow = 0
        if not self._owns(snapshot):
            return -1
        wanted[0] = PyLong_AsLongLongAndOverflow(offset, &overflow)
        if (
            overflow != 0
            or wanted[0] < number_in(snapshot, SNAPSHOT_START)
            or wanted[0] - above_end >= number_in(snapshot, SNAPSHOT_END)
        ):
            return -1
        return count_up_to(self._bases, wanted[0]) - 1

    def find(self, offset, snapshot, bint check_crcs=True):
        """Return the record at `offset`, None where it is not plainly there or nobody looks."""
        cdef int64_t wanted = 0
        cdef Py_ssize_t slot = self._slot_of(offset, snapshot, 0, &wanted)
        if slot < 0:
            return None
        reader = self._readers[slot]
        return None if reader is None else (<PointReader>reader).read(wanted, check_crcs)

    def slice(self, offset, max_bytes, bint min_one_batch, snapshot):
        """
        Return up to `max_bytes` from the batch on that holds `offset`, perhaps the first one whole.

        None where that is not plainly there, or nobody looks. At the end offset it is empty.
        """
        cdef int overflow = 0
        cdef int64_t wanted = 0
        cdef int64_t most = PyLong_AsLongLongAndOverflow(max_bytes, &overflow)
        cdef int64_t end = 0
        cdef int64_t following
        cdef Py_ssize_t slot = self._slot_of(offset, snapshot, 1, &wanted)
        cdef PointReader reader
        cdef FoundBatch found
        if overflow != 0:
            most = INT64_MAX if overflow > 0 else -1
        if most < 0:
            raise ValueError(f"max_bytes is {max_bytes}; it must not be negative")
        if not 0 <= slot < PyTuple_GET_SIZE(self._segments):
            return None
        reader = self._readers[slot]
        if slot + 1 < self._bases.shape[0]:
            # Nothing is added to it: who made the reader had all of it.
            following = self._bases[slot + 1]
            end = reader._ref.view.len if reader is not None else 0
        else:
            following = number_in(snapshot, SNAPSHOT_END)
            end = number_in(snapshot, SNAPSHOT_POSITION)
        if wanted == number_in(snapshot, SNAPSHOT_END):
            found.position, found.size_bytes, most = end, 0, 0
        elif reader is None or not reader.find_start(
            wanted, self._bases[slot], end, following, &found
        ):
            return None
        if min_one_batch:
            most = max(most, found.size_bytes)
        return self._make_slice(slot, wanted, min(most, end - found.position), found.position,
                                following, end, snapshot)

    cdef SegmentSlice _make_slice(self, Py_ssize_t slot, int64_t offset, int64_t size,
                                  int64_t position,
                                  int64_t following, int64_t end, snapshot):
        cdef SegmentSlice made = new_slice(self._slices)
        cdef PointReader reader = self._readers[slot]
        made._segment = self._segments[slot]
        made.start_offset = offset
        made.position = position
        made.size_bytes = size
        made.following_offset = following
        made.bound_position = end
        made.log_start_offset = number_in(snapshot, SNAPSHOT_START)
        made.log_end_offset = number_in(snapshot, SNAPSHOT_END)
        # What was appended since the reader was made is not in its bytes.
        if reader is not None and position + size <= reader._ref.view.len:
            made._mapped = reader.data
        return made

    def find_time(self, timestamp_ms, snapshot, bint check_crcs=True):
        """
        Return timestamp, offset and leader epoch of the first record at or above a time.

        The epoch is None where the batch has none; all of it where the record is not plainly there,
        or nobody looks.
        """
        cdef int overflow = 0
        cdef int64_t wanted
        cdef Py_ssize_t slot
        cdef FoundTime found
        if not self._owns(snapshot):
            return None
        wanted = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if overflow != 0:
            return None
        if wanted < 0:
            return None
        # The first segment with so late a record, of those that are known.
        slot = count_up_to(self._latest, wanted - 1)
        if slot == self._latest.shape[0]:
            return None
        reader = self._readers[slot]
        memset(&found, 0, sizeof(found))
        if reader is None or not (<PointReader>reader).read_time(
            wanted, number_in(snapshot, SNAPSHOT_START), check_crcs, &found
        ):
            return None
        # A reader has what was published; a log that is truncated has other segments then.
        return make_tuple(<PyTypeObject*>self._result_type, found.timestamp, found.offset,
                          found.epoch if found.epoch >= 0 else None)

    cdef int _check_slot(self, Py_ssize_t slot) except -1:
        if not 0 <= slot < self._bases.shape[0]:
            raise IndexError(f"slot {slot} is not in 0..{self._bases.shape[0] - 1}")
        return 0

    @property
    def cached_time_count(self):
        """Of how many segments, from the first on, the largest timestamps are known."""
        return self._latest.shape[0]

    def put_times(self, latest):
        """
        Say the largest timestamps of the first segments; it counts for look-ups by time only.

        Args:
            latest: one for each, INT64_MAX for one that may get more, and -1 for one without a
                record that may be read.
        """
        latest = numpy.maximum.accumulate(numpy.array(latest, dtype=numpy.int64))
        if len(latest) > self._bases.shape[0]:
            raise ValueError(f"{len(latest)} timestamps for {self._bases.shape[0]} segments")
        self._latest = latest

    def reader(self, Py_ssize_t slot):
        """Return the reader in `slot`, or None; IndexError outside the bases."""
        self._check_slot(slot)
        return self._readers[slot]

    def put(self, Py_ssize_t slot, PointReader reader not None):
        """Let `reader` answer for the segment in `slot`; IndexError outside the bases."""
        self._check_slot(slot)
        if self._readers[slot] is None:
            if self._count >= self._capacity:
                self._readers = [None] * len(self._readers)
                self._count = 0
            self._count += 1
        self._readers[slot] = reader
