"""Compiled fast path of an append: one call under the log's lock.

It appends runs that need nothing but offsets and space in the active segment, and the next batch
of an idempotent producer. Other runs of producers, a leader epoch that the file lacks, an old
format, a segment that must roll, and a log that is not open are left to the slow path of
`LogAppender`; nothing has changed then.

Thread-safety: `admit`, `append` and `append_group` from any thread; `configure` under the log's
lock.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.byteorder cimport load_i16, load_i32, load_i64
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE_POSITION,
    CONTROL_MASK,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.memory_records cimport MemoryRecords
from kafkalog._core.record_groups cimport RecordGroup
from kafkalog._core.run_builder cimport SpareBuilder, pack_group
from kafkalog._engine.append_info cimport append_info_of
from kafkalog._engine.epoch_state cimport EpochState
from kafkalog._engine.gate_state cimport GateState
from kafkalog._engine.histogram cimport Histogram, monotonic_ns
from kafkalog._engine.counters cimport LogCounters
from kafkalog._engine.segment_appender cimport SegmentAppender
from kafkalog._engine.snapshot cimport LogSnapshot, PublishedSnapshot

# Shared by all logs of the process; a call that finds it in use makes another one.
cdef SpareBuilder SPARE = SpareBuilder()

cdef str WRITTEN = "written"
cdef str DURABLE = "durable"


@cython.final
cdef class AppendLane:
    """
    The fast path of an append.

    Args:
        gate: whether the log takes appends.
        lock: the log's lock.
        published: where the log ends; its last segment takes the batches.
        epochs: the leader epochs.
        clock: gives the time of an append.
        undo: called under the lock with the error of a write: takes back what the write left, and
            may raise another error.
        ensure_writable: raises where the log is not open, or reopens the files of an idle log.
        producers: the producers (`ProducerStates`); None for a log that is open read-only.

    Attributes:
        rules: the settings of an append.
        has_followers: whether an append that succeeded has more to do: callbacks, or flushes by
            number of messages.

    Thread-safety: `configure` under the log's lock; the rest from any thread.
    """

    cdef readonly object rules
    cdef readonly bint has_followers
    cdef GateState _gate
    cdef PublishedSnapshot _published
    cdef EpochState _epochs
    cdef object _clock
    cdef object _undo
    cdef object _ensure_writable
    cdef object _producers
    cdef object _acquire
    cdef object _release

    def __cinit__(self, GateState gate not None, lock, PublishedSnapshot published not None,
                  EpochState epochs not None, clock, undo, ensure_writable, producers=None):
        self._gate = gate
        self._published = published
        self._epochs = epochs
        self._clock = clock
        self._undo = undo
        self._ensure_writable = ensure_writable
        self._producers = producers
        # Bound once: every append calls both.
        self._acquire = lock.acquire
        self._release = lock.release

    def __reduce__(self):
        raise TypeError("an AppendLane cannot be pickled or copied")

    def configure(self, rules, bint has_followers):
        """Set the rules of appends, and whether each of them has more to do when it is written."""
        self.rules = rules
        self.has_followers = has_followers

    def admit(self, wait):
        """
        Return the time of an append, before anything is made ready for it.

        Raises:
            ValueError: `wait` is not "written" or "durable".
            KafkaLogError: what `ensure_writable` raises.
        """
        if not self._gate.can_append():
            self._ensure_writable()
        if wait is not WRITTEN and wait != WRITTEN and wait != DURABLE:
            raise ValueError(f'wait must be "written" or "durable", got {wait!r}')
        return self._clock.now_ms()

    def append_group(self, RecordGroup group not None, int64_t timestamp_ms, int64_t size_limit,
                     int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """
        Append a group of records, in batches of a producer, all or none.

        Args:
            group: at least one record.
            timestamp_ms: of all records.
            size_limit: largest size of a batch.
            producer_id, producer_epoch, base_sequence: the producer; -1 for none.

        Returns:
            The AppendInfo; None, and nothing has changed, if the settings change or refuse such
            batches, or a record is too large; or the run, for the slow path.

        Raises:
            KafkaLogError: what `ensure_writable` raises, or the write.
        """
        cdef MemoryRecords run
        cdef AppendLimits limits
        cdef int64_t now_ms
        cdef object rules = self.rules
        if not self._gate.can_append():
            self._ensure_writable()
        if not rules.is_plain:
            return None
        now_ms = self._clock.now_ms()
        limits = rules.limits
        run = pack_group(SPARE, group, timestamp_ms, limits, now_ms,
                         min(size_limit, <int64_t>rules.segment_bytes), producer_id,
                         producer_epoch, base_sequence)
        if run is None:
            return None
        info = self.append(run)
        return run if info is None else info

    def append(self, MemoryRecords run not None):
        """
        Append a run; return its AppendInfo, or None, and nothing has changed, for the slow path.

        Crash points: within the write; a prefix of the run stays, with its last batch torn.
        Recovery keeps the whole batches and cuts the torn one.
        """
        cdef Histogram times = self._published.append_times
        cdef object producer = None
        # Before the lock: the wait for other appends is a part of the time.
        cdef int64_t started_ns = times.begin_sample()
        self._acquire()
        try:
            if run.has_producers:
                producer = self._producer_before(run)
            if (
                (run.has_producers and producer is None) or run.batches.count == 0
                or not self._gate.can_append() or not self._epochs.is_written(run)
            ):
                info = None
            else:
                info = self._write(run)
                if producer is not None and info is not None:
                    self._record(producer, run)
            if info is None:
                # The slow path begins its own sample.
                times.cancel_sample()
            elif started_ns:
                times.add(monotonic_ns() - started_ns)
            return info
        finally:
            self._release()

    cdef object _producer_before(self, MemoryRecords run):
        """Return the entry of the producer of one batch that is the next one; None otherwise."""
        cdef const uint8_t* header
        cdef bytearray data
        if run.batches.count != 1 or not run.needs_offsets or run.rebuild_at is not None:
            return None
        data = run.data
        if len(data) < RECORD_BATCH_OVERHEAD or self._producers is None:
            return None
        header = <const uint8_t*><char*>data
        if header[ATTRIBUTES_POSITION + 1] & (TRANSACTIONAL_MASK | CONTROL_MASK):
            return None
        return self._producers.find_next(
            load_i64(header + PRODUCER_ID_POSITION), load_i16(header + PRODUCER_EPOCH_POSITION),
            load_i32(header + BASE_SEQUENCE_POSITION),
        )

    cdef int _record(self, object producer, MemoryRecords run) except -1:
        """Record the batch of a producer, which was published."""
        cdef bytearray data = run.data
        cdef const uint8_t* header = <const uint8_t*><char*>data
        cdef int64_t last_offset = run.batches.rows[0].last_offset
        self._producers.record_next(
            producer, last_offset, last_offset - run.batches.rows[0].base_offset,
            load_i64(header + MAX_TIMESTAMP_POSITION),
        )
        return 0

    cdef object _write(self, MemoryRecords run):
        cdef LogSnapshot before = self._published.snapshot
        cdef tuple segments = before.segments.segments
        cdef object active = segments[len(segments) - 1]
        cdef SegmentAppender end = active.end
        cdef int64_t size = 0, waited_ms = 0
        cdef Py_ssize_t row
        cdef LogCounters counters = self._published.counters
        info = append_info_of(run, before.end_offset, self._epochs.current)
        if end.stage._state.rolling_timestamp < 0:
            waited_ms = active.age_ms()
        try:
            row = end.write(run.data, run.batches, waited_ms, &size)
            if row < run.batches.count:
                end.stage.restore()
                return None
            self._published.publish_end(run.batches.rows[row - 1].last_offset + 1,
                                        end.end_position())
        except BaseException as error:
            # Under the same lock: no other append may find what the write has left.
            self._undo(error)
            raise
        counters.append_count += 1
        counters.appended_batches += row
        counters.appended_records += run.record_count
        counters.appended_bytes += size
        return info
