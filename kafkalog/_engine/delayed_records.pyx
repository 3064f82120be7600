"""Records of one log that have offsets, and wait for their append.

A commit journal makes them durable (`kafkalog.manager.delayed_commits`); the log gets them a little
later, in larger batches (`kafkalog.log.delayed_appends`). While there are any, or while offsets are
reserved for more, the log takes no other append: `GateState.has_delayed`.

Thread-safety: `record` and `forget` under the journal's lock, all else under the log's lock.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.layout cimport RECORD_BATCH_OVERHEAD
from kafkalog._core.record_groups cimport size_of

cdef enum:
    NO_OFFSET = -1
    NO_SEQUENCE_YET = -1


@cython.final
cdef class DelayedRecords:
    """
    Delayed records of one log.

    Args:
        gate: whether the log can be written.
        published: where the log ends.
        source: raises the durable offset.
        lane: has the rules of appends.
        lock: the log's lock.
        log: the log.
        name: the partition in the journal (`PartitionName`).
        journal: the journal of its data directory.

    Attributes:
        log, name, journal: as given.
        next_offset: offset of the next record; -1 while no offset is reserved.
        recorded_offset: one above the last offset that the journal has as records; -1 if it has
            none that count.
        claimed_offset: one above the last offset that a commit may have as records, whether it has
            ended, runs, or has failed.
        first_sequence, last_sequence: first and last commit with such records; -1 for none.
        size_bytes: an upper bound of the bytes of the records in batches.
        has_failed: whether the last append of them failed: no more are taken until one succeeds.
    """

    def __cinit__(self, GateState gate not None, PublishedSnapshot published not None,
                  CommitSource source not None, lane, lock, log, name, journal):
        self._gate = gate
        self._published = published
        self._source = source
        self._lane = lane
        self._acquire = lock.acquire
        self._release = lock.release
        self.log = log
        self.name = name
        self.journal = journal
        self._keys, self._values, self._timestamps = [], [], []
        self.next_offset = self.recorded_offset = self.claimed_offset = NO_OFFSET
        self._lease_end = NO_OFFSET
        self.first_sequence = self.last_sequence = NO_SEQUENCE_YET
        self._number = -1

    def __reduce__(self):
        raise TypeError("DelayedRecords cannot be pickled or copied")

    def __len__(self):
        return len(self._values)

    @property
    def first_offset(self):
        """Offset of the first record that waits; the next offset if none does."""
        return self.next_offset - len(self._values)

    def can_take_more(self, int64_t now_ms, int64_t timestamp_ms, int64_t size):
        """Return whether records of this time, none larger than `size` in a batch, are taken."""
        return self.can_take(now_ms, timestamp_ms, size)

    def fields(self):
        """Return keys, values and timestamps of all; the lock is held as long as they are used."""
        return self._keys, self._values, self._timestamps

    def append_by(self, call):
        """
        Let a call append the first of the records to the log, and drop what it has then.

        Other appends are let in during the call: the lock is held. Whatever interrupts it, these
        offsets are given to no other append: no statement of Python is between the two settings of
        the flag and the call.
        """
        cdef int64_t first_offset = self.first_offset
        self._gate.set_delayed(False)
        try:
            call()
        finally:
            self._gate.set_delayed(True)
            self.drop_first(self._published.snapshot.end_offset - first_offset)

    def drop_first(self, int64_t count):
        """Drop records that the log has, none if the number is negative; the lock is held."""
        cdef Py_ssize_t row
        count = max(count, 0)
        for row in range(min(count, <int64_t>len(self._values))):
            self.size_bytes -= size_of(self._keys, self._values, row)
        if count >= len(self._values):
            # The lists that `fields` has returned stay as they are.
            self._keys, self._values, self._timestamps = [], [], []
        else:
            del self._keys[:count], self._values[:count], self._timestamps[:count]

    def drop_after(self, int64_t offset):
        """Drop the records from an offset on, none of which is in a journal; the lock is held."""
        cdef Py_ssize_t kept = max(offset - <int64_t>self.first_offset, 0)
        cdef Py_ssize_t row
        for row in range(kept, len(self._values)):
            self.size_bytes -= size_of(self._keys, self._values, row)
        del self._keys[kept:], self._values[kept:], self._timestamps[kept:]
        self.next_offset = max(min(self.next_offset, offset), self._published.snapshot.end_offset)

    def record_outcome(self, bint has_failed):
        """Record whether the last append failed; the lock is held."""
        self.has_failed = has_failed

    def release(self):
        """Give up the offsets that are reserved for more records; there are none. Lock held."""
        self.next_offset = self._lease_end = NO_OFFSET
        self._lease += 1
        self._gate.set_delayed(False)

    def cover(self):
        """Let the durable offset rise to what the journal and the log have; the lock is held."""
        if self._lease_end >= 0:
            self._source.cover(self._lease_end, self._truncations)

    def forget(self, int64_t first_sequence=NO_SEQUENCE_YET):
        """Take note that commits before `first_sequence` do not count any more; -1: none counts."""
        self.first_sequence = first_sequence
        if first_sequence == NO_SEQUENCE_YET:
            self.recorded_offset = NO_OFFSET

    cdef bint can_take(self, int64_t now_ms, int64_t timestamp_ms, int64_t size) except -1:
        cdef AppendLimits limits
        cdef int64_t limit
        if self.has_failed or not self._gate.can_write():
            return False
        if (
            self.next_offset < 0
            and self._source.durable_offset() < self._published.snapshot.end_offset
        ):
            # An acknowledgement is one of all records before it, too.
            return False
        rules = self._lane.rules
        limits = rules.limits
        limit = min(limits.max_message_bytes, <int64_t>rules.segment_bytes)
        return (
            rules.is_plain and not limits.is_log_append_time
            and size + RECORD_BATCH_OVERHEAD <= limit
            and not limits.has_invalid_record(now_ms, 0, timestamp_ms, timestamp_ms)
        )

    cdef int64_t take_rows(self, list keys, list values, object timestamp, const int32_t* rows,
                           Py_ssize_t count) except -1:
        """
        Add records with keys; return the offset of the first. `can_take` holds, the lock is held.

        Args:
            keys, values: bytes of these records and others.
            timestamp: of all of them.
            rows: numbers of the records in the lists, in order.
            count: number of records.
        """
        cdef int64_t first
        cdef Py_ssize_t each
        if self.next_offset < 0:
            self.next_offset = self._published.snapshot.end_offset
            self._truncations = self._source.truncation_count()
            self._lease += 1
            self._gate.set_delayed(True)
        first = self.next_offset
        for each in range(count):
            self._keys.append(keys[rows[each]])
            self._values.append(values[rows[each]])
            self._timestamps.append(timestamp)
            self.size_bytes += size_of(keys, values, rows[each])
        self.next_offset += count
        return first

    cdef int record(self, int64_t lease, int64_t truncations, int64_t end_offset,
                    int64_t sequence) except -1:
        """
        Take note of a commit on the disk that has records.

        Args:
            lease, truncations: of the log when their offsets were assigned.
            end_offset: one above the last of them.
            sequence: of the commit.
        """
        self.recorded_offset = max(self.recorded_offset, end_offset)
        if self.first_sequence < 0:
            self.first_sequence = sequence
        self.last_sequence = sequence
        if lease == self._lease:
            self._lease_end = max(self._lease_end, end_offset)
        if self._published.snapshot.end_offset > self._source.durable_offset():
            # Records of this commit, or of earlier ones, were appended before its end.
            self._source.cover(end_offset, truncations)
        return 0
