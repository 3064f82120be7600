"""The keys of records that an exact map knows by their offsets, read from the log again.

Asked for many records at a time. A batch is decoded once for all of them, and the last ones are
remembered: what is written together is superseded together. What stands at an offset never changes,
so it does not matter that segments are exchanged meanwhile.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from kafkalog.log.local_log import Snapshot
from kafkalog.log.reading import read_batches

__all__ = ["KeyReader"]

# Decoded batches that are remembered.
_BATCHES_MAX: Final = 256


class KeyReader:
    """
    Reads keys by offset.

    Args:
        take: returns the log as it is now.
        limit_bytes: largest size of one batch uncompressed.
    """

    def __init__(self, take: Callable[[], Snapshot], limit_bytes: int) -> None:
        self._take = take
        self._limit_bytes = limit_bytes
        # Base offset of a segment, and position in it -> keys by offset.
        self._batches: OrderedDict[tuple[int, int], dict[int, bytes | None]] = OrderedDict()

    def have_keys(self, offsets: Sequence[int], keys: Sequence[bytes]) -> list[bool]:
        """
        Return whether the record at each offset is there and has the key beside it.

        Raises:
            CorruptRecordError: a batch is damaged.
            OSError: the disk failed.
        """
        snapshot = self._take()
        same = [False] * len(offsets)
        for row in sorted(range(len(offsets)), key=offsets.__getitem__):
            found = self._keys_around(snapshot, offsets[row])
            same[row] = offsets[row] in found and found[offsets[row]] == keys[row]
        return same

    def _keys_around(self, snapshot: Snapshot, offset: int) -> dict[int, bytes | None]:
        """Return the keys of the batch that holds an offset, or of the one behind it."""
        slot = max(snapshot.segments.floor_slot(offset), 0)
        segment = snapshot.segments.segments[slot]
        position = segment.find_position(offset, snapshot.bound_of(slot))
        if position is None:
            return {}
        place = (segment.base_offset, position)
        keys = self._batches.get(place)
        if keys is None or offset not in keys:
            batches = read_batches(snapshot, offset, snapshot.end_offset, on_corrupt="raise")
            records = next(batches).records(limit_bytes=self._limit_bytes)
            keys = {record.offset: record.key for record in records}
            self._batches[place] = keys
            if len(self._batches) > _BATCHES_MAX:
                self._batches.popitem(last=False)
        return keys
