"""Number of rows that fit a batch under construction, and their size."""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.columns cimport ColumnPointers
from kafkalog._core.row_columns cimport Build, Portion


cdef int measure_kernel(
    const Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    int64_t data_size,
    int64_t end,
    Portion* portion,
) noexcept nogil
