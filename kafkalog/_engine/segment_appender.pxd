"""End of an active segment, for appends."""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._engine.append_file cimport AppendFile
from kafkalog._engine.index_buffer cimport IndexBuffer
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._engine.roll_planner cimport RollPlanner


@cython.final
cdef class SegmentAppender:
    cdef readonly RollPlanner stage
    cdef readonly int64_t saved_bytes
    cdef AppendFile _file
    cdef IndexBuffer _offsets
    cdef IndexBuffer _times

    cdef Py_ssize_t write(self, object data, BatchMetadata facts, int64_t waited_ms,
                          int64_t* size) except -1
    cdef int64_t end_position(self) noexcept
    cpdef add_entries(self)
