"""New batches at the end of a log's last segment: the fast path of a follower.

A read-only log finds its end, and reads again from there; here the new bytes are read once, and
decoded. Only plain batches are: whole, of format v2, with the next offset and the leader epoch
of the record before. After a truncation new records have a higher epoch, so these are of the same
log, whatever happened to it. The caller uses the log for anything else: another segment, a
corrupt or very large batch.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.zeros import is_zero
from kafkalog.layout import MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.records.batch_view import BatchView

__all__ = ["AppendedBytes", "NewRecords"]

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
READ_BATCHES: Final = 64
_GOOD: Final = (STATUS_CODES["OK"], STATUS_CODES["FULL"], STATUS_CODES["TRUNCATED"])


class NewRecords(NamedTuple):
    """
    Result of a read.

    Attributes:
        records: the records, without control records.
        next_offset: offset after the last batch that was read.
        has_more: whether there may be more already.
    """

    records: list[Record]
    next_offset: int
    has_more: bool


class AppendedBytes:
    """
    Bytes of the last segment from a position on.

    Args:
        filesystem: the disk.
        path: the segment.
        position: end of the bytes that were read.
        next_offset: offset of the next batch.
        leader_epoch: leader epoch of the record before.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        position: int,
        next_offset: int,
        leader_epoch: int,
    ) -> None:
        self.name = path.name
        self._path = path
        self._position = position
        self._next_offset = next_offset
        self._leader_epoch = leader_epoch
        self._columns = BatchColumns(READ_BATCHES)
        self._handle = filesystem.open(path)

    def read(self, count: int, size_bytes: int, end_offset: int) -> NewRecords | None:
        """
        Return the records of new batches; None if the caller must use the log.

        Args:
            count: largest number of records.
            size_bytes: sum of value sizes from which no more are added.
            end_offset: batches that reach it or begin above it are left.

        Raises:
            OSError: the disk refused.
        """
        data = self._handle.pread(READ_BYTES, self._position)
        columns = self._columns
        columns.clear()
        scan = scan_batches(data, columns=columns, next_offset=self._next_offset)
        if scan.status not in _GOOD and not is_zero(data[scan.position :]):
            return None
        if not scan.count:
            return self._without_batches(data)
        view, records = memoryview(data), list[Record]()
        for row in range(scan.count):
            if int(columns.last_offset[row]) >= end_offset:
                return NewRecords(records, self._next_offset, has_more=False)
            if (
                columns.base_offset[row] != self._next_offset
                or columns.leader_epoch[row] != self._leader_epoch
                or columns.magic[row] != MAGIC_V2
            ):
                return self._before_odd_batch(records)
            start, size = int(columns.position[row]), int(columns.size_bytes[row])
            batch = BatchView(view[start : start + size], path=self._path, position=self._position)
            try:
                decoded = [] if batch.header.is_control else batch.records()
            except KafkaLogError:
                return self._before_odd_batch(records)
            if len(records) + len(decoded) > count or size_bytes <= 0:
                # Of a batch with more records than may be returned, the log returns a part.
                if not records:
                    return None
                return NewRecords(records, self._next_offset, has_more=True)
            records += decoded
            size_bytes -= sum(len(record.value or b"") for record in decoded)
            self._next_offset = batch.header.next_offset
            self._position += size
        has_more = scan.status == STATUS_CODES["FULL"] or len(data) == READ_BYTES
        return NewRecords(records, self._next_offset, has_more)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _without_batches(self, data: bytes) -> NewRecords | None:
        """Return nothing where no whole batch is yet; None if that may not be the reason."""
        if len(data) < READ_BYTES or is_zero(data[:RECORD_BATCH_OVERHEAD]):
            return NewRecords([], self._next_offset, has_more=False)
        return None

    def _before_odd_batch(self, records: list[Record]) -> NewRecords | None:
        """Return the records before a batch that the log must read."""
        return NewRecords(records, self._next_offset, has_more=True) if records else None
