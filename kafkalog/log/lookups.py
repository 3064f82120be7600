"""Many look-ups at once: records by their offsets, offsets by times.

What is asked for is sorted, so that each batch is found, summed up and decoded once, whatever
number of the answers lie in it.

Thread-safety: as of all reading; every call takes one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from kafkalog._core.record import Record
from kafkalog._core.timestamps import to_timestamps_ms
from kafkalog.errors import CorruptRecordError, KafkaLogError, LogStorageError
from kafkalog.log.isolation import Isolation
from kafkalog.log.local_log import LogSnapshot
from kafkalog.log.reading import find_timestamp_in, reaching_slots, try_records
from kafkalog.log.scannable import ScannableLog
from kafkalog.log.segment import LogSegment
from kafkalog.log.walk import check_wrapper
from kafkalog.model import TimestampOffset
from kafkalog.records.batch_view import BatchView

__all__ = ["LookupLog"]

_Offsets = npt.NDArray[np.int64]


class LookupLog(ScannableLog):
    """A log that is asked for many records, or many times, at once."""

    def get_many(
        self,
        offsets: Sequence[int] | _Offsets,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> list[Record | None]:
        """
        Return the record at each offset, in the order of the offsets, as `get` does.

        Offsets need no order, and may repeat. What lies in one batch costs its checks once.

        Args:
            offsets: in any order.
            isolation, check_crcs: as for `get`.

        Raises:
            OffsetOutOfRangeError: one is below the log start offset or above the log end offset.
            CorruptRecordError: one lies in a damaged range.
        """
        wanted, places = np.unique(_int64(offsets), return_inverse=True)
        if not wanted.size:
            self._ensure_open()
            return []
        snapshot, limit = self._visible(isolation)
        for end in (wanted[0], wanted[-1]):
            self._check_range(snapshot, int(end))
        visible = int(wanted.searchsorted(limit))
        found: list[Record | None] = [None] * len(wanted)
        if isolation == "read_uncommitted":
            # Where files are gone, or the log was closed, the long way says what it means.
            try:
                self._find_plain(snapshot, wanted[:visible], found, check_crcs)
            except (OSError, LogStorageError, ValueError) as error:
                self._local.context.report(error)
        left = [slot for slot in range(visible) if found[slot] is None]
        self._find_left(wanted, found, left, isolation)
        return [found[place] for place in places.tolist()]

    def offsets_for_timestamps(
        self,
        timestamps: Sequence[int | datetime] | _Offsets,
        *,
        isolation: Isolation = "read_uncommitted",
        check_crcs: bool = True,
    ) -> _Offsets:
        """
        Return for each time the offset that `offset_for_timestamp` finds, -1 where it finds none.

        Args:
            timestamps: milliseconds since 1970, or aware datetimes, none below 0, in any order.
            isolation, check_crcs: as for `offset_for_timestamp`.

        Returns:
            An int64 array of the same length.

        Raises:
            UnsupportedCodecError: the library for a batch's codec is not installed.
        """
        times = to_timestamps_ms(timestamps, "timestamps", round_up=True)
        wanted, places = np.unique(times, return_inverse=True)
        if wanted.size and wanted[0] < 0:
            raise ValueError(f"timestamps must be >= 0, got {wanted[0]}")
        snapshot, limit = self._visible(isolation)
        while True:
            try:
                with self._reading():
                    found = _find_timestamps(snapshot, wanted, limit, check_crcs)
                    return found[places.reshape(-1)]
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot)

    def _find_plain(
        self,
        snapshot: LogSnapshot,
        wanted: _Offsets,
        found: list[Record | None],
        check_crcs: bool,
    ) -> None:
        """Find what lies in batches that are not compressed, segment by segment."""
        first = 0
        while first < len(wanted):
            slot = snapshot.segments.floor_slot(int(wanted[first]))
            after = snapshot.segments.base_after(max(slot, 0))
            stop = len(wanted) if after is None else int(wanted.searchsorted(after))
            if slot >= 0:
                segment, bound = snapshot.segments.segments[slot], snapshot.read_bound(slot)
                if not (segment.corrupt_ranges and check_crcs):
                    segment.point_reader(bound).find_many(wanted, found, first, stop, check_crcs)
            first = stop

    def _find_left(
        self,
        wanted: _Offsets,
        found: list[Record | None],
        left: list[int],
        isolation: Isolation,
    ) -> None:
        """Find in any batch, each decoded once, what has not been found."""
        limit_bytes = self.config.decompressed_max_bytes
        at = 0
        while at < len(left):
            offset = int(wanted[left[at]])
            try:
                batch = next(self.batches(offset, offset + 1, isolation=isolation), None)
            except CorruptRecordError:
                batch = None
            at += 1
            if batch is None:
                # It says what is wrong, and looks at the start of the next segment.
                found[left[at - 1]] = self.get(offset, isolation=isolation)
                continue
            slots = {offset: left[at - 1]}
            while at < len(left) and wanted[left[at]] <= batch.header.last_offset:
                slots[int(wanted[left[at]])] = left[at]
                at += 1
            if not batch.header.is_control:
                records = batch.records(limit_bytes=limit_bytes)
                check_wrapper(batch, records, None)
                for record in records:
                    slot = slots.get(record.offset)
                    if slot is not None:
                        found[slot] = record


def _int64(numbers: Sequence[int] | _Offsets) -> _Offsets:
    made = np.asarray(numbers)
    if made.size and not np.issubdtype(made.dtype, np.integer):
        raise TypeError(f"integers are wanted, not {made.dtype}")
    if made.ndim != 1:
        raise ValueError(f"one row of numbers is wanted, not {made.ndim}")
    return made.astype(np.int64)


def _find_timestamps(
    snapshot: LogSnapshot, wanted: _Offsets, limit: int, check_crcs: bool
) -> _Offsets:
    """Return the offset for each of rising times."""
    found = np.full(len(wanted), -1, np.int64)
    start_offset, first, slot = snapshot.start_offset, 0, 0
    while slot < len(wanted):
        # What no earlier time was in is nothing for a later one.
        first = next(reaching_slots(snapshot, int(wanted[slot]), limit, first), -1)
        if first < 0:
            break
        segment, bound = snapshot.segments.segments[first], snapshot.read_bound(first)
        reader = segment.time_reader(bound)
        while slot < len(wanted):
            if not (segment.corrupt_ranges and check_crcs):
                slot = reader.find_times(wanted, found, slot, len(wanted), start_offset, check_crcs)
            if slot == len(wanted):
                break
            other = find_timestamp_in(segment, int(wanted[slot]), bound, start_offset)
            if other is None:
                first += 1
                break
            slot = _find_in_batch(*other, wanted, found, slot, segment)
    found[found >= limit] = -1
    return found


def _find_in_batch(
    record: TimestampOffset,
    batch: BatchView,
    wanted: _Offsets,
    found: _Offsets,
    slot: int,
    segment: LogSegment,
) -> int:
    """Answer for the times that a record answers, and its batch; return the first slot left."""
    first, slot = slot, int(wanted.searchsorted(record.timestamp_ms, "right"))
    found[first:slot] = record.offset
    largest = batch.header.max_timestamp
    if slot == len(wanted) or wanted[slot] > largest:
        return slot
    records = try_records(batch, segment.decompressed_max_bytes, strict=False) or []
    rest = [(each.timestamp_ms, each.offset) for each in records if each.offset >= record.offset]
    if rest:
        times, offsets = np.array(rest, np.int64).T
        highest = np.maximum.accumulate(times)
        # Who looks for a later time than the header has does not come here.
        first, slot = slot, int(wanted.searchsorted(min(int(highest[-1]), largest), "right"))
        found[first:slot] = offsets[highest.searchsorted(wanted[first:slot])]
    return slot
