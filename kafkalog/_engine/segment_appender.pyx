"""The end of an active segment: one call for an append that belongs there as a whole.

It brings together what an append changes of a segment: how its batches are staged, the end of the
file, and the entries of both indexes.

Thread-safety: under the log's lock. Attributes may be read by any thread.
"""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._engine.append_file cimport AppendFile
from kafkalog._engine.index_buffer cimport IndexBuffer
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._engine.roll_planner cimport RollPlanner


@cython.final
cdef class SegmentAppender:
    """
    Target of the appends of a segment.

    Args:
        stage: plans the part of a run for this segment, and its entries.
        file: the `.log` file.
        offsets, times: entries of its indexes.

    Attributes:
        stage: as given.
        saved_bytes: size of the file before the last append.
    """

    def __cinit__(self, RollPlanner stage not None, AppendFile file not None,
                  IndexBuffer offsets not None, IndexBuffer times not None):
        self.stage = stage
        self._file = file
        self._offsets = offsets
        self._times = times

    def __reduce__(self):
        raise TypeError("a SegmentAppender cannot be pickled or copied")

    def append(self, data not None, BatchMetadata facts not None, int64_t waited_ms):
        """
        Remember the present state, and write a run if all of it belongs here.

        Args:
            data: the batches.
            facts: of the batches, stamped.
            waited_ms: as for `RollPlanner.plan`.

        Returns:
            What `RollPlanner.plan` does from the first batch on. Where that is not all, nothing
            is written: what was taken is to be committed.
        """
        cdef int64_t size = 0
        cdef Py_ssize_t row = self.write(data, facts, waited_ms, &size)
        return row, size

    cdef Py_ssize_t write(self, object data, BatchMetadata facts, int64_t waited_ms,
                          int64_t* size) except -1:
        """As `append`: return the row, and set the size."""
        cdef AppendFile file = self._file
        cdef RollPlanner stage = self.stage
        cdef int64_t start = file.size_bytes
        cdef Py_ssize_t row
        self.saved_bytes = start
        stage.save()
        row = stage.plan_rows(facts, 0, start, waited_ms)
        size[0] = stage._state.size_bytes - start
        if row == facts.count:
            file.append(data, size[0])
            if stage.has_ready_entries():
                self.add_entries()
        return row

    cdef int64_t end_position(self) noexcept:
        """Position of the next append."""
        return self._file.size_bytes

    def commit(self, data not None, int64_t size):
        """Write the bytes that were taken, then let the indexes follow."""
        self._file.append(data, size)
        self.add_entries()

    cpdef add_entries(self):
        """Put the entries that are held ready into the indexes."""
        offsets, times = self.stage.ready_entries()
        if offsets:
            self._offsets.extend(offsets)
        if times:
            self._times.extend(times)
