"""Filter of a run of plain batches: the second pass of a cleaning in one call.

The rules are those of the filter of the cleaner (`RecordFilter`), which filters runs with other
batches itself; both return the same bytes. The result of a run with an error is dropped: the
general path finds the error again, and reports it.

For each batch: its records become rows, each is kept or removed by its mark, or by its key without
marks, and the kept ones are written after the earlier ones while they are in the cache.

Thread-safety: none; one caller at a time.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.batch_rows cimport BatchRows, RunRows, load_plain
from kafkalog._core.columns cimport RecordColumns
from kafkalog._core.header cimport last_offset_of
from kafkalog._core.header_writer cimport write_batch_header
from kafkalog._core.layout cimport (
    BATCH_LENGTH_MAX,
    CODEC_MASK,
    CODEC_NONE,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
)
from kafkalog._core.mapping cimport check_object
from kafkalog._core.offset_map cimport OffsetMap, get_kernel, latest_kernel
from kafkalog._core.offset_table cimport OFFSET_ELSEWHERE, OFFSET_KEYLESS, KeyRows, OffsetTable
from kafkalog._core.record_filter cimport (
    ACTION_COPY,
    ACTION_DROP,
    ACTION_EMPTY,
    ACTION_REWRITE,
    RECORD_GROWTH_MAX,
    BatchFate,
    OutputSpace,
    RowRange,
    change_header,
    first_timestamp,
    judge_batch,
    records_kernel,
    retained_batch_kernel,
    space_left,
)
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_FULL,
    STATUS_OK,
    STATUS_TOO_LARGE,
)

cdef enum:
    # Result of the map for a record.
    SUPERSEDED = 0
    LATEST = 1
    BEYOND = 2                         # nothing: it stays whatever it is

    # Space for payloads that a codec makes larger; if it is too small, the general path is used.
    SPARE_BYTES = 1 << 16


cdef struct RunRules:
    int64_t now_ms
    int64_t delete_retention_ms
    int64_t end_offset
    int64_t max_message_bytes
    int64_t latest_offset              # of the map
    bint sets_delete_horizon


# Named as in CleaningStatistics.
cdef struct RunCounts:
    int64_t batches_read
    int64_t batches_copied
    int64_t batches_rewritten
    int64_t batches_emptied
    int64_t batches_grown
    int64_t records_read
    int64_t records_kept
    int64_t superseded
    int64_t tombstones_expired
    int64_t tombstones_kept
    int64_t keyless_dropped
    int64_t horizons_set


# A filter at work.
cdef struct FilterState:
    RunRules rules
    RunCounts counts
    BatchFate fate
    int64_t tombstones_kept            # of the batch
    OutputSpace target
    const OffsetTable* table
    const int64_t* producer_ids        # live ones; they rise
    const int64_t* last_offsets
    int64_t producer_count
    uint8_t* keep                      # of the rows of a batch
    int64_t* found


# ---- kernels ----


cdef int64_t _end_of_producer(const FilterState* state, int64_t producer_id) noexcept nogil:
    """Return the last offset of a live producer, -1 for another."""
    cdef int64_t low = 0
    cdef int64_t high = state.producer_count
    cdef int64_t middle
    while low < high:
        middle = low + (high - low) // 2
        if state.producer_ids[middle] < producer_id:
            low = middle + 1
        else:
            high = middle
    if low < state.producer_count and state.producer_ids[low] == producer_id:
        return state.last_offsets[low]
    return -1


cdef int _find_rows(FilterState* state, RunRows* rows) noexcept nogil:
    """Set the flags of the rows by the map."""
    cdef KeyRows keys
    cdef int64_t row = 0
    cdef int64_t i, found
    cdef int status
    cdef uint8_t* keep = state.keep
    if (
        state.table.mark_count > 0
        and state.table.part_count == 1
        and latest_kernel(
            state.table, rows.columns.offset, rows.count, state.rules.latest_offset, keep
        )
    ):
        return STATUS_OK
    keys.data = rows.data
    keys.data_size = rows.data_size
    keys.positions = rows.columns.key_position
    keys.sizes = rows.columns.key_size
    keys.offsets = NULL
    status = get_kernel(state.table, &keys, &row, rows.count, state.found)
    for i in range(rows.count):
        found = state.found[i]
        if rows.columns.offset[i] > state.rules.latest_offset or found == OFFSET_ELSEWHERE:
            keep[i] = BEYOND
        elif rows.columns.offset[i] >= found and found != OFFSET_KEYLESS:
            keep[i] = LATEST
        else:
            keep[i] = SUPERSEDED
    return status


cdef bint _is_end(FilterState* state, RunRows* rows, int64_t last_offset) noexcept nogil:
    """Return whether the header of a batch without records is still needed."""
    if last_offset + 1 == state.rules.end_offset:
        return True
    if rows.fields.producer_id < 0:
        return False
    return last_offset == _end_of_producer(state, rows.fields.producer_id)


cdef void _decide(FilterState* state, RunRows* rows) noexcept nogil:
    """Decide what becomes of a batch whose rows were judged, and count it."""
    cdef BatchFate* fate = &state.fate
    cdef RunCounts* counts = &state.counts
    cdef int64_t last_offset = last_offset_of(&rows.fields)
    cdef bint starts_horizon = (
        state.tombstones_kept > 0
        and state.rules.sets_delete_horizon
        and last_offset <= state.rules.latest_offset
    )
    judge_batch(
        fate,
        rows.count,
        starts_horizon,
        state.rules.now_ms + state.rules.delete_retention_ms,
        fate.kept == 0 and _is_end(state, rows, last_offset),
    )
    counts.horizons_set += fate.sets_horizon
    counts.batches_read += 1
    counts.batches_copied += 1 if fate.action == ACTION_COPY else 0
    counts.batches_rewritten += 1 if fate.action == ACTION_REWRITE else 0
    counts.batches_emptied += 1 if fate.action == ACTION_EMPTY else 0
    counts.records_read += rows.count
    counts.records_kept += fate.kept
    counts.tombstones_kept += state.tombstones_kept


cdef int _judge(FilterState* state, RunRows* rows) noexcept nogil:
    """Decide which rows stay, and what becomes of their batch."""
    cdef BatchFate* fate = &state.fate
    cdef RunCounts* counts = &state.counts
    cdef bint has_horizon = (rows.fields.attributes & DELETE_HORIZON_MASK) != 0
    cdef bint is_over = has_horizon and state.rules.now_ms >= rows.fields.base_timestamp
    cdef uint8_t* keep = state.keep
    cdef const int32_t* key_size = rows.columns.key_size
    cdef const int32_t* value_size = rows.columns.value_size
    cdef int64_t kept = 0
    cdef int64_t tombstones = 0
    cdef int64_t keyless = 0
    cdef int64_t expired = 0
    cdef int64_t i
    cdef uint8_t mark, goes
    cdef int status = _find_rows(state, rows)
    if status != STATUS_OK:
        return status
    for i in range(rows.count):
        mark = keep[i]
        goes = <uint8_t>((mark == LATEST) & is_over & (value_size[i] < 0))
        keep[i] = <uint8_t>((mark != SUPERSEDED) & (goes ^ 1))
        kept += keep[i]
        expired += goes
        keyless += (mark == SUPERSEDED) & (key_size[i] < 0)
        tombstones += keep[i] & (value_size[i] < 0)
    fate.kept = kept
    state.tombstones_kept = tombstones
    counts.keyless_dropped += keyless
    counts.tombstones_expired += expired
    counts.superseded += rows.count - kept - keyless - expired
    fate.has_horizon = has_horizon
    fate.horizon_ms = rows.fields.base_timestamp
    _decide(state, rows)
    return STATUS_OK


cdef int _plain_kernel(FilterState* state, RunRows* rows) noexcept nogil:
    """Filter batches up to the end, or to a compressed one."""
    cdef RowRange stays
    cdef const uint8_t* batch
    cdef int status
    while rows.cursor.position < rows.cursor.end:
        rows.count = 0
        batch = rows.cursor.position
        status = load_plain(rows)
        if status == STATUS_OK:
            status = _judge(state, rows)
        if status != STATUS_OK:
            return status
        if state.fate.action == ACTION_DROP:
            continue
        stays.start = 0
        stays.end = rows.count
        stays.base_timestamp = state.fate.horizon_ms
        status = retained_batch_kernel(
            rows.start, rows.data_size, batch, &rows.fields, &rows.columns, state.keep,
            &stays, state.fate.action, state.fate.has_horizon, &state.target,
        )
        if status != STATUS_OK:
            return status
    rows.count = 0
    return STATUS_OK


# ---- the filter ----


def output_bytes_for(int64_t run_bytes, int64_t plain_rows):
    """Return the size of the output that a run with this number of plain records needs."""
    return run_bytes + RECORD_GROWTH_MAX * plain_rows + SPARE_BYTES


cdef class RunFilter:
    """
    Filter of runs of plain batches, all by the same rules.

    Args:
        offset_map: complete, and not exact.
        now_ms, delete_retention_ms, end_offset, max_message_bytes: as in CleaningRules.
        sets_delete_horizon: as in RecordFilter.
        last_offsets: of live producers, by id.
        decompress: see `BatchRows`.
        compress: called with codec and records, a memoryview; returns bytes.

    Thread-safety: none; one caller at a time.
    """

    cdef FilterState _state
    cdef OffsetMap _map
    cdef object _decompress
    cdef object _compress
    cdef const int64_t[::1] _producer_ids
    cdef const int64_t[::1] _last_offsets
    cdef uint8_t[::1] _keep
    cdef int64_t[::1] _found
    cdef object _scratch               # records of a batch before they are compressed
    cdef uint8_t[::1] _scratch_octets

    def __cinit__(
        self,
        OffsetMap offset_map not None,
        *,
        int64_t now_ms,
        int64_t delete_retention_ms,
        int64_t end_offset,
        int64_t max_message_bytes,
        bint sets_delete_horizon,
        dict last_offsets not None,
        decompress not None,
        compress not None,
    ):
        if offset_map.exact:
            raise TypeError("same_keys must be given for an exact map")
        self._map = offset_map
        self._state.rules.now_ms = now_ms
        self._state.rules.delete_retention_ms = delete_retention_ms
        self._state.rules.end_offset = end_offset
        self._state.rules.max_message_bytes = max_message_bytes
        self._state.rules.sets_delete_horizon = sets_delete_horizon
        self._decompress = decompress
        self._compress = compress
        ids = sorted(last_offsets)
        # One more, so that there is something to point at.
        self._producer_ids = np.array([*ids, -1], np.int64)
        self._last_offsets = np.array([*map(last_offsets.__getitem__, ids), -1], np.int64)
        self._state.table = &offset_map._table
        self._state.producer_ids = &self._producer_ids[0]
        self._state.last_offsets = &self._last_offsets[0]
        self._state.producer_count = len(ids)
        self._reserve(1)
        self._make_scratch(1)

    cdef int _reserve(self, Py_ssize_t rows) except -1:
        self._keep = np.empty(rows, np.uint8)
        self._found = np.empty(rows, np.int64)
        self._state.keep = &self._keep[0]
        self._state.found = &self._found[0]
        return 0

    cdef int _make_scratch(self, Py_ssize_t size) except -1:
        self._scratch_octets = None
        self._scratch = memoryview(bytearray(size))
        self._scratch_octets = self._scratch
        return 0

    def filter(self, run not None, RecordColumns columns not None, uint8_t[::1] output not None):
        """
        Write what stays of a run.

        Args:
            run: plain batches (`survey_run`).
            columns: scratch columns, large enough for the records of the largest batch.
            output: target; `output_bytes_for` returns a sufficient size.

        Returns:
            (bytes written, status, counts by their names in CleaningStatistics). With any status
            but OK nothing of it counts.

        Raises: whatever `decompress` and `compress` do.
        """
        cdef BatchRows batches = BatchRows(run, columns, self._decompress)
        cdef RunRows* rows = &batches.rows
        cdef int status = STATUS_OK
        if self._keep.shape[0] < columns.capacity:
            self._reserve(columns.capacity)
        self._state.rules.latest_offset = self._map.latest_offset
        memset(&self._state.counts, 0, sizeof(RunCounts))
        self._state.target.position = &output[0]
        self._state.target.end = self._state.target.position + output.shape[0]
        while status == STATUS_OK and rows.cursor.position < rows.cursor.end:
            with nogil:
                status = _plain_kernel(&self._state, rows)
            if status == STATUS_COMPRESSED:
                status = batches.open_compressed()
                if status == STATUS_OK:
                    status = self._filter_compressed(rows)
                batches.close_compressed()
        check_object(run)
        return self._state.target.position - &output[0], status, <object>self._state.counts

    # ---- compressed batches ----

    cdef int _filter_compressed(self, RunRows* rows) except -1:
        """Write what stays of the batch that was opened."""
        cdef int64_t size = rows.fields.size_bytes
        cdef int status = _judge(&self._state, rows)
        if status != STATUS_OK or self._state.fate.action == ACTION_DROP:
            return status
        if self._state.fate.action == ACTION_REWRITE:
            return self._recompress(rows)
        if self._state.fate.action == ACTION_EMPTY:
            return self._wrap(rows, b"", NO_TIMESTAMP, NO_TIMESTAMP, 0)
        if space_left(&self._state.target) < size:
            return STATUS_FULL
        memcpy(self._state.target.position, rows.cursor.position - size, <size_t>size)
        self._state.target.position += size
        return STATUS_OK

    cdef int _recompress(self, RunRows* rows) except -1:
        cdef RowRange stays
        cdef OutputSpace target
        cdef int64_t needed = (
            rows.data_size + RECORD_GROWTH_MAX * rows.count + RECORD_BATCH_OVERHEAD
        )
        cdef int64_t limit = max(rows.fields.size_bytes, self._state.rules.max_message_bytes)
        cdef int codec = rows.fields.attributes & CODEC_MASK
        cdef int status
        if self._scratch_octets.shape[0] < needed:
            self._make_scratch(needed)
        target.position = &self._scratch_octets[0]
        target.end = target.position + self._scratch_octets.shape[0]
        stays.start = 0
        stays.end = rows.count
        stays.position = 0
        stays.base_timestamp = self._state.fate.horizon_ms
        if not self._state.fate.has_horizon:
            stays.base_timestamp = first_timestamp(
                &rows.columns, self._state.keep, 0, rows.count
            )
        status = records_kernel(
            rows.data, rows.data_size, &rows.columns, self._state.keep, &stays, &target
        )
        if status != STATUS_OK:
            return status
        records = self._scratch[:target.position - &self._scratch_octets[0]]
        payload = self._compress(codec, records)
        self._state.counts.batches_grown += RECORD_BATCH_OVERHEAD + len(payload) > limit
        return self._wrap(
            rows, payload, stays.base_timestamp, stays.max_timestamp, stays.count
        )

    cdef int _wrap(
        self,
        RunRows* rows,
        bytes payload,
        int64_t base_timestamp,
        int64_t max_timestamp,
        int64_t count,
    ) except -1:
        """Write a batch of compressed records, or of none."""
        cdef RowRange stays
        cdef int64_t size = RECORD_BATCH_OVERHEAD + len(payload)
        cdef int codec = rows.fields.attributes & CODEC_MASK if count > 0 else CODEC_NONE
        cdef bint has_horizon
        if size - LOG_OVERHEAD > BATCH_LENGTH_MAX:
            return STATUS_TOO_LARGE
        if space_left(&self._state.target) < size:
            return STATUS_FULL
        stays.base_timestamp = base_timestamp
        stays.max_timestamp = max_timestamp
        stays.count = count
        has_horizon = count > 0 and self._state.fate.has_horizon
        change_header(&rows.fields, &stays, has_horizon, codec)
        memcpy(
            self._state.target.position + RECORD_BATCH_OVERHEAD,
            <const uint8_t*>payload,
            <size_t>(size - RECORD_BATCH_OVERHEAD),
        )
        write_batch_header(self._state.target.position, size, &rows.fields)
        self._state.target.position += size
        return STATUS_OK
