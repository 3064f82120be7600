"""The short way of an append through a log, which nearly every append goes.

Lower halves of four classes of the log room: what is done for every append is here, in one call,
and all else with them. Where anything else is asked of the log (a producer's state, a leader epoch
that its file lacks, an old format, another segment, a log that is closed, latched or at rest) the
upper halves are called, which know why and what then.

Thread-safety: `AppendEntrance` from any thread; the others under the log's lock, which it takes.
`snapshot` is read by any thread: it is replaced with one store.
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkalog._core.layout cimport MAGIC_POSITION, MAGIC_V2, NO_PARTITION_LEADER_EPOCH
from kafkalog._core.objects cimport field_of, new_named_tuple
from kafkalog._core.memory_records cimport MemoryRecords
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._engine.segment_appender cimport SegmentAppender

from kafkalog.model import AppendOrigin

cdef extern from "<unistd.h>":
    int getpid() nogil

cdef enum:
    # Fields of a snapshot.
    SEGMENTS = 0
    END_OFFSET = 1
    START_OFFSET = 3

cdef str WRITTEN = "written"
cdef str DURABLE = "durable"
cdef object EMBEDDED = AppendOrigin.EMBEDDED


cdef class LogEnd:
    """
    The end of a log: what is published of it moves on as its last segment takes batches.

    Subclasses say how `append_rolling` goes on in other segments, and how `_undo` takes back what
    failed.

    Attributes:
        snapshot: a named tuple of all segments, the log end offset, the end of the last segment's
            bytes, and the log start offset. The last of the `segments` of the first has an `end`.
    """

    cdef public object snapshot

    cdef bint append_rows(self, object data, BatchMetadata batches) except -1:
        """Append batches, all of them or none; return whether a segment was begun."""
        cdef object before = self.snapshot
        cdef tuple segments = field_of(before, SEGMENTS).segments
        cdef object active = segments[len(segments) - 1]
        cdef SegmentAppender end = active.end
        cdef int64_t size = 0, waited_ms = 0
        cdef Py_ssize_t row
        if end.stage._state.rolling_timestamp < 0:
            waited_ms = active.age_ms()
        try:
            row = end.write(data, batches, waited_ms, &size)
            if row == batches.count:
                self.snapshot = new_named_tuple(
                    type(before),
                    (field_of(before, SEGMENTS), batches.rows[row - 1].last_offset + 1,
                     end.end_position(), field_of(before, START_OFFSET)),
                )
                return False
        except BaseException as error:
            self._undo(active, [], error)
            raise
        self.append_rolling(data, batches, row, size)
        return True

    def append(self, data not None, BatchMetadata batches not None):
        """
        Append batches that lie back to back in `data`, all of them or none.

        Rolls wherever a batch calls for it. Bytes go out in one write a segment.

        Crash points: within a write (a prefix of the run stays, the last batch torn), after the
        creation of a segment, between the writes. Recovery keeps the whole batches and cuts the
        torn one.

        Returns:
            Whether a segment was begun.
        """
        if batches.count == 0:
            raise ValueError("there is no batch to append")
        return self.append_rows(data, batches)


cdef class EpochsAtHand:
    """
    What every append asks of a log's leader epochs.

    Attributes:
        current: the epoch that the log's own appends are stamped with.
        _epochs: has the `written_epoch`, that of the log's end, where the file has all of them,
            and says whether any `is_unwritten`.
    """

    cdef public object current
    cdef public object _epochs

    def is_epoch_written(self, MemoryRecords run not None):
        """Say whether nothing has to be done for the epochs before a run is appended."""
        return self.is_run_epoch_written(run)

    cdef bint is_run_epoch_written(self, MemoryRecords run) except -1:
        if run.needs_offsets:
            return is_of_v2(run) and self._epochs.written_epoch == self.current
        if run.leader_epoch == NO_PARTITION_LEADER_EPOCH:
            return not self._epochs.is_unwritten
        return run.leader_epoch == self.current == self._epochs.written_epoch


cdef bint is_of_v2(MemoryRecords run) except -1:
    """Say whether the first batch, as all that get their offsets here, is of format v2."""
    cdef bytearray data = run.data
    return len(data) > MAGIC_POSITION and data[MAGIC_POSITION] >= MAGIC_V2


cdef class RunAppender:
    """
    Appends runs to a log.

    Subclasses say how any run is appended (`append`), what an error means (`_not_written`), and who
    hears of a segment that was begun (`_rolled`).
    """

    cdef public LogEnd _local
    cdef public EpochsAtHand _epochs

    cdef object append_fast(self, MemoryRecords run, bint* has_rolled):
        """Append a run that asks only for its offsets; None, and nothing done, for any other."""
        cdef LogEnd local = self._local
        cdef EpochsAtHand epochs = self._epochs
        cdef object before = local.snapshot
        if run.has_producers or run.batches.count == 0 or not epochs.is_run_epoch_written(run):
            return None
        info = run.assign_offsets_from(field_of(before, END_OFFSET), epochs.current)
        try:
            has_rolled[0] = local.append_rows(run.data, run.batches)
        except BaseException as error:
            self._not_written(error, None)
            raise
        if has_rolled[0]:
            self._rolled(before)
        return info


cdef class AppendEntrance:
    """
    Where appends enter a log: whether it takes them, one at a time.

    Subclasses say what `_ensure_writable` raises, or wakes, where the log does not take appends as
    it is, and what `_after_append` has to do where somebody waits, watches or counts.

    Attributes:
        _closed, _tail, _offline, _is_released, _process: what keeps appends out: the log was
            closed, follows another process, was latched by this error, rests, or was opened by
            another process than this one.
        _clock: tells the time of an append.
        _rules: what its settings say of an append.
        _flush_messages: records after which it forces the log to the disk.
        _watchers: who is told of an append.
    """

    cdef public bint _closed
    cdef public bint _is_released
    cdef public object _tail
    cdef public object _offline
    cdef public int _process
    cdef public object _clock
    cdef public object _rules
    cdef public int64_t _flush_messages
    cdef public tuple _watchers
    cdef public RunAppender _appender
    cdef object _lock
    cdef object _acquire
    cdef object _release

    def __cinit__(self):
        self._watchers = ()
        self._flush_messages = INT64_MAX

    @property
    def _write_lock(self):
        """The log's lock."""
        return self._lock

    @_write_lock.setter
    def _write_lock(self, lock):
        self._lock = lock
        # Bound once: every append asks for both.
        self._acquire = lock.acquire
        self._release = lock.release

    cdef bint _is_open(self) noexcept:
        return not (self._closed or self._is_released or self._tail is not None
                    or self._offline is not None or getpid() != self._process)

    def _admit(self, wait):
        """Refuse an append before anything is made ready for it; return the time of the append."""
        if not self._is_open():
            self._ensure_writable()
        if wait is not WRITTEN and wait != WRITTEN and wait != DURABLE:
            raise ValueError(f'wait is "written" or "durable", not {wait!r}')
        return self._clock.now_ms()

    def _append(self, MemoryRecords run not None, wait, origin=EMBEDDED):
        """Append a run; return the AppendInfo of it."""
        cdef bint has_rolled = False
        self._acquire()
        try:
            if not self._is_open():
                self._ensure_writable()
            info = self._appender.append_fast(run, &has_rolled)
            if info is None:
                info, has_rolled = self._appender.append(run, self._rules, origin)
        finally:
            self._release()
        if (
            has_rolled or wait is not WRITTEN or self._flush_messages != INT64_MAX
            or self._watchers
        ):
            self._after_append(info, has_rolled, wait)
        return info
