"""Rows of the records of plain batches of any codec, for kernels that read many batches."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.columns cimport ColumnPointers, RecordColumns
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields


# The rows that were read last of a run.
cdef struct RunRows:
    Cursor cursor                      # start of the next batch, and end of the run
    BatchFields fields                 # of the batch that was read last
    ColumnPointers columns
    int64_t capacity
    int64_t count
    const uint8_t* start               # of the run
    const uint8_t* data                # memory of the rows: the run, or a decompressed batch
    int64_t data_size


@cython.final
cdef class BatchRows:
    cdef RunRows rows
    cdef const uint8_t[::1] _octets
    cdef RecordColumns _columns
    cdef object _run
    cdef object _decompress
    cdef bytes _payload                # of the batch that was opened last

    cdef int open_compressed(self) except -1
    cdef void close_compressed(self) noexcept


cdef int load_plain(RunRows* rows) noexcept nogil
