"""Start positions of look-ups in a segment, from its indexes, compared with the batches.

An index entry is a hint. The batch that it names is read and compared before the entry is used; an
index that contradicts its batch is rebuilt, and the look-up is repeated once.

Only headers are read here, no CRC is checked. Thread-safety: from any thread, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalog._core.batch import find_offset
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.indexes.segment_index import SegmentIndex
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log.segment_file import SegmentFile

__all__ = [
    "WALK_BYTES",
    "IndexLookup",
    "ReadsAt",
    "read_header",
    "read_whole_header",
    "walk_headers",
]

# `find_offset` or `find_timestamp`: start of the first batch that reaches an offset or a time.
Find = Callable[[memoryview, int], tuple[int, int]]

OK = STATUS_CODES["OK"]
TRUNCATED = STATUS_CODES["TRUNCATED"]


class ReadsAt(Protocol):
    """The bytes of a segment, read at any position."""

    def read(self, position: int, size: int) -> memoryview: ...


# Bytes of one read while walking headers: holds every batch of the default index interval.
WALK_BYTES = 64 * 1024


def read_header(file: ReadsAt, position: int) -> BatchHeader:
    """Return the header of the batch at `position`; InvalidRecordError or CorruptRecordError."""
    return parse_header(file.read(position, RECORD_BATCH_OVERHEAD))


def read_whole_header(file: ReadsAt, position: int, end: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, None if it is damaged or reaches past `end`."""
    try:
        header = read_header(file, position)
    except (CorruptRecordError, InvalidRecordError):
        return None
    return header if header.size_bytes <= end - position else None


def walk_headers(
    file: ReadsAt, find: Find, sought: int, position: int, end: int
) -> tuple[int, int]:
    """
    Walk headers from `position`; return (position, OK) of the batch, or end and status.

    Not `walk_source`: a look-up takes 11,700 instructions here, 53,700 with its columns.
    """
    window_bytes = WALK_BYTES
    while position < end:
        window = file.read(position, min(window_bytes, end - position))
        reached, status = find(window, sought)
        position += reached
        if status != TRUNCATED or position >= end:
            return position, status
        window_bytes = WALK_BYTES
        if reached == 0:
            # One batch larger than the window, or cut by the end of the segment.
            header = read_whole_header(file, position, end)
            if header is None:
                return position, TRUNCATED
            window_bytes = header.size_bytes
    return position, TRUNCATED


class IndexLookup:
    """
    Starts for walks over the headers of one segment.

    Args:
        file: its bytes.
        base_offset: of the segment.
        offset_index, time_index: its indexes, which are rebuilt if they prove wrong.
    """

    def __init__(
        self,
        file: SegmentFile,
        base_offset: int,
        offset_index: SegmentIndex[OffsetIndexView],
        time_index: SegmentIndex[TimeIndexView],
    ) -> None:
        self._file = file
        self._base_offset = base_offset
        self._offset_index = offset_index
        self._time_index = time_index

    def start_for(self, offset: int) -> int:
        """
        Return the start of a batch at or before the batch with `offset`, its header checked.

        An entry of an old broker names the first offset of an append. A wrapper may begin there,
        whose header has its last offset. So a wrapper that ends after `offset` proves nothing:
        wrappers before it may contain `offset` as well, and the previous entry is used.
        """
        for _attempt in range(2):
            view = self._offset_index.view
            slot = view.lookup_slot(offset)
            while slot >= 0:
                entry_offset, position = view.entry(slot)
                if position == 0:
                    return 0
                header = self._promised(entry_offset, position)
                if header is None:
                    break
                if header.base_offset <= offset:
                    return position
                slot -= 1
            else:
                return 0
            self._offset_index.distrust()
        return 0

    def _promised(self, entry_offset: int, position: int) -> BatchHeader | None:
        """Return the header of the batch that an index entry names, None if the entry is wrong."""
        header = read_whole_header(self._file, position, self._file.size_bytes)
        if header is None or header.base_offset < self._base_offset:
            return None
        return header if header.is_wrapper or header.base_offset <= entry_offset else None

    def start_before(self, offset: int, start: int) -> int:
        """Return the position of the last index entry before `start`, 0 without a right one."""
        view = self._offset_index.view
        entries = (view.entry(slot) for slot in range(view.lookup_slot(offset), -1, -1))
        found = next((entry for entry in entries if entry[1] < start), (0, 0))
        return found[1] if self._promised(*found) else 0

    def start_for_time(self, timestamp_ms: int, end: int, following_offset: int) -> int:
        """
        Return a position with nothing at or above `timestamp_ms` before it.

        Entries of appends after `end`, where `following_offset` is, are not used. An entry below
        the time proves this, an entry of exactly that time does not: brokers before 0.11 name the
        end of an append, and earlier batches of the append may have the same time.
        """
        for _attempt in range(2):
            view = self._time_index.view
            timestamp, offset = view.lookup(timestamp_ms - 1)
            if offset >= following_offset:
                slot = view.floor_slot_by_offset(following_offset - 1)
                timestamp, offset = view.entry(slot) if slot >= 0 else (-1, offset)
            if timestamp < 0:
                return 0
            start = self.start_for(offset)
            position, status = walk_headers(self._file, find_offset, offset, start, end)
            has_no_time = False
            # The entry means: this batch has that timestamp, and no batch before it a larger one.
            # Its offset is the batch's last, or that of the record: brokers have written both.
            if status == OK:
                header = read_header(self._file, position)
                begins = header.is_wrapper or header.base_offset <= offset
                if begins and header.max_timestamp == timestamp:
                    return position
                # A broker that converted messages down to v0 has indexed their former times.
                has_no_time = header.magic == 0
            self._time_index.distrust(is_expected=has_no_time)
        return 0
