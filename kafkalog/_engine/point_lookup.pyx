"""Fast path of look-ups: one call from an offset, or a time, to a record or a slice.

The table answers for segments of which it has a reader, and None for everything else; the slow path
of `LogLookup` finds that, and raises errors.

Thread-safety: see the class; the GIL is kept, for a look-up takes less than a microsecond.
"""

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyTypeObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset

from kafkalog._core.point_read cimport FoundBatch, PointReader
from kafkalog._engine.fetch_data cimport FetchData
from kafkalog._engine.snapshot cimport LogSnapshot, PublishedSnapshot
from kafkalog._core.time_read cimport FoundTime

import numpy

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


@cython.final
cdef class SegmentReaders:
    """
    The point readers of the segments of one snapshot, by slot.

    Readers are put in as they are needed, at most `capacity` of them at a time, because each may
    keep a mapping alive.

    Args:
        owner: the segments that the bases were taken from, compared by identity.
        bases: base offsets of the segments, rising.
        capacity: how many readers are kept; with one more, all others are dropped.
        segments: what each slice is to hold, one for each base.

    Thread-safety: from any thread, under the GIL.
    """

    cdef readonly object owner
    cdef tuple _segments
    cdef const int64_t[::1] _bases
    cdef const int64_t[::1] _latest
    cdef list _readers
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count

    def __init__(self, owner, bases, Py_ssize_t capacity, segments=()):
        self.owner = owner
        self._segments = tuple(segments)
        self._bases = numpy.array(bases, dtype=numpy.int64)
        self._latest = numpy.empty(0, dtype=numpy.int64)
        self._readers = [None] * len(bases)
        self._capacity = capacity
        self._count = 0

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
        Set the largest timestamps of the first segments, for look-ups by time only.

        Args:
            latest: one for each, INT64_MAX for a segment that may grow, and -1 for a segment
                without a readable record.
        """
        latest = numpy.maximum.accumulate(numpy.array(latest, dtype=numpy.int64))
        if len(latest) > self._bases.shape[0]:
            raise ValueError(f"timestamps must be at most one per segment, {self._bases.shape[0]}, "
                             f"got {len(latest)}")
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


@cython.final
cdef class PointLookupTable:
    """
    Look-ups in the published snapshot of a log.

    Args:
        published: the log.
        answer: what `find_time` returns: a class of named tuples of three.
        parts: makes the parts of what `slice` returns.

    Attributes:
        readers: of the segments of some snapshot, None for none; those of another snapshot than the
            published one find nothing.

    Thread-safety: from any thread, under the GIL: `readers` is replaced with one store.
    """

    cdef readonly SegmentReaders readers
    cdef PublishedSnapshot _published
    cdef type _result_type
    cdef object _parts

    def __init__(self, PublishedSnapshot published not None, type answer not None=tuple,
                 parts=None):
        # Made without its constructor, it must have nothing but its items.
        if not issubclass(answer, tuple) or answer.__dictoffset__ != 0:
            raise TypeError(f"answer must be a class of named tuples, got {answer!r}")
        self._published = published
        self._result_type = answer
        self._parts = parts

    def use(self, SegmentReaders readers not None):
        """Look up by these readers from now on."""
        self.readers = readers

    def invalidate(self):
        """Drop all readers."""
        self.readers = None

    def find(self, offset, bint check_crcs=True):
        """Return the record at `offset`, None if the slow path has to find it."""
        cdef LogSnapshot snapshot = self._published.snapshot
        cdef SegmentReaders readers = self.readers
        cdef int64_t number = 0
        cdef Py_ssize_t slot = slot_of(readers, offset, snapshot, 0, &number)
        if slot < 0:
            return None
        reader = readers._readers[slot]
        if reader is None:
            return None
        found = (<PointReader>reader).read(number, check_crcs)
        if found is not None:
            self._published.counters.read_records += 1
        return found

    def slice(self, offset, max_bytes, bint min_one_batch):
        """
        Return up to `max_bytes` from the batch on that has `offset`, perhaps the first one whole.

        None if the slow path has to find it. At the end offset the slice is empty.
        """
        cdef LogSnapshot snapshot = self._published.snapshot
        cdef SegmentReaders readers = self.readers
        cdef int overflow = 0
        cdef int64_t number = 0
        cdef int64_t most = PyLong_AsLongLongAndOverflow(max_bytes, &overflow)
        cdef int64_t end = 0
        cdef int64_t following
        cdef Py_ssize_t slot
        cdef PointReader reader
        cdef FoundBatch found
        cdef FetchData made
        if overflow != 0:
            most = INT64_MAX if overflow > 0 else -1
        if most < 0:
            raise ValueError(f"max_bytes must be >= 0, got {max_bytes}")
        slot = slot_of(readers, offset, snapshot, 1, &number)
        if slot < 0 or slot >= PyTuple_GET_SIZE(readers._segments):
            return None
        reader = readers._readers[slot]
        if slot + 1 < readers._bases.shape[0]:
            # Nothing is added to it: the reader was made with all of it.
            following = readers._bases[slot + 1]
            end = reader._ref.view.len if reader is not None else 0
        else:
            following = snapshot.end_offset
            end = snapshot.end_position
        if number == snapshot.end_offset:
            found.position, found.size_bytes, most = end, 0, 0
        elif reader is None or not reader.find_start(
            number, readers._bases[slot], end, following, &found
        ):
            return None
        if min_one_batch:
            most = max(most, found.size_bytes)
        made = FetchData.__new__(FetchData)
        made.segment = readers._segments[slot]
        made._parts = self._parts
        made.start_offset = number
        made.position = found.position
        made.size_bytes = min(most, end - found.position)
        made.following_offset = following
        made.bound_position = end
        made.log_start_offset = snapshot.start_offset
        made.log_end_offset = snapshot.end_offset
        # Bytes that were appended after the reader was made are not among its bytes.
        if reader is not None and found.position + made.size_bytes <= reader._ref.view.len:
            made._mapped = reader.data
        self._published.counters.read_bytes += made.size_bytes
        return made

    def find_time(self, timestamp_ms, bint check_crcs=True):
        """
        Return timestamp, offset and leader epoch of the first record at or above a time.

        The epoch is None where the batch has none. None if the slow path has to find the record.
        """
        cdef LogSnapshot snapshot = self._published.snapshot
        cdef SegmentReaders readers = self.readers
        cdef int overflow = 0
        cdef int64_t time_ms
        cdef Py_ssize_t slot
        cdef FoundTime found
        if readers is None or readers.owner is not snapshot.segments:
            return None
        time_ms = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if overflow != 0 or time_ms < 0:
            return None
        # The first segment with so late a record, of those that are known.
        slot = count_up_to(readers._latest, time_ms - 1)
        if slot == readers._latest.shape[0]:
            return None
        reader = readers._readers[slot]
        memset(&found, 0, sizeof(found))
        if reader is None or not (<PointReader>reader).read_time(
            time_ms, snapshot.start_offset, check_crcs, &found
        ):
            return None
        # A reader has what was published; a log that is truncated has other segments then.
        return make_tuple(<PyTypeObject*>self._result_type, found.timestamp, found.offset,
                          found.epoch if found.epoch >= 0 else None)


cdef Py_ssize_t slot_of(SegmentReaders readers, offset, LogSnapshot snapshot, int64_t above_end,
                        int64_t* number) except -2:
    """Return the slot of the segment of an offset, -1 for none; `above_end` have no record."""
    cdef int overflow = 0
    if readers is None or readers.owner is not snapshot.segments:
        return -1
    number[0] = PyLong_AsLongLongAndOverflow(offset, &overflow)
    if (
        overflow != 0
        or number[0] < snapshot.start_offset
        or number[0] - above_end >= snapshot.end_offset
    ):
        return -1
    return count_up_to(readers._bases, number[0]) - 1
