"""Batches of any format to columns of records, for a conversion: the part both directions share.

Columns are reused from batch to batch; what is decoded is good until the next is. Offsets rise from
record to record, also if the outer offset of an old wrapper is too low.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.records.batch_view import BatchView
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords
from kafkalog.records.reused_columns import ReusedColumns

__all__ = ["Decoder"]

_OK: Final = STATUS_CODES["OK"]
_FULL: Final = STATUS_CODES["FULL"]
_OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]
# Rows of one go over plain messages.
_CHUNK_ROWS: Final = 4096


class Decoder:
    """
    Decodes units into columns that it reuses.

    Args:
        limit_bytes: largest size of one batch uncompressed.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._reused = ReusedColumns(_CHUNK_ROWS, limit_bytes)
        self._next_offset = 0

    def plain(self, run: FileRecords, unit: ConversionUnit) -> Iterator[RecordColumns]:
        """Yield the records of plain messages, some thousand at a time; they point into the run."""
        columns = self._reused.columns
        position, status = unit.start, _FULL
        while position < unit.end:
            start = position
            columns.clear()
            _, _, position, status = decode_run(
                run.data, position, columns, end=unit.end, check_crc=False
            )
            if len(columns):
                self._ensure_rising(columns, run.position + start, run.path)
                yield columns
            if status not in (_OK, _FULL):
                check_status(status, run.position + position, run.path)

    def batch(self, view: BatchView) -> tuple[RecordColumns, Buffer]:
        """Return the records of one batch, and the buffer that they point into."""
        columns, buffer = self._reused.decode(view)
        if len(view):
            self._ensure_rising(columns, view.position, view.path)
        return columns, buffer

    def _ensure_rising(
        self, columns: RecordColumns, position: int, path: str | PathLike[str] | None
    ) -> None:
        first = int(columns.offset[0])
        if first < self._next_offset:
            check_status(_OFFSET_ORDER, position, path, first)
        self._next_offset = int(columns.offset[len(columns) - 1]) + 1
