"""Offsets of records that were sent together, for each group of consecutive records."""

from libc.stdint cimport int32_t, int64_t

# A record: its place in the list of owners, counted from 1 (0: none), and its offset.
cdef struct SentRow:
    int32_t place
    int64_t offset

cdef list split_rows(const SentRow* rows, list owners, list counts, type kind)
