"""Many look-ups at once: records by their offsets, offsets by times.

What is asked for is sorted, so that each batch is found, summed up and decoded once, whatever
number of the answers lie in it.

Thread-safety: as of all reading; every call takes one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from kafkalog._core.record import Record
from kafkalog.errors import KafkaLogError
from kafkalog.log.isolation import Isolation
from kafkalog.log.local_log import Snapshot
from kafkalog.log.reading import find_timestamp, read_batches, try_records
from kafkalog.log.scannable import ScannableLog
from kafkalog.log.walk import check_wrapper

__all__ = ["LookupLog"]

_Offsets = npt.NDArray[np.int64]


class LookupLog(ScannableLog):
    """A log that is asked for many records, or many times, at once."""

    def get_many(
        self, offsets: Sequence[int] | _Offsets, *, isolation: Isolation = "read_uncommitted"
    ) -> list[Record | None]:
        """
        Return the record at each offset, in the order of the offsets, as `get` does.

        Offsets need no order, and may repeat. What lies in one batch costs its checks once.

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
            with suppress(OSError, ValueError):
                self._find_plain(snapshot, wanted[:visible], found)
        left = [slot for slot in range(visible) if found[slot] is None]
        self._find_left(wanted, found, left, isolation)
        return [found[place] for place in places.tolist()]

    def offsets_for_timestamps(
        self,
        timestamps: Sequence[int] | _Offsets,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> _Offsets:
        """
        Return for each time the offset that `offset_for_timestamp` finds, -1 where it finds none.

        Args:
            timestamps: milliseconds since 1970, none below 0, in any order.
            isolation: as for `offset_for_timestamp`.

        Returns:
            An int64 array of the same length.

        Raises:
            UnsupportedCodecError: the library for a batch's codec is not installed.
        """
        wanted, places = np.unique(_int64(timestamps), return_inverse=True)
        if wanted.size and wanted[0] < 0:
            raise ValueError(f"{wanted[0]} is no time")
        snapshot, limit = self._visible(isolation)
        while True:
            try:
                with self._reading():
                    found = _find_timestamps(snapshot, wanted, limit)
                    return found[places.reshape(-1)]
            except (KafkaLogError, ValueError) as error:
                snapshot = self._snapshot_after(error, snapshot)

    def _find_plain(self, snapshot: Snapshot, wanted: _Offsets, found: list[Record | None]) -> None:
        """Find what lies in batches that are not compressed, segment by segment."""
        first = 0
        while first < len(wanted):
            slot = snapshot.segments.floor_slot(int(wanted[first]))
            after = snapshot.segments.base_after(max(slot, 0))
            stop = len(wanted) if after is None else int(wanted.searchsorted(after))
            if slot >= 0:
                segment, bound = snapshot.segments.segments[slot], snapshot.bound_of(slot)
                segment.point_reader(bound).find_many(wanted, found, first, stop)
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
            batch = next(self.batches(offset, offset + 1, isolation=isolation), None)
            at += 1
            if batch is None:
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


def _find_timestamps(snapshot: Snapshot, wanted: _Offsets, limit: int) -> _Offsets:
    """Return the offset for each of rising times."""
    found = np.full(len(wanted), -1, np.int64)
    slot = 0
    while slot < len(wanted):
        first = find_timestamp(snapshot, int(wanted[slot]), limit)
        if first is None:
            break  # nor for any later time
        found[slot] = first.offset
        slot += 1
        # The same record answers for all times up to its own.
        stop = int(wanted.searchsorted(first.timestamp_ms, "right"))
        found[slot:stop] = first.offset
        slot = max(slot, stop)
        if slot < len(wanted):
            slot = _find_in_batch(snapshot, wanted, found, slot, first.offset, limit)
    return found


def _find_in_batch(
    snapshot: Snapshot, wanted: _Offsets, found: _Offsets, slot: int, offset: int, limit: int
) -> int:
    """Answer for the times that the rest of a batch answers; return the first slot left."""
    batch = next(read_batches(snapshot, offset, offset + 1, on_corrupt="skip"), None)
    if batch is None or batch.header.max_timestamp < wanted[slot]:
        return slot
    limit_bytes = snapshot.segments.active.decompressed_max_bytes
    records = try_records(batch, limit_bytes, strict=False) or []
    rest = [(each.timestamp_ms, each.offset) for each in records if offset <= each.offset < limit]
    if not rest:
        return slot
    times, offsets = np.array(rest, np.int64).T
    highest = np.maximum.accumulate(times)
    # Who looks for a later time than the header has does not come here.
    latest = min(int(highest[-1]), batch.header.max_timestamp)
    stop = int(wanted.searchsorted(latest, "right"))
    if stop <= slot:
        return slot
    found[slot:stop] = offsets[highest.searchsorted(wanted[slot:stop])]
    return stop
