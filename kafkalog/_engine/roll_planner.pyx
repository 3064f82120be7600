"""Division of a run of batches into segments, and the index entries of the run.

The rules are Kafka's. A batch begins a new segment if the current one would exceed its size, if its
time is too far after that of the segment's first batch, if an index is full, or if its offset does
not fit 32 bits above the segment's base. An index entry (last offset, position) is due if more than
`index.interval.bytes` follow the last entry, never for the first batch; the time index gets the
largest timestamp so far with each, if it is a new one, and again when the segment is sealed.

One pass over the metadata of a run determines the part for the current segment, and its entries;
bytes of batches are not read.

Thread-safety: under the log's lock. Attributes may be read by any thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from kafkalog._core.index cimport write_offset_entry, write_time_entry
from kafkalog._core.layout cimport (
    NO_TIMESTAMP,
    OFFSET_INDEX_ENTRY_SIZE,
    TIME_INDEX_ENTRY_SIZE,
)
from kafkalog._core.batch_metadata cimport MetadataRow, BatchMetadata

cdef enum:
    # Rows from which on a pass over them is worth letting other threads run.
    MANY_ROWS = 4096


cdef inline bint is_due_for_roll(const StageState* state, const StageLimits* limits,
                                 const MetadataRow* batch, int64_t waited_ms) noexcept nogil:
    """Return whether the batch begins a new segment, without regard to its offset."""
    if state.size_bytes == 0:
        return False
    if state.size_bytes > limits.segment_bytes - batch.size_bytes:
        return True
    if state.rolling_timestamp >= 0:
        waited_ms = batch.max_timestamp - state.rolling_timestamp
    return (
        waited_ms > limits.roll_after_ms
        or state.offset_count >= limits.offset_entries_max
        or state.time_count >= limits.time_entries_max - 1
    )


cdef inline void add_time_entry(StageState* state, const StageLimits* limits, int64_t base_offset,
                                ReadyEntries* ready) noexcept nogil:
    cdef uint8_t* entry
    if state.max_timestamp <= state.last_time or state.time_count >= limits.time_entries_max:
        return
    entry = ready.times + ready.time_count * TIME_INDEX_ENTRY_SIZE
    write_time_entry(entry, state.max_timestamp, state.offset_of_max_timestamp - base_offset)
    state.last_time = state.max_timestamp
    state.time_count += 1
    ready.time_count += 1


cdef inline void add_entries(StageState* state, const StageLimits* limits, int64_t base_offset,
                             int64_t last_offset, ReadyEntries* ready) noexcept nogil:
    cdef uint8_t* entry
    if state.offset_count < limits.offset_entries_max:
        entry = ready.offsets + ready.offset_count * OFFSET_INDEX_ENTRY_SIZE
        write_offset_entry(entry, last_offset - base_offset, state.size_bytes)
        state.offset_count += 1
        ready.offset_count += 1
    if state.time_count < limits.time_entries_max - 1:
        add_time_entry(state, limits, base_offset, ready)


cdef Py_ssize_t plan_kernel(const MetadataRow* rows, Py_ssize_t first, Py_ssize_t count,
                            int64_t base_offset, int64_t waited_ms, StageState* state,
                            const StageLimits* limits, ReadyEntries* ready) noexcept nogil:
    """Take batches until one calls for a new segment; return the row of that one."""
    cdef Py_ssize_t row
    cdef const MetadataRow* batch
    for row in range(first, count):
        batch = &rows[row]
        if not 0 <= batch.last_offset - base_offset <= INT32_MAX:
            return row
        if is_due_for_roll(state, limits, batch, waited_ms):
            return row
        if state.size_bytes == 0:
            state.rolling_timestamp = batch.max_timestamp
        if batch.max_timestamp > state.max_timestamp:
            state.max_timestamp = batch.max_timestamp
            state.offset_of_max_timestamp = batch.shallow_offset
        if state.bytes_since_entry > limits.interval_bytes:
            add_entries(state, limits, base_offset, batch.last_offset, ready)
            state.bytes_since_entry = 0
        state.bytes_since_entry += batch.size_bytes
        state.size_bytes += batch.size_bytes
    return count


@cython.final
cdef class RollPlanner:
    """
    Planner of the batches of an active segment.

    Args:
        base_offset: of the segment.
        offset_entries_max, time_entries_max: how many entries its indexes hold.
        offset_count, time_count: entries that they have.
        last_time: timestamp of the last time index entry, -1 without one.
        max_timestamp, offset_of_max_timestamp: of the batches that are there, -1 without any.
        rolling_timestamp: of the first batch that is there, -1 without one.

    Attributes:
        max_timestamp, offset_of_max_timestamp, rolling_timestamp: as given, kept up.
        has_entries: whether index entries are held ready.

    Thread-safety: under the log's lock.
    """

    def __cinit__(self, int64_t base_offset, *, int64_t offset_entries_max,
                  int64_t time_entries_max, int64_t offset_count=0, int64_t time_count=0,
                  int64_t last_time=NO_TIMESTAMP, int64_t max_timestamp=NO_TIMESTAMP,
                  int64_t offset_of_max_timestamp=-1, int64_t rolling_timestamp=NO_TIMESTAMP):
        self.base_offset = base_offset
        self._limits.offset_entries_max = offset_entries_max
        self._limits.time_entries_max = time_entries_max
        self._state.size_bytes = 0
        self._state.max_timestamp = max_timestamp
        self._state.offset_of_max_timestamp = offset_of_max_timestamp
        self._state.rolling_timestamp = rolling_timestamp
        self._state.bytes_since_entry = 0
        self._state.offset_count = offset_count
        self._state.time_count = time_count
        self._state.last_time = last_time
        self._saved = self._state
        self.set_limits(segment_bytes=INT32_MAX, interval_bytes=INT32_MAX, roll_after_ms=INT32_MAX)
        self._reserve(1)

    def __dealloc__(self):
        PyMem_RawFree(self._ready.offsets)
        PyMem_RawFree(self._ready.times)

    def __reduce__(self):
        raise TypeError("a RollPlanner cannot be pickled or copied")

    def __repr__(self):
        return (f"RollPlanner(base_offset={self.base_offset}, offset_count="
                f"{self._state.offset_count}, time_count={self._state.time_count})")

    @property
    def max_timestamp(self):
        return self._state.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self._state.offset_of_max_timestamp

    @property
    def rolling_timestamp(self):
        return self._state.rolling_timestamp

    @property
    def has_entries(self):
        return self.has_ready_entries()

    def set_limits(self, *, int64_t segment_bytes, int64_t interval_bytes, int64_t roll_after_ms):
        """Set `segment.bytes`, `index.interval.bytes` and `segment.ms`."""
        if interval_bytes < 0:
            raise ValueError(f"interval_bytes must not be negative, got {interval_bytes}")
        self._limits.segment_bytes = segment_bytes
        self._limits.interval_bytes = interval_bytes
        self._limits.roll_after_ms = roll_after_ms

    def plan(self, BatchMetadata facts not None, Py_ssize_t first, int64_t size_bytes,
             int64_t waited_ms):
        """
        Take batches of a run from row `first` on, until one belongs in a new segment.

        Args:
            facts: of the run, stamped.
            size_bytes: of the segment.
            waited_ms: how long the segment is there, where `rolling_timestamp` is -1.

        Returns:
            The row after the last one of the segment, and the bytes of those up to it.
        """
        cdef Py_ssize_t stop = self.plan_rows(facts, first, size_bytes, waited_ms)
        return stop, self._state.size_bytes - size_bytes

    cdef Py_ssize_t plan_rows(self, BatchMetadata facts, Py_ssize_t first, int64_t size_bytes,
                              int64_t waited_ms) except -1:
        """As `plan`; return only the row, for the size is that of the state."""
        cdef Py_ssize_t stop
        cdef int64_t most
        if not 0 <= first <= facts.count or size_bytes < 0:
            raise ValueError(f"first must be in 0 to {facts.count} and size_bytes not negative, "
                             f"got {first}, {size_bytes}")
        self._state.size_bytes = size_bytes
        # Between two entries lie more bytes than the interval has.
        most = ((self._state.bytes_since_entry + facts.size_bytes)
                // (self._limits.interval_bytes + 1)) + 1
        self._reserve(min(<Py_ssize_t>most, facts.count - first))
        if facts.count - first < MANY_ROWS:
            stop = plan_kernel(facts.rows, first, facts.count, self.base_offset, waited_ms,
                               &self._state, &self._limits, &self._ready)
        else:
            with nogil:
                stop = plan_kernel(facts.rows, first, facts.count, self.base_offset, waited_ms,
                                   &self._state, &self._limits, &self._ready)
        return stop

    def close(self):
        """Hold the time index entry ready that sealing the segment adds, if one is due."""
        self._reserve(1)
        add_time_entry(&self._state, &self._limits, self.base_offset, &self._ready)

    cpdef tuple ready_entries(self):
        """Return the entries held ready, of the offset index and of the time index, and advance."""
        cdef bytes offsets = PyBytes_FromStringAndSize(
            <const char*>self._ready.offsets, self._ready.offset_count * OFFSET_INDEX_ENTRY_SIZE)
        cdef bytes times = PyBytes_FromStringAndSize(
            <const char*>self._ready.times, self._ready.time_count * TIME_INDEX_ENTRY_SIZE)
        self._ready.offset_count = self._ready.time_count = 0
        return offsets, times

    cpdef save(self):
        """Remember the present state."""
        self._saved = self._state

    def restore(self):
        """Go back to what was saved; return how many entries the indexes had."""
        self._state = self._saved
        self._ready.offset_count = self._ready.time_count = 0
        return self._state.offset_count, self._state.time_count

    cdef bint has_ready_entries(self) noexcept:
        return self._ready.offset_count > 0 or self._ready.time_count > 0

    cdef int _reserve(self, Py_ssize_t more) except -1:
        """Reserve memory for more entries of each kind."""
        cdef Py_ssize_t capacity = max(self._ready.offset_count, self._ready.time_count) + more
        cdef void* grown
        if capacity <= self._entry_capacity:
            return 0
        capacity = max(capacity, 2 * self._entry_capacity)
        grown = PyMem_RawRealloc(self._ready.offsets, <size_t>(capacity * OFFSET_INDEX_ENTRY_SIZE))
        if grown != NULL:
            self._ready.offsets = <uint8_t*>grown
            grown = PyMem_RawRealloc(self._ready.times, <size_t>(capacity * TIME_INDEX_ENTRY_SIZE))
        if grown == NULL:
            raise MemoryError(f"no memory for {capacity} index entries")
        self._ready.times = <uint8_t*>grown
        self._entry_capacity = capacity
        return 0
