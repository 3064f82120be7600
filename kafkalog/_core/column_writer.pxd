"""Writer of columns, for the batch builders."""

from libc.stdint cimport int64_t

from kafkalog._core.builder cimport BatchDraft, RecordParts
from kafkalog._core.bytes_column cimport BytesCells


cdef int extend_kernel(
    BatchDraft* draft,
    const BytesCells* keys,
    const BytesCells* values,
    const int64_t* timestamps,
    RecordParts* parts,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil
