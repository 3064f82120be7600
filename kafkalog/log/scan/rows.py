"""Conversion of slices of a segment to batches of columns.

Batches whose records are all requested become columns in one step, compressed ones too; if that
needs a library, it decompresses some of them first. All others are decoded into positions and
sizes, some thousand rows at a time, filtered while they are in the near caches, and copied into the
batch under construction. A batch that one log does not fill is continued with the next log.

Rows before damage are yielded before its error is raised.

Thread-safety: none; a reader of rows belongs to one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from typing_extensions import Buffer

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.arrow_export import ArrowBatch
from kafkalog._core.batch import check_batch, scan_batches
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.compressed_decode import PayloadMemory, decode_compressed_run
from kafkalog._core.row_builder import RowBuilder
from kafkalog._core.row_filter import BatchRuns
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, KafkaLogError, UnsupportedCodecError
from kafkalog.layout import MAGIC_V2
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.options import ScanOptions
from kafkalog.log.walk import BatchEnd, check_wrapper_offsets
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import is_codec_of
from kafkalog.records.decompressed_batches import DecompressedBatches
from kafkalog.records.reused_columns import ReusedColumns

__all__ = ["RowReader", "check_crcs"]

OK = STATUS_CODES["OK"]
COMPRESSED = STATUS_CODES["COMPRESSED"]
CRC = STATUS_CODES["CRC"]
FULL = STATUS_CODES["FULL"]

# Positions and sizes of this many rows stay in the second cache, with their input and output.
ROWS = 2048


class _Decoded(NamedTuple):
    """Rows of adjacent batches: their source buffer, and whether it stays unchanged."""

    data: Buffer
    columns: RecordColumns
    is_lasting: bool


class RowReader:
    """
    Fills batches of columns.

    Args:
        options: columns and conditions of the records.
        passes_over: returns whether to skip a batch whose CRC is right, and which cannot be
            decoded, or raises another error; by `on_corrupt` if None.
    """

    def __init__(
        self,
        options: ScanOptions,
        passes_over: Callable[[BatchView, KafkaLogError], bool] | None = None,
    ) -> None:
        self._options = options
        self._passes_over = self._as_configured if passes_over is None else passes_over
        self._filter = options.conditions.row_filter()
        self._builder: RowBuilder = options.builder()
        self._collects_runs = self._builder.can_add_runs and not self._filter.has_conditions
        self._runs = BatchRuns()
        self._before: BatchEnd | None = None
        # Requested offsets of the current log, and the limit of its batches.
        self._start = self._end = self._limit_bytes = 0
        self._reused_columns: ReusedColumns | None = None
        self._decompressed: DecompressedBatches | None = None
        self._payload_memory: PayloadMemory | None = None

    def flush(self) -> Iterator[ArrowBatch]:
        """Yield the last batch, which may not be full."""
        if len(self._builder):
            yield self._builder.finish()

    def read(
        self,
        batch_slices: Iterator[BatchSlice],
        start: int,
        end: int,
        *,
        topic: str,
        partition: int,
        limit_bytes: int,
    ) -> Iterator[ArrowBatch]:
        """
        Yield batches as they become full.

        Args:
            batch_slices: slices of one log.
            start: first requested offset.
            end: one above the last.
            topic, partition: name of the log.
            limit_bytes: largest size of the records of one batch uncompressed.
        """
        self._start, self._end = start, end
        if limit_bytes != self._limit_bytes:
            self._limit_bytes = limit_bytes
            self._reused_columns = self._payload_memory = None
        self._builder.set_partition(topic, partition)
        self._before = None
        for batch_slice in batch_slices:
            if not batch_slice.is_wanted:
                check_crcs(batch_slice)
                continue
            if self._collects_runs:
                yield from self._add_runs(batch_slice)
            else:
                yield from self._add_all(
                    self._decode(batch_slice, batch_slice.first, batch_slice.stop)
                )

    def _add_runs(self, batch_slice: BatchSlice) -> Iterator[ArrowBatch]:
        """Add batches in one step; rows that the run does not accept are decoded one by one."""
        run = ArrowBatchRun(
            batch_slice.data,
            batch_slice.start_position,
            batch_slice.end_position,
            check_crc=not batch_slice.is_checked,
            offset_min=self._start,
            offset_end=self._end,
            compressed=not batch_slice.is_plain,
            limit_bytes=min(self._limit_bytes, sys.maxsize),
        )
        try:
            row = batch_slice.first
            while True:
                status = self._builder.add_run(run)
                if batch_slice.first + run.batch_count > row:
                    row = batch_slice.first + run.batch_count
                    self._record_end(batch_slice, row - 1)
                    self._resume()
                if status == OK:
                    return
                if status == FULL:
                    yield self._builder.finish()
                    continue
                if status == CRC:
                    batch_slice.reject(row)
                    return
                if status == COMPRESSED and self._decompress(batch_slice, run):
                    continue
                stop = _end_of_kind(batch_slice, row)
                yield from self._add_all(self._decode(batch_slice, row, stop))
                if batch_slice.rejected_row is not None or stop == batch_slice.stop:
                    return
                run.resume_at(int(batch_slice.batches.position[stop]), stop - row, self._start)
                row = stop
        finally:
            # The traceback of an error keeps this frame, usually in a cycle: its collection cannot
            # release a view whose buffer is in use.
            del run

    def _decompress(self, batch_slice: BatchSlice, run: ArrowBatchRun) -> bool:
        """Give a run the records of its next batches; return False if the first must be alone."""
        decompressed = self._decompressed
        if decompressed is None:
            decompressed = self._decompressed = DecompressedBatches()
        parts = run.list_compressed(decompressed.compressed_bytes)
        if not decompressed.fill(batch_slice.data, parts, self._limit_bytes):
            return False
        run.add_decompressed(parts, decompressed.memory, decompressed.ends)
        return True

    def _add_all(self, several: Iterator[_Decoded]) -> Iterator[ArrowBatch]:
        for decoded in several:
            if self._keep(decoded):
                yield from self._add(decoded)
            self._resume()

    def _reused(self) -> ReusedColumns:
        """Return columns of positions and sizes, made at the first use: most scans have none."""
        reused = self._reused_columns
        if reused is None:
            reused = self._reused_columns = ReusedColumns(ROWS, self._limit_bytes)
        return reused

    def _resume(self) -> None:
        if self._before is not None:
            # If the writer replaced the rest, the next batch may begin below.
            self._start = max(self._start, self._before.next_offset)

    def _keep(self, decoded: _Decoded) -> int:
        """Keep only requested rows in the columns; return their number."""
        columns, start, end = decoded.columns, self._start, self._end
        count = len(columns)
        if count and not self._filter.has_conditions:
            offsets = columns.offset
            if start <= offsets[0] and offsets[-1] < end:
                return count
        return self._filter.apply(decoded.data, columns, self._runs, start, end) if count else 0

    def _add(self, decoded: _Decoded) -> Iterator[ArrowBatch]:
        builder, columns = self._builder, decoded.columns
        row, count = 0, len(columns)
        while row < count:
            row = builder.add(decoded.data, columns, row, self._runs, lasting=decoded.is_lasting)
            if row < count or builder.is_full:
                yield builder.finish()

    def _decode(self, batch_slice: BatchSlice, row: int, stop: int) -> Iterator[_Decoded]:
        end = int(batch_slice.batches.position[stop - 1]) + int(
            batch_slice.batches.size_bytes[stop - 1]
        )
        while row < stop:
            columns = self._reused().with_capacity(1)
            count, status = self._decode_some(batch_slice, row, end, columns)
            if status == CRC and not count:
                batch_slice.reject(row)
                return
            if not count:
                # The CRC of compressed batches may not have been checked.
                is_checked = batch_slice.is_plain or batch_slice.is_checked
                if not is_checked and check_batch(batch_slice.view(row).data):
                    batch_slice.reject(row)
                    return
                # Alone it gets the memory it needs, or its error.
                yield from self._decode_batch(batch_slice, row)
                row += 1
                continue
            self._runs.clear()
            if self._builder.needs_batch_runs:
                self._runs.add_batches(batch_slice.batches, row, row + count)
            row += count
            self._record_end(batch_slice, row - 1)
            data: Buffer = batch_slice.data if batch_slice.is_plain else self._memory()
            yield _Decoded(data, columns, batch_slice.is_plain)

    def _decode_some(
        self, batch_slice: BatchSlice, row: int, end: int, columns: RecordColumns
    ) -> tuple[int, int]:
        """Decode batches from a row on; return their number, and the status of the next."""
        data, position = batch_slice.data, int(batch_slice.batches.position[row])
        check_crc = not batch_slice.is_checked
        if batch_slice.is_plain:
            _, count, _, status = decode_run(data, position, columns, end=end, check_crc=check_crc)
        else:
            _, count, _, status = decode_compressed_run(
                data, position, columns, self._memory(), end=end, check_crc=check_crc
            )
        return count, status

    def _memory(self) -> PayloadMemory:
        """Return the memory for decompressed batches, made at the first use."""
        if self._payload_memory is None:
            self._payload_memory = PayloadMemory(min(self._limit_bytes, sys.maxsize))
        return self._payload_memory

    def _decode_batch(self, batch_slice: BatchSlice, row: int) -> Iterator[_Decoded]:
        view = batch_slice.view(row)
        try:
            columns, data = self._reused().decode(view)
        except (CorruptRecordError, UnsupportedCodecError) as error:
            # The CRC is right, so these bytes were written like this: no batch is searched in them.
            if not self._passes_over(view, error):
                raise
            return
        if not self._fits(view, columns):
            return
        self._runs.clear()
        if self._builder.needs_batch_runs:
            self._collect_runs(view, columns)
        self._record_end(batch_slice, row)
        yield _Decoded(data, columns, batch_slice.is_plain)

    def _as_configured(self, view: BatchView, error: KafkaLogError) -> bool:
        if self._options.on_corrupt == "raise":
            return False
        # If only a library is missing, skipping the batch would hide it.
        is_missing = isinstance(error, UnsupportedCodecError)
        return not (is_missing and is_codec_of(view.header.magic, view.header.codec))

    def _fits(self, view: BatchView, columns: RecordColumns) -> bool:
        """Compare a wrapper with the batch before; return False if it is to be skipped."""
        if not view.header.is_wrapper or not len(columns):
            return True
        offsets = columns.offset
        try:
            check_wrapper_offsets(view, int(offsets[0]), int(offsets[-1]), self._before)
        except CorruptRecordError:
            if self._options.on_corrupt == "raise":
                raise
            return False
        return True

    def _collect_runs(self, view: BatchView, columns: RecordColumns) -> None:
        header, count = view.header, len(columns)
        if not header.is_wrapper:
            self._runs.add_batch(header, count)
            return
        # Messages inside may have the other old format, and so another timestamp type.
        for record in view.records():
            self._runs.add_message(header, record.timestamp_type)

    def _record_end(self, batch_slice: BatchSlice, row: int) -> None:
        """Record the end of the last decoded batch."""
        next_offset = int(batch_slice.batches.last_offset[row]) + 1
        self._before = BatchEnd(batch_slice.path, batch_slice.file_end(row), next_offset)


def _end_of_kind(batch_slice: BatchSlice, row: int) -> int:
    """Return the end of a run of messages of old formats that begins with a row."""
    is_new = batch_slice.batches.magic[row : batch_slice.stop] >= MAGIC_V2
    if is_new[0]:
        return row + 1
    return row + int(is_new.argmax()) if is_new.any() else batch_slice.stop


def check_crcs(batch_slice: BatchSlice) -> None:
    """Check the CRCs of batches that are skipped."""
    if not batch_slice.is_checked:
        start, end = batch_slice.start_position, batch_slice.end_position
        result = scan_batches(batch_slice.data, start, end=end)
        if result.status:
            batch_slice.reject(batch_slice.first + result.count)
