"""Places in a log: a slice from an offset on, the record there, or the first at or above a time.

All go from the question to the answer in one compiled call, once a table knows the segments; what
that call leaves open is looked for with all the means of reading.

Thread-safety: everything may be called from any thread, while another writes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kafkalog._core.record import Record
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog._engine.point_lookup import PointLookupTable
from kafkalog.errors import CorruptRecordError, KafkaLogError, LogStorageError
from kafkalog.log.fetch import FetchData
from kafkalog.log.isolation import Isolation
from kafkalog.log.local_log import LogSnapshot
from kafkalog.log.reader import LogReader
from kafkalog.log.reading import fetch, find_latest, find_timestamp
from kafkalog.log.segment_file import REMAP_BYTES
from kafkalog.log.transactions import aborted_between
from kafkalog.model import TimestampOffset

__all__ = ["EARLIEST_TIMESTAMP", "LATEST_TIMESTAMP", "MAX_TIMESTAMP", "PointLog"]

# Kafka's names for the ends of a log, as timestamps of ListOffsets.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3

INT64_MAX: Final = 2**63 - 1

# Owned by nobody: it answers nothing, and nobody puts anything in.
NO_READERS: Final = PointLookupTable(None, (), 1)


class PointLog(LogReader):
    """A log that is asked for slices and single records."""

    _points = NO_READERS

    def read(
        self,
        offset: int,
        max_bytes: int = 1_048_576,
        *,
        min_one_batch: bool = True,
        isolation: Isolation = "read_uncommitted",
    ) -> FetchData:
        """
        Return a slice of the log that begins with the batch holding `offset`.

        Args:
            offset: first offset wanted.
            max_bytes: size of the slice at most, unless its first batch alone is larger.
            min_one_batch: whether that first batch is returned whole even so.
            isolation: "read_committed" ends at the last stable offset, and tells which transactions
                were aborted; "read_uncommitted" ends at the high watermark, "log_end" at the log
                end.

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptRecordError: the offset lies in a damaged range.
        """
        if isolation == "read_uncommitted":
            known: FetchData | None
            snapshot = self._local.snapshot
            known = self._points.slice(offset, max_bytes, min_one_batch, snapshot)
            if known is not None:
                return known
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; it must not be negative")
        snapshot, limit = self._visible(isolation)
        snapshot = self._check_range(snapshot, offset)
        if isolation == "read_uncommitted" and offset < snapshot.end_offset:
            self._try_cache_reader(snapshot, snapshot.segments.floor_slot(offset))
        while True:
            try:
                with self._reading():
                    fetched = fetch(
                        snapshot, offset, max_bytes, min_one_batch=min_one_batch, end_offset=limit
                    )
                    if isolation == "read_committed":
                        self._add_aborted(fetched, snapshot, limit)
                    if self._tail is not None:
                        # Now: the other process may take the file away.
                        fetched.data  # noqa: B018
                    return fetched
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot, offset)

    def _add_aborted(self, fetched: FetchData, snapshot: LogSnapshot, limit: int) -> None:
        offset, end = fetched.start_offset, min(limit, fetched.following_offset)
        aborted = aborted_between(self._local.context, snapshot, offset, end)
        fetched.aborted_transactions = tuple(aborted)

    def get(
        self,
        offset: int,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> Record | None:
        """
        Return the record at `offset`, None where there is none: compacted away, a control record,
        or the log end offset, which the next record gets.

        Nor is there one for this reader at the high watermark and above, or, with "read_committed",
        at the last stable offset and above, and where a transaction was aborted. With "log_end"
        there is one up to the log end. "read_uncommitted" is the fastest.

        Its key, value and headers are made when touched, as in `records`.

        Args:
            offset: of the record.
            isolation: as for `records`.
            check_crcs: whether the CRC of its batch must be right. Without, a record that is found
                at once is given as it lies there, as Kafka's broker does: for a disk that checks
                its blocks itself. What does not look right at once is checked all the same.

        Raises:
            OffsetOutOfRangeError: below the log start offset or above the log end offset.
            CorruptRecordError: the offset lies in a damaged range.
        """
        if isolation == "read_uncommitted":
            # There are points only while the log end is as far as a reader may go.
            record: Record | None = self._points.find(offset, self._local.snapshot, check_crcs)
            if record is not None:
                return record
        snapshot, limit = self._visible(isolation)
        slot = self._check_range(snapshot, offset).segments.floor_slot(offset)
        if isolation == "read_uncommitted" and slot >= 0 and offset < limit:
            try:
                segment = snapshot.segments.segments[slot]
                self._cache_reader(snapshot, slot)
                record = segment.find_record(offset, snapshot.read_bound(slot), check_crcs)
            except (OSError, LogStorageError, ValueError) as error:
                self._local.context.report(error)
                record = None  # files gone, or the log closed: the long way says what it means
            if record is not None:
                return record
        if offset >= limit:
            return None
        try:
            record = next(self.records(offset, offset + 1, isolation=isolation), None)
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
        Return the record at an offset that is in the segment behind the one that should have it.

        A wrapper of an old format names its last offset, and may begin below the base offset of its
        segment.
        """
        segments = snapshot.segments.segments
        slot = snapshot.segments.floor_slot(offset) + 1
        if not 0 < slot < len(segments) or not segments[slot].begins_with_wrapper():
            return None
        end = segments[slot].base_offset + 1
        found = self.records(offset, end, isolation=isolation, on_corrupt="skip")
        record = next(found, None)
        return record if record is not None and record.offset == offset else None

    def offset_for_timestamp(
        self,
        timestamp_ms: int | datetime,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> TimestampOffset | None:
        """
        Return the first record whose timestamp is at or above `timestamp_ms`, None for none.

        EARLIEST_TIMESTAMP gives the log start, LATEST_TIMESTAMP how far a reader may go: the high
        watermark, with "read_committed" the last stable offset, with "log_end" the log end.
        MAX_TIMESTAMP gives the first record that has the largest timestamp, and no answer lies
        where a reader may not go. As with a broker it may be a record of an aborted transaction, or
        the control record that ended one: it is a place to read from.

        Damaged ranges are passed over, and so is what cannot be decoded though its CRC is right,
        from there to the end of its batch: the answer is the first of the records that can be read,
        at the price that older ones may be hidden. `batches` shows them, and `records` raises.

        Args:
            timestamp_ms: milliseconds since 1970, an aware datetime, or one of Kafka's names.
            isolation: as for `records`.
            check_crcs: whether the CRC of the batch with the record must be right, as for `get`.

        Raises:
            UnsupportedCodecError: the library for a batch's codec is not installed.
        """
        if type(timestamp_ms) is not int:
            timestamp_ms = to_timestamp_ms(timestamp_ms, round_up=True)
        if isolation == "read_uncommitted":
            found: TimestampOffset | None
            found = self._points.find_time(timestamp_ms, self._local.snapshot, check_crcs)
            if found is not None:
                return found
        snapshot, limit = self._visible(isolation)
        if timestamp_ms == EARLIEST_TIMESTAMP:
            start = snapshot.start_offset
            return TimestampOffset(-1, start, self._known_epochs(snapshot).epoch_for(start))
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(-1, limit, self._known_epochs(snapshot).latest)
        if timestamp_ms < 0 and timestamp_ms != MAX_TIMESTAMP:
            raise ValueError(f"{timestamp_ms} is neither a time nor one of Kafka's names")
        while True:
            try:
                with self._reading():
                    if timestamp_ms == MAX_TIMESTAMP:
                        return find_latest(snapshot, limit)
                    first = find_timestamp(snapshot, timestamp_ms, limit, check_crcs)
                    if first is not None and isolation == "read_uncommitted":
                        self._cache_times(snapshot, snapshot.segments.floor_slot(first.offset))
                    return first
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot)

    def _invalidate_readers(self) -> None:
        """Let go of the mappings that are held for look-ups."""
        self._points = NO_READERS

    def _try_cache_reader(self, snapshot: LogSnapshot, slot: int) -> None:
        """As `_cache_reader`; where files are gone, or the log is closed, whoever reads them says
        so.
        """
        try:
            if slot >= 0:
                self._cache_reader(snapshot, slot)
        except (OSError, LogStorageError, ValueError) as error:
            self._local.context.report(error)

    def _cache_reader(self, snapshot: LogSnapshot, slot: int, *, with_times: bool = False) -> None:
        """See that the next look-up in a segment is one call."""
        # A log that follows another process has to look at the files each time, and one with a
        # high watermark how far that is.
        if self._tail is not None or self._stable.visibility.high_watermark is not None:
            return
        points, segments = self._points, snapshot.segments
        if segments.segments[slot].corrupt_ranges:
            return  # a point reader would not see them
        if not segments.segments[slot].file.maps:
            return  # a reader would hold a copy of all of it
        if points.owner is not segments:
            points = PointLookupTable(
                segments,
                segments.bases,
                self.config.mappings_max,
                TimestampOffset,
                FetchData,
                segments.segments,
            )
            self._points = points
        bound, reader = snapshot.read_bound(slot), points.reader(slot)
        with_times = with_times or (reader is not None and reader.has_times)
        if (
            reader is None
            or reader.is_lost
            or bound.end - len(reader) >= REMAP_BYTES
            or with_times > reader.has_times
        ):
            segment = segments.segments[slot]
            reader = segment.time_reader(bound) if with_times else segment.point_reader(bound)
            points.put(slot, reader)
        if (
            self._closed
            or self._stable.visibility.high_watermark is not None
            or self._local.snapshot.segments is not segments
        ):
            # So since we looked: whoever did it has forgotten the points of before these.
            self._invalidate_readers()

    def _cache_times(self, snapshot: LogSnapshot, slot: int) -> None:
        """As `_cache_reader`, for look-ups by time, which pass over the segments before."""
        self._cache_reader(snapshot, slot, with_times=True)
        points = self._points
        if points.owner is snapshot.segments and points.cached_time_count <= slot:
            points.put_times([_latest_of(snapshot, number) for number in range(slot + 1)])


def _latest_of(snapshot: LogSnapshot, slot: int) -> int:
    """Return a time that nothing in a segment, as far as it may be read, is above."""
    bound, segments = snapshot.read_bound(slot), snapshot.segments
    if bound.following_offset <= snapshot.start_offset or bound.end == 0:
        return -1
    return INT64_MAX if slot + 1 == len(segments) else segments.segments[slot].max_timestamp
