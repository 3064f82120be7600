"""Look-ups in a log: a slice from an offset on, records by offset, offsets by timestamp.

A look-up is one compiled call, once a table has a reader of the segment; the slow path finds the
results that this call leaves open, and raises every error.
Look-ups of many arguments are sorted, so that each batch is found, checked and decoded once,
whatever number of the results lie in it.

Thread-safety: every method from any thread, while another writes; each call takes one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog._core.record import Record
from kafkalog._core.timestamps import to_timestamp_ms, to_timestamps_ms
from kafkalog._engine.fetch_data import FetchData
from kafkalog._engine.point_lookup import PointLookupTable, SegmentReaders
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import CorruptRecordError, KafkaLogError, LogStorageError
from kafkalog.log.aborted import aborted_between
from kafkalog.log.fetch import FETCH_PARTS
from kafkalog.log.isolation import Isolation
from kafkalog.log.local_log import LocalLog
from kafkalog.log.reader import LogReader
from kafkalog.log.reading import (
    fetch,
    find_latest,
    find_timestamp,
    find_timestamp_in,
    reaching_slots,
    try_records,
)
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import REMAP_BYTES
from kafkalog.log.view import LogView
from kafkalog.log.walk import check_wrapper
from kafkalog.model import TimestampOffset
from kafkalog.records.batch_view import BatchView

__all__ = ["EARLIEST_TIMESTAMP", "LATEST_TIMESTAMP", "MAX_TIMESTAMP", "LogLookup"]

# Kafka's names for the ends of a log, as timestamps of ListOffsets.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3

INT64_MAX: Final = 2**63 - 1

_Offsets = npt.NDArray[np.int64]


class LogLookup:
    """
    Looks records and offsets up in one log.

    Args:
        view: what a reader may see.
        reader: reads the batches that the fast path leaves.
        local: the published segments.

    Attributes:
        table: the fast path.

    Thread-safety: see the module.
    """

    def __init__(self, view: LogView, reader: LogReader, local: LocalLog) -> None:
        self._view = view
        self._reader = reader
        self._published = local.published
        self._counters = local.published.counters
        self.table = PointLookupTable(local.published, TimestampOffset, FETCH_PARTS)

    def invalidate(self) -> None:
        """Release the readers of segments, with their mappings; the next look-ups make others."""
        self.table.invalidate()

    # ----------------------------------------------------------------------------- one offset

    def read(
        self, offset: int, max_bytes: int, *, min_one_batch: bool, isolation: Isolation
    ) -> FetchData:
        """Return a slice of the log by the slow path; see `Log.read`."""
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be >= 0, got {max_bytes}")
        view = self._view
        snapshot, limit = view.visible(isolation)
        snapshot = view.check_range(snapshot, offset)
        if isolation == "read_uncommitted" and offset < snapshot.end_offset:
            self._try_cache_reader(snapshot, snapshot.segments.floor_slot(offset))
        while True:
            try:
                with view.errors():
                    fetched = fetch(
                        snapshot, offset, max_bytes, min_one_batch=min_one_batch, end_offset=limit
                    )
                    if isolation == "read_committed":
                        self._add_aborted(fetched, snapshot, limit)
                    if view.follows:
                        # Now: the other process may remove the file.
                        fetched.data  # noqa: B018
                    self._counters.add_read(0, fetched.size_bytes)
                    return fetched
            except (KafkaLogError, ValueError) as error:
                snapshot = view.refresh_after(error, snapshot, offset)

    def _add_aborted(self, fetched: FetchData, snapshot: LogSnapshot, limit: int) -> None:
        offset, end = fetched.start_offset, min(limit, fetched.following_offset)
        aborted = aborted_between(self._view.context, snapshot, offset, end)
        fetched.set_aborted(aborted)

    def get(self, offset: int, isolation: Isolation, check_crcs: bool) -> Record | None:
        """Return the record at `offset` by the slow path; see `Log.get`."""
        view = self._view
        snapshot, limit = view.visible(isolation)
        slot = view.check_range(snapshot, offset).segments.floor_slot(offset)
        record: Record | None
        if isolation == "read_uncommitted" and slot >= 0 and offset < limit:
            try:
                segment = snapshot.segments.segments[slot]
                self.cache_reader(snapshot, slot)
                record = segment.find_record(offset, snapshot.read_bound(slot), check_crcs)
            except (OSError, LogStorageError, ValueError) as error:
                view.context.report(error)
                record = None  # files gone, or the log closed: the slow path raises what it means
            if record is not None:
                self._counters.add_read(1, 0)
                return record
        if offset >= limit:
            return None
        try:
            record = next(self._reader.records(offset, offset + 1, isolation=isolation), None)
        except CorruptRecordError:
            record = self._get_below_segment(snapshot, offset, isolation)
            if record is None:
                raise
            return record
        return record or self._get_below_segment(snapshot, offset, isolation)

    def _get_below_segment(
        self, snapshot: LogSnapshot, offset: int, isolation: Isolation
    ) -> Record | None:
        """
        Return the record at an offset that the next segment has, below its base offset.

        A wrapper of an old format names its last offset, and may begin below the base offset of its
        segment.
        """
        segments = snapshot.segments.segments
        slot = snapshot.segments.floor_slot(offset) + 1
        if not 0 < slot < len(segments) or not segments[slot].begins_with_wrapper():
            return None
        end = segments[slot].base_offset + 1
        found = self._reader.records(offset, end, isolation=isolation, on_corrupt="skip")
        record = next(found, None)
        return record if record is not None and record.offset == offset else None

    # --------------------------------------------------------------------------- many offsets

    def get_many(
        self, offsets: Sequence[int] | _Offsets, *, isolation: Isolation, check_crcs: bool
    ) -> list[Record | None]:
        """Return the record at each offset; see `Log.get_many`."""
        view = self._view
        unique_offsets, order = np.unique(_int64(offsets), return_inverse=True)
        if not unique_offsets.size:
            view.ensure_open()
            return []
        snapshot, limit = view.visible(isolation)
        for end in (unique_offsets[0], unique_offsets[-1]):
            view.check_range(snapshot, int(end))
        visible = int(unique_offsets.searchsorted(limit))
        found: list[Record | None] = [None] * len(unique_offsets)
        if isolation == "read_uncommitted":
            # If files are gone, or the log was closed, the slow path raises what it means.
            try:
                self._find_uncompressed(
                    snapshot, unique_offsets[:visible], found, check_crcs=check_crcs
                )
            except (OSError, LogStorageError, ValueError) as error:
                view.context.report(error)
        left = [slot for slot in range(visible) if found[slot] is None]
        self._counters.add_read(visible - len(left), 0)
        self._find_left(unique_offsets, found, left, isolation)
        return [found[slot] for slot in order.tolist()]

    def _find_uncompressed(
        self,
        snapshot: LogSnapshot,
        offsets: _Offsets,
        found: list[Record | None],
        *,
        check_crcs: bool,
    ) -> None:
        """Find the records in batches that are not compressed, segment by segment."""
        first = 0
        while first < len(offsets):
            slot = snapshot.segments.floor_slot(int(offsets[first]))
            after = snapshot.segments.base_after(max(slot, 0))
            stop = len(offsets) if after is None else int(offsets.searchsorted(after))
            if slot >= 0:
                segment, bound = snapshot.segments.segments[slot], snapshot.read_bound(slot)
                if not (segment.corrupt_ranges and check_crcs):
                    segment.point_reader(bound).find_many(offsets, found, first, stop, check_crcs)
            first = stop

    def _find_left(
        self,
        offsets: _Offsets,
        found: list[Record | None],
        left: list[int],
        isolation: Isolation,
    ) -> None:
        """Find the records that are left, in any batch; each batch is decoded once."""
        limit_bytes = self._view.context.config.decompressed_max_bytes
        at = 0
        while at < len(left):
            offset = int(offsets[left[at]])
            try:
                batch = next(self._reader.batches(offset, offset + 1, isolation=isolation), None)
            except CorruptRecordError:
                batch = None
            at += 1
            if batch is None:
                # `get` raises the error, and reads the start of the next segment.
                found[left[at - 1]] = self.get(offset, isolation, True)
                continue
            slots = {offset: left[at - 1]}
            while at < len(left) and offsets[left[at]] <= batch.header.last_offset:
                slots[int(offsets[left[at]])] = left[at]
                at += 1
            if not batch.header.is_control:
                records = batch.records(limit_bytes=limit_bytes)
                check_wrapper(batch, records, None)
                for record in records:
                    slot = slots.get(record.offset)
                    if slot is not None:
                        found[slot] = record

    # ----------------------------------------------------------------------------- timestamps

    def offset_for_timestamp(
        self, timestamp_ms: int | datetime, isolation: Isolation, check_crcs: bool
    ) -> TimestampOffset | None:
        """Return the first record at or above a time; see `Log.offset_for_timestamp`."""
        if type(timestamp_ms) is not int:
            timestamp_ms = to_timestamp_ms(timestamp_ms, round_up=True)
        if isolation == "read_uncommitted":
            found: TimestampOffset | None = self.table.find_time(timestamp_ms, check_crcs)
            if found is not None:
                return found
        view = self._view
        snapshot, limit = view.visible(isolation)
        if timestamp_ms == EARLIEST_TIMESTAMP:
            start = snapshot.start_offset
            return TimestampOffset(-1, start, view.epochs(snapshot).epoch_for(start))
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(-1, limit, view.epochs(snapshot).latest)
        if timestamp_ms < 0 and timestamp_ms != MAX_TIMESTAMP:
            raise ValueError(f"timestamp must be >= 0 or one of Kafka's names, got {timestamp_ms}")
        while True:
            try:
                with view.errors():
                    if timestamp_ms == MAX_TIMESTAMP:
                        return find_latest(snapshot, limit)
                    first = find_timestamp(snapshot, timestamp_ms, limit, check_crcs)
                    if first is not None and isolation == "read_uncommitted":
                        self._cache_times(snapshot, snapshot.segments.floor_slot(first.offset))
                    return first
            except (KafkaLogError, ValueError) as error:
                snapshot = view.refresh_after(error, snapshot)

    def offsets_for_timestamps(
        self,
        timestamps: Sequence[int | datetime] | _Offsets,
        *,
        isolation: Isolation,
        check_crcs: bool,
    ) -> _Offsets:
        """Return the offset for each time; see `Log.offsets_for_timestamps`."""
        times = to_timestamps_ms(timestamps, "timestamps", round_up=True)
        unique_times, order = np.unique(times, return_inverse=True)
        if unique_times.size and unique_times[0] < 0:
            raise ValueError(f"timestamps must be >= 0, got {unique_times[0]}")
        view = self._view
        snapshot, limit = view.visible(isolation)
        while True:
            try:
                with view.errors():
                    found = _find_timestamps(snapshot, unique_times, limit, check_crcs=check_crcs)
                    return found[order.reshape(-1)]
            except (KafkaLogError, ValueError) as error:
                snapshot = view.refresh_after(error, snapshot)

    # --------------------------------------------------------------------- readers of segments

    def _try_cache_reader(self, snapshot: LogSnapshot, slot: int) -> None:
        """Cache the reader if possible. Errors are left to the read."""
        try:
            if slot >= 0:
                self.cache_reader(snapshot, slot)
        except (OSError, LogStorageError, ValueError) as error:
            self._view.context.report(error)

    def cache_reader(
        self, snapshot: LogSnapshot, slot: int, *, with_times: bool = False
    ) -> SegmentReaders | None:
        """Cache a reader, so that the next look-up in a segment is one call; return the readers."""
        view, segments = self._view, snapshot.segments
        # A log that follows another process must check the files each time, and a log with a high
        # watermark must check that offset.
        if view.follows or view.stable.visibility.high_watermark is not None:
            return None
        segment = segments.segments[slot]
        if segment.corrupt_ranges:
            return None  # a point reader would not see them
        if not segment.file.maps:
            return None  # a reader would hold a copy of all of it
        readers = self.table.readers
        if readers is None or readers.owner is not segments:
            capacity = view.context.config.mappings_max
            readers = SegmentReaders(segments, segments.bases, capacity, segments.segments)
            self.table.use(readers)
        bound, reader = snapshot.read_bound(slot), readers.reader(slot)
        with_times = with_times or (reader is not None and reader.has_times)
        if (
            reader is None
            or reader.is_lost
            or bound.end - len(reader) >= REMAP_BYTES
            or with_times > reader.has_times
        ):
            reader = segment.time_reader(bound) if with_times else segment.point_reader(bound)
            readers.put(slot, reader)
        if (
            view.is_closed
            or view.stable.visibility.high_watermark is not None
            or self._published.snapshot.segments is not segments
        ):
            # Changed since it was checked: `invalidate` came before this reader was cached.
            self.invalidate()
        return readers

    def _cache_times(self, snapshot: LogSnapshot, slot: int) -> None:
        """As `cache_reader`, for look-ups by time, which pass over the segments before."""
        readers = self.cache_reader(snapshot, slot, with_times=True)
        if readers is not None and readers.cached_time_count <= slot:
            readers.put_times([_latest_of(snapshot, number) for number in range(slot + 1)])


def _latest_of(snapshot: LogSnapshot, slot: int) -> int:
    """Return an upper bound of the times in the readable part of a segment."""
    bound, segments = snapshot.read_bound(slot), snapshot.segments
    if bound.following_offset <= snapshot.start_offset or bound.end == 0:
        return -1
    return INT64_MAX if slot + 1 == len(segments) else segments.segments[slot].max_timestamp


def _int64(numbers: Sequence[int] | _Offsets) -> _Offsets:
    made = np.asarray(numbers)
    if made.size and not np.issubdtype(made.dtype, np.integer):
        raise TypeError(f"offsets must be integers, got {made.dtype}")
    if made.ndim != 1:
        raise ValueError(f"offsets must be one-dimensional, got {made.ndim} dimensions")
    return made.astype(np.int64)


def _find_timestamps(
    snapshot: LogSnapshot, times: _Offsets, limit: int, *, check_crcs: bool
) -> _Offsets:
    """Return the offset for each time; the times rise."""
    found = np.full(len(times), -1, np.int64)
    start_offset, first, slot = snapshot.start_offset, 0, 0
    while slot < len(times):
        # A segment without an earlier time has no later one either.
        first = next(reaching_slots(snapshot, int(times[slot]), limit, first), -1)
        if first < 0:
            break
        segment, bound = snapshot.segments.segments[first], snapshot.read_bound(first)
        reader = segment.time_reader(bound)
        while slot < len(times):
            if not (segment.corrupt_ranges and check_crcs):
                slot = reader.find_times(times, found, slot, len(times), start_offset, check_crcs)
            if slot == len(times):
                break
            other = find_timestamp_in(segment, int(times[slot]), bound, start_offset)
            if other is None:
                first += 1
                break
            slot = _find_in_batch(*other, times, found, slot, segment)
    found[found >= limit] = -1
    return found


def _find_in_batch(
    record: TimestampOffset,
    batch: BatchView,
    unique_times: _Offsets,
    found: _Offsets,
    slot: int,
    segment: LogSegment,
) -> int:
    """Resolve the times that a record resolves, and its batch; return the first slot left."""
    first, slot = slot, int(unique_times.searchsorted(record.timestamp_ms, "right"))
    found[first:slot] = record.offset
    largest = batch.header.max_timestamp
    if slot == len(unique_times) or unique_times[slot] > largest:
        return slot
    records = try_records(batch, segment.decompressed_max_bytes, strict=False) or []
    rest = [(each.timestamp_ms, each.offset) for each in records if each.offset >= record.offset]
    if rest:
        times, offsets = np.array(rest, np.int64).T
        highest = np.maximum.accumulate(times)
        # A look-up of a later time than the header has does not come here.
        first, slot = slot, int(unique_times.searchsorted(min(int(highest[-1]), largest), "right"))
        found[first:slot] = offsets[highest.searchsorted(unique_times[first:slot])]
    return slot
