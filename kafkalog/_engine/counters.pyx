"""Counts of what went into a log and out of it, and of the uses of a file pool.

Plain integers: fast paths add to them without a lock or an object. Those of a log outlive it: the
next log of the same partition continues them, so that they never decrease while a manager is open.

Thread-safety: see the classes.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class LogCounters:
    """
    Counts of one partition.

    Attributes:
        append_count, appended_batches, appended_records, appended_bytes: successful appends, and
            what they wrote, with markers of transactions and ingested files. A batch that a
            producer sent twice is not written, and not counted.
        read_records: records that look-ups, iterators and scans returned, those of batches whole.
        read_bytes: bytes of slices (`Log.read`), and of the batches of iterators and scans.
        deleted_segments, deleted_bytes: segments that retention, deletion of records and
            truncations removed, and the size of their `.log` files.

    Thread-safety: those of appends and deletions change under the log's lock. An addition runs no
    Python code, so the GIL makes it one step; on a Python without the GIL, reads at the same time
    may be counted too low.
    """

    def __reduce__(self):
        raise TypeError("a LogCounters cannot be pickled or copied")

    def add_append(self, int64_t batches, int64_t records, int64_t size_bytes):
        """Count an append."""
        self.append_count += 1
        self.appended_batches += batches
        self.appended_records += records
        self.appended_bytes += size_bytes

    def add_read(self, int64_t records, int64_t size_bytes):
        """Count records and bytes that a reader got."""
        self.read_records += records
        self.read_bytes += size_bytes

    def add_deletion(self, int64_t segments, int64_t size_bytes):
        """Count segments that left the log with their records."""
        self.deleted_segments += segments
        self.deleted_bytes += size_bytes


@cython.final
cdef class PoolCounters:
    """
    Uses of the files of a pool.

    Attributes:
        file_hits, file_misses: reads of a file that was open, and that had to be opened.
        mapping_hits, mapping_misses: the same of mappings.

    Thread-safety: as `LogCounters`, for reads.
    """

    def __reduce__(self):
        raise TypeError("a PoolCounters cannot be pickled or copied")

    def hit_file(self):
        """Count a read of an open file."""
        self.file_hits += 1

    def miss_file(self):
        """Count a file that was opened for a read."""
        self.file_misses += 1

    def hit_mapping(self):
        """Count a use of a mapping."""
        self.mapping_hits += 1

    def miss_mapping(self):
        """Count a file that was mapped for a read."""
        self.mapping_misses += 1
