"""Keys read from the log again, for an exact offset map, which stores only their offsets.

A call has thousands of offsets, in no order. A record that is not compressed is found by a point
read. A compressed batch is decoded once, and the last decoded batches are cached: records that are
written together are often superseded together. The record at an offset never changes, so segments
may be replaced between calls.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from kafkalog._core.point_read import PointReader
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.log.reading import read_batches

__all__ = ["KeyReader"]

# Decoded batches that are cached.
_BATCHES_MAX: Final = 1024


class KeyReader:
    """
    Reader of keys by offset.

    Args:
        read_snapshot: returns the log as it is now.
        limit_bytes: largest size of one batch uncompressed.
    """

    def __init__(self, read_snapshot: Callable[[], LogSnapshot], limit_bytes: int) -> None:
        self._read_snapshot = read_snapshot
        self._limit_bytes = limit_bytes
        # By base offset of the segments of one snapshot. Readers of replaced segments would keep
        # their disk space in use.
        self._readers: dict[int, PointReader] = {}
        self._segments_of_readers: object = None
        # Base offset of a segment, and position in it -> keys by offset.
        self._batches: OrderedDict[tuple[int, int], dict[int, bytes | None]] = OrderedDict()

    def have_keys(self, offsets: Sequence[int], keys: Sequence[bytes]) -> list[bool]:
        """
        Return whether the record at each offset exists and has the key of the same row.

        Raises:
            CorruptRecordError: a batch is damaged.
            OSError: the disk failed.
        """
        snapshot = self._read_snapshot()
        if self._segments_of_readers is not snapshot.segments:
            self._readers, self._segments_of_readers = {}, snapshot.segments
        same = [False] * len(offsets)
        order = np.argsort(offsets)
        slots = np.searchsorted(snapshot.segments.bases, np.take(offsets, order), side="right") - 1
        slots_and_rows = zip(slots.tolist(), order.tolist(), strict=True)
        for slot, group in groupby(slots_and_rows, key=itemgetter(0)):
            find = self._reader(snapshot, max(slot, 0)).find
            for _, row in group:
                offset = offsets[row]
                record = find(offset)
                if record is not None:
                    same[row] = record.key == keys[row]
                else:
                    found = self._keys_around(snapshot, max(slot, 0), offset)
                    same[row] = offset in found and found[offset] == keys[row]
        return same

    def _reader(self, snapshot: LogSnapshot, slot: int) -> PointReader:
        base = snapshot.segments.bases[slot]
        reader = self._readers.get(base)
        if reader is None:
            segment = snapshot.segments.segments[slot]
            reader = self._readers[base] = segment.point_reader(snapshot.read_bound(slot))
        return reader

    def _keys_around(
        self, snapshot: LogSnapshot, slot: int, offset: int
    ) -> dict[int, bytes | None]:
        """Return the keys of the batch that holds an offset, or of the next batch."""
        segment = snapshot.segments.segments[slot]
        position = segment.find_position(offset, snapshot.read_bound(slot))
        if position is None:
            return {}
        batch_key = (segment.base_offset, position)
        keys = self._batches.get(batch_key)
        if keys is None or offset not in keys:
            batches = read_batches(snapshot, offset, snapshot.end_offset, on_corrupt="raise")
            records = next(batches).records(limit_bytes=self._limit_bytes)
            keys = {record.offset: record.key for record in records}
            self._batches[batch_key] = keys
            if len(self._batches) > _BATCHES_MAX:
                self._batches.popitem(last=False)
        return keys
