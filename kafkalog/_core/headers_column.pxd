"""The headers of many records as columns: which of one long row of headers belong to a record."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.builder cimport BatchDraft, RecordParts
from kafkalog._core.bytes_column cimport BytesCells, CellColumn


cdef enum:
    # In addition to the statuses of `add_to_draft`.
    HEADERS_FULL = 1011                # the headers of a record need more memory: `needed`
    HEADERS_OFFSETS = 1012             # the offsets of a record's headers are wrong


cdef struct HeaderCells:
    const uint8_t* validity            # NULL: every record has its headers
    int64_t validity_shift
    const int32_t* offsets             # one of the two is NULL
    const int64_t* wide_offsets
    int64_t entry_count                # headers in all
    BytesCells keys
    BytesCells values


cdef struct HeaderSpace:
    uint8_t* data
    int64_t capacity
    int64_t needed


cdef class HeadersColumn:
    cdef HeaderCells cells
    cdef Py_ssize_t count
    cdef CellColumn _keys
    cdef CellColumn _values
    cdef Py_buffer _offsets
    cdef Py_buffer _validity
    cdef object owner                  # of cells that no buffer here holds

    cdef int set_cells(self, CellColumn keys, CellColumn values) except -1


cdef int extend_with_headers_kernel(
    BatchDraft* draft,
    const BytesCells* keys,
    const BytesCells* values,
    const HeaderCells* headers,
    HeaderSpace* space,
    const int64_t* timestamps,
    RecordParts* parts,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil
