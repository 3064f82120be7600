"""Writer of the header of a new batch, which checks its fields against the records."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.header cimport BatchFields
from kafkalog._core.builder cimport BatchDraft

cdef void write_batch_header(
    uint8_t* batch, int64_t size, const BatchFields* fields
) noexcept nogil
cdef int check_codec(const BatchDraft* draft, int codec, object payload) except -1
cdef int64_t checked_max_timestamp(
    const BatchDraft* draft, int timestamp_type, object max_timestamp
) except? -1
cdef int check_delete_horizon(const BatchDraft* draft, bint delete_horizon) except -1
cdef int32_t checked_last_offset_delta(
    const BatchDraft* draft, object last_offset_delta, int64_t base_offset
) except -1
cdef int check_producer(const BatchFields* fields) except -1
