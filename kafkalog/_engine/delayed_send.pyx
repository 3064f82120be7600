"""Records of one call that are delayed: distributed over the logs of a topic, with their offsets.

A call of 640 records to 1,000 partitions has records for 470 of them. Here they cost no object and
no call of Python for each partition.

Thread-safety: `DelayedTopic.accept` by one thread at a time for all topics that share a log; the
methods of a `DelayedSend` by one thread at a time, `split` by any.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from kafkalog._core.murmur2 cimport murmur2, partition_of_hash
from kafkalog._core.record_groups cimport check_lists, size_of
from kafkalog._core.sent_ranges cimport SentRow, split_rows
from kafkalog._engine.commit_table cimport CommitTable
from kafkalog._engine.delayed_records cimport DelayedRecords

cdef enum:
    # Larger records gain nothing from a later append.
    RECORD_BYTES_MAX = 64 * 1024
    # Of the entry of a partition, and of its name.
    ENTRY_BYTES_MAX = 32 + 24 + 256
    TOO_LARGE = -2
    LOG_MISSING = -3


@cython.final
cdef class DelayedSend:
    """
    Records of one call that their logs have taken.

    Attributes:
        logs: the `DelayedRecords` of each partition that has some, in the order of the first.
        size_bytes: an upper bound of their bytes in a journal.
        errors: errors of partitions, by their place in `logs`.
        is_committed: whether it is decided which of them are durable.
    """

    cdef readonly list logs
    cdef readonly int64_t size_bytes
    cdef readonly dict errors
    cdef readonly bint is_committed
    cdef list _keys
    cdef list _values
    cdef list _owners
    cdef int64_t _timestamp_ms
    cdef SentRow* _rows
    # Numbers of the records, partition by partition, and where each partition begins in them.
    cdef int32_t* _order
    cdef int32_t* _starts
    cdef int64_t* _firsts
    cdef int64_t* _leases
    cdef int64_t* _truncations

    def __dealloc__(self):
        free(self._rows)
        free(self._order)
        free(self._starts)
        free(self._firsts)
        free(self._leases)
        free(self._truncations)

    def __reduce__(self):
        raise TypeError("a DelayedSend cannot be pickled or copied")

    def __len__(self):
        return len(self._values)

    @property
    def journals(self):
        """The journals of the logs, each once."""
        cdef list found = []
        cdef object last = None
        for log in self.logs:
            journal = (<DelayedRecords>log).journal
            if journal is not last and journal not in found:
                found.append(journal)
            last = journal
        return found

    def partition(self, Py_ssize_t place):
        """Return the number of a partition, by its place in `logs`."""
        return self._owners[place][0]

    def first_offset(self, Py_ssize_t place):
        """Return the offset of the first record of a partition, by its place in `logs`."""
        self._check_place(place)
        return self._firsts[place]

    def end_offset(self, Py_ssize_t place):
        """Return one above the offset of the last record of a partition."""
        self._check_place(place)
        return self._firsts[place] + self._starts[place + 1] - self._starts[place]

    def rows(self, Py_ssize_t place):
        """Return the numbers of the records of a partition, in order."""
        self._check_place(place)
        return [self._order[row] for row in range(self._starts[place], self._starts[place + 1])]

    def fail(self, Py_ssize_t place, error not None):
        """Set the error of the records of a partition, unless they have one."""
        self.errors.setdefault(place, error)

    def set_committed(self):
        """Take note that it is decided which records are durable."""
        self.is_committed = True

    def split(self, list counts not None, type kind not None):
        """
        Return the ranges of each group of consecutive records, in the order of their first records.

        Args:
            counts: the number of records of each group, of all records together.
            kind: named tuple of partition, first offset, count, and False.
        """
        if sum(counts) != len(self._values) or min(counts, default=0) < 0:
            raise ValueError(f"counts must be those of {len(self._values)} records, got {counts}")
        return split_rows(self._rows, self._owners, counts, kind)

    def places_in(self, journal):
        """
        Return the places of one journal without an error: those to be committed as records, those
        that their log has already, and those whose log cannot be written any more.

        The first ones count as claimed: before another segment their log is synced.
        """
        cdef Py_ssize_t place
        cdef DelayedRecords log
        cdef list waiting = [], appended = [], refused = []
        for place in range(PyList_GET_SIZE(self.logs)):
            log = <DelayedRecords>PyList_GET_ITEM(self.logs, place)
            if log.journal is not journal or (self.errors and place in self.errors):
                continue
            if self._leases[place] != log._lease:
                appended.append(place)
            elif log._gate.can_write():
                waiting.append(place)
                log.claimed_offset = max(log.claimed_offset, <int64_t>self.end_offset(place))
            else:
                refused.append(place)
        return waiting, appended, refused

    def write_to(self, CommitTable table not None, list places not None, dict numbers not None,
                 number_of):
        """
        Add the records of partitions to a commit.

        Args:
            table: the commit.
            places: the places of the partitions.
            numbers: the numbers of partitions in the file of the commit.
            number_of: returns the number of a `DelayedRecords`, whose name is added to the commit
                if it is new there.
        """
        cdef Py_ssize_t place
        cdef DelayedRecords log
        cdef int64_t number
        for place in places:
            self._check_place(place)
            log = <DelayedRecords>PyList_GET_ITEM(self.logs, place)
            number = log._number
            if log._numbers is not numbers:
                number = number_of(log)
                if number < len(numbers):
                    # A new one counts once the commit is on the disk.
                    log._numbers, log._number = numbers, number
            table.add_records(<uint32_t>number, self._firsts[place], self._keys, self._values,
                              self._timestamp_ms, self._order + self._starts[place],
                              self._starts[place + 1] - self._starts[place])

    def record(self, list places not None, int64_t sequence):
        """Take note that a commit with the records of partitions is on the disk."""
        cdef Py_ssize_t place
        cdef DelayedRecords log
        for place in places:
            self._check_place(place)
            log = <DelayedRecords>PyList_GET_ITEM(self.logs, place)
            log.record(
                self._leases[place], self._truncations[place],
                self._firsts[place] + self._starts[place + 1] - self._starts[place], sequence,
            )

    cdef int _check_place(self, Py_ssize_t place) except -1:
        if not 0 <= place < PyList_GET_SIZE(self.logs):
            raise IndexError(f"place must be below {len(self.logs)}, got {place}")
        return 0

    cdef int _begin(self, list keys, list values, int64_t timestamp_ms) except -1:
        """Set the records."""
        self.logs, self._owners, self.errors = [], [], {}
        self._keys, self._values, self._timestamp_ms = keys, values, timestamp_ms
        self._rows = <SentRow*>calloc(<size_t>PyList_GET_SIZE(values) + 1, sizeof(SentRow))
        if self._rows == NULL:
            raise MemoryError
        return 0

    cdef int32_t _place_of(self, DelayedRecords log, int32_t partition) except -1:
        """Return the place of a log in `logs`, counted from 1; it is added if it has none."""
        cdef int32_t place = log._place
        # The place is that of an earlier call if another log is there.
        if (
            0 < place <= PyList_GET_SIZE(self.logs)
            and PyList_GET_ITEM(self.logs, place - 1) == <PyObject*>log
        ):
            return place
        self.logs.append(log)
        self._owners.append((partition, False))
        self.size_bytes += ENTRY_BYTES_MAX
        log._place = <int32_t>PyList_GET_SIZE(self.logs)
        return log._place

    cdef int _sort(self) except -1:
        """Order the records by partition; the places of the rows are set."""
        cdef Py_ssize_t place, row
        cdef Py_ssize_t place_count = PyList_GET_SIZE(self.logs)
        cdef Py_ssize_t record_count = PyList_GET_SIZE(self._values)
        self._starts = <int32_t*>calloc(<size_t>place_count + 2, sizeof(int32_t))
        self._order = <int32_t*>calloc(<size_t>record_count + 1, sizeof(int32_t))
        self._firsts = <int64_t*>calloc(<size_t>place_count + 1, sizeof(int64_t))
        self._leases = <int64_t*>calloc(<size_t>place_count + 1, sizeof(int64_t))
        self._truncations = <int64_t*>calloc(<size_t>place_count + 1, sizeof(int64_t))
        if (
            self._starts == NULL or self._order == NULL or self._firsts == NULL
            or self._leases == NULL or self._truncations == NULL
        ):
            raise MemoryError
        # A place of a row is counted from 1: each start is one further on, until its rows are put.
        for row in range(record_count):
            self._starts[self._rows[row].place + 1] += 1
        for place in range(2, place_count + 2):
            self._starts[place] += self._starts[place - 1]
        for row in range(record_count):
            place = self._rows[row].place
            self._order[self._starts[place]] = <int32_t>row
            self._starts[place] += 1
        return 0

    cdef int _lock_all(self, Py_ssize_t* locked) except -1:
        """Acquire the locks of all logs; count those that are held."""
        cdef DelayedRecords log
        for log in self.logs:
            log._acquire()
            locked[0] += 1
        return 0

    cdef int _unlock(self, Py_ssize_t count) except -1:
        """Release the locks of so many logs."""
        cdef Py_ssize_t place
        for place in range(count):
            (<DelayedRecords>PyList_GET_ITEM(self.logs, place))._release()
        return 0

    cdef Py_ssize_t _refusing(self, int64_t now_ms, int64_t largest) except -2:
        """Return the place of a log that takes no records now; -1 if all do. Locks are held."""
        cdef Py_ssize_t place
        for place in range(PyList_GET_SIZE(self.logs)):
            if not (<DelayedRecords>PyList_GET_ITEM(self.logs, place)).can_take(
                now_ms, self._timestamp_ms, largest
            ):
                return place
        return -1

    cdef int _take(self) except -1:
        """Give each log its records; the locks are held."""
        cdef Py_ssize_t place, each, count
        cdef int64_t first
        cdef object timestamp = self._timestamp_ms
        cdef DelayedRecords log
        for place in range(PyList_GET_SIZE(self.logs)):
            log = <DelayedRecords>PyList_GET_ITEM(self.logs, place)
            count = self._starts[place + 1] - self._starts[place]
            first = log.take_rows(self._keys, self._values, timestamp,
                                  self._order + self._starts[place], count)
            self._firsts[place] = first
            self._leases[place] = log._lease
            self._truncations[place] = log._truncations
            for each in range(count):
                self._rows[self._order[self._starts[place] + each]].offset = first + each
        return 0


@cython.final
cdef class DelayedTopic:
    """
    The logs of a topic that take delayed records.

    Args:
        partition_count: number of partitions, at least 1.
    """

    cdef list _logs

    def __cinit__(self, Py_ssize_t partition_count):
        if partition_count < 1:
            raise ValueError(f"partition_count must be >= 1, got {partition_count}")
        self._logs = [None] * partition_count

    def __reduce__(self):
        raise TypeError("a DelayedTopic cannot be pickled or copied")

    def __len__(self):
        return len(self._logs)

    def set_log(self, Py_ssize_t partition, DelayedRecords log):
        """Set the log of a partition; None if it takes none."""
        self._logs[partition] = log

    def accept(self, list keys not None, list values not None, int64_t timestamp_ms,
               int64_t now_ms, list accepted not None):
        """
        Give records to the logs of their keys' partitions.

        Args:
            keys: bytes for each record.
            values: bytes or None for each.
            timestamp_ms: of all records.
            now_ms: time of the call.
            accepted: gets the result as soon as there are offsets: whatever interrupts the caller,
                they are committed before later ones.

        Returns:
            A `DelayedSend`; the number of a partition whose log is not set, or does not take
            records now; or None if a record has no key or is too large. Unless it is the first,
            nothing has changed.

        Raises:
            TypeError: a key or value is not bytes or None.
            ValueError: the lists have different lengths.
        """
        cdef DelayedSend made = DelayedSend.__new__(DelayedSend)
        cdef Py_ssize_t place, locked = 0
        cdef int64_t largest
        check_lists(keys, values)
        made._begin(keys, values, timestamp_ms)
        largest = self._distribute(made)
        if largest == TOO_LARGE:
            return None
        if largest < 0:
            return LOG_MISSING - largest
        made._sort()
        try:
            # All at once: another thread may append to a log after it was asked.
            made._lock_all(&locked)
            place = made._refusing(now_ms, largest)
            if place >= 0:
                return made._owners[place][0]
            made._take()
            accepted.append(made)
        finally:
            made._unlock(locked)
        return made

    cdef int64_t _distribute(self, DelayedSend made) except -1:
        """
        Set the place of each record.

        Returns:
            an upper bound of the bytes of the largest record; TOO_LARGE if one is too large, or has
            no key; LOG_MISSING, less the number of a partition, if its log is not set.
        """
        cdef Py_ssize_t row, partition_count = PyList_GET_SIZE(self._logs)
        cdef int64_t size, largest = 0
        cdef int32_t partition
        cdef PyObject* key
        cdef PyObject* log
        for row in range(PyList_GET_SIZE(made._values)):
            key = PyList_GET_ITEM(made._keys, row)
            size = size_of(made._keys, made._values, row)
            if key == <PyObject*>None or size > RECORD_BYTES_MAX:
                return TOO_LARGE
            largest = max(largest, size)
            made.size_bytes += size
            partition = partition_of_hash(
                murmur2(
                    <const uint8_t*>PyBytes_AS_STRING(<object>key), PyBytes_GET_SIZE(<object>key)
                ),
                <int32_t>partition_count,
            )
            log = PyList_GET_ITEM(self._logs, partition)
            if log == <PyObject*>None:
                return LOG_MISSING - partition
            made._rows[row].place = made._place_of(<DelayedRecords>log, partition)
        return largest
