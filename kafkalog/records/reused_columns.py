"""Columns that are reused from batch to batch; only large batches need new memory.

Decoded records are valid until the next batch is decoded.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.records.batch_view import BatchView

__all__ = ["ReusedColumns"]

_RECORD_COUNT: Final = STATUS_CODES["RECORD_COUNT"]
# The most rows that are kept from one batch to the next.
_KEPT_ROWS: Final = 1 << 18
# Length, attributes, two deltas, two sizes and a count, a byte each: a record has no less.
_RECORD_BYTES_MIN: Final = 7


class ReusedColumns:
    """
    Columns for the records of one batch at a time, or of as many as fit.

    Args:
        rows: how many there are to begin with.
        limit_bytes: largest size of one batch uncompressed.

    Attributes:
        columns: for callers that fill them themselves; larger ones after a larger batch.
    """

    __slots__ = ("_limit_bytes", "columns")

    def __init__(self, rows: int, limit_bytes: int) -> None:
        self.columns = RecordColumns(rows)
        self._limit_bytes = limit_bytes

    def decode(self, view: BatchView) -> tuple[RecordColumns, Buffer]:
        """
        Return the records of one batch, and the buffer that they point into.

        Raises:
            CorruptRecordError: the batch is damaged, or too small for its record count.
        """
        _, start, end = view.payload(self._limit_bytes)
        count = len(view)
        if count > (end - start) // _RECORD_BYTES_MIN:
            # Before rows are made for records that cannot be there.
            check_status(_RECORD_COUNT, view.position, view.path, view.header.base_offset)
        columns = self.with_capacity(count)
        _, buffer = view.columns(columns, limit_bytes=self._limit_bytes)
        return columns, buffer

    def with_capacity(self, count: int) -> RecordColumns:
        """Return empty columns for so many rows, which are kept if they are not too many."""
        columns = self.columns
        if columns.capacity < count:
            columns = RecordColumns(count)
            if count <= _KEPT_ROWS:
                self.columns = columns
        columns.clear()
        return columns
