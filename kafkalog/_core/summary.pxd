"""Facts about the records of one v2 batch, for kernels that ask for them."""

from libc.stdint cimport int64_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.record cimport RecordsContext


cdef struct RecordFacts:
    int64_t min_timestamp
    int64_t max_timestamp
    int64_t null_key_count


cdef int summarize_kernel(
    const RecordsContext* initial, Cursor* cursor, RecordFacts* facts
) noexcept nogil
