"""Reader of a task: the ranges of one split, as batches of exactly the schema of the query.

No log is opened, and no file mapped but a damaged one (`kafkalog.log.ranges`): a task reads at the
same time as a writer, a cleaner or a broker, on any machine that sees the files. The driver has
fixed the ranges, so a repeated task returns the same rows.

Damage by mode:

    FAILFAST        an error with its code, after the rows before it
    PERMISSIVE      a row for each damaged range: its first offset, no key and no value, and the
                    error in the corrupt column if the schema has that
    DROPMALFORMED   nothing, but a warning

An unknown format or codec is an error in each mode: it may be good data.

Thread-safety: none; each call is one thread's. Nothing here imports pyspark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, segment_file_name
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.aborted import aborted_on_disk
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.options import ScanOptions, make_options
from kafkalog.log.scan.rows import RowReader
from kafkalog.records.batch_view import BatchView
from kafkalog.spark.damage_errors import error_of_batch, error_of_damage, resume_after
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, of_engine
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import EVERYTHING, FilterSet, LogSplit, SplitRange
from kafkalog.spark.row_converter import RowConverter
from kafkalog.spark.schema import Column

__all__ = ["SplitReader", "read_split"]

logger = logging.getLogger(__name__)


def read_split(
    split: LogSplit,
    columns: tuple[Column, ...],
    schema: pa.Schema,
    options: ReadOptions,
    filters: FilterSet = EVERYTHING,
    *,
    filesystem: FileSystem | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a split.

    Args:
        split: ranges of partitions.
        columns: of the schema, in its order.
        schema: of each batch, exactly.
        options: of the query.
        filters: conditions on records; a filter of times leaves out only what is cheap to find.
        filesystem: the disk; the machine's if None.

    Raises:
        KafkaLogSparkError: CORRUPT_BATCH, BATCH_TOO_LARGE, UNSUPPORTED, DATA_LOSS, STORAGE.
    """
    disk = PosixFileSystem() if filesystem is None else filesystem
    return SplitReader(columns, schema, options, filters, disk).read(split)


@dataclass(slots=True)
class _Segments:
    """The segments of the rows of a range, by the first offsets that they may have."""

    bases: list[int] = field(default_factory=list)

    def follow(self, batch_slices: Iterator[BatchSlice]) -> Iterator[BatchSlice]:
        """Pass slices on, and record their segments."""
        for batch_slice in batch_slices:
            base = int(batch_slice.path.stem)
            if not self.bases or base > self.bases[-1]:
                self.bases.append(base)
            yield batch_slice

    def names(self, offsets: npt.NDArray[np.int64]) -> list[str]:
        """Return the name of the segment's file for each offset."""
        named = [segment_file_name(base, FileKind.LOG) for base in self.bases]
        rows = np.searchsorted(np.array(self.bases, np.int64), offsets, side="right") - 1
        return [named[row] for row in rows.tolist()]


class SplitReader:
    """
    Reads splits for one query.

    Args: as of `read_split`.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        schema: pa.Schema,
        options: ReadOptions,
        filters: FilterSet,
        filesystem: FileSystem,
    ) -> None:
        self._options = options
        self._filters = filters
        self._disk = filesystem
        self._segments = _Segments()
        self._converter = RowConverter(
            columns, schema, lambda offsets: self._segments.names(offsets)
        )
        # A batch with rows of several partitions has no single list of segments.
        self._needs_segments = any(column.name == "segment" for column in columns)
        self._scan: ScanOptions = make_options(
            columns=self._converter.engine_columns,
            filters=filters.scan_filters(),
            isolation=options.isolation,
            on_corrupt="raise" if options.mode == "FAILFAST" else "skip",
            header_key_type="binary",
            batch_rows=options.arrow_batch_rows,
            batch_bytes=options.arrow_batch_bytes,
        )
        self._damaged: list[dict[str, Any]] = []

    def read(self, split: LogSplit) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split."""
        convert = self._converter.convert
        current: list[SplitRange] = []
        rows = RowReader(self._scan, lambda view, error: self._skip_batch(current[-1], view, error))
        try:
            for each in split.ranges:
                current.append(each)
                for batch in self._read_range(rows, each):
                    yield convert(batch)
                    yield from self._damaged_rows()
                if self._needs_segments:
                    yield from map(convert, rows.flush())
        except KafkaLogError as error:
            # The rows before the damage come before its error.
            yield from map(convert, rows.flush())
            name = current[-1]
            raise of_engine(error, topic=name.topic, partition=name.partition) from error
        yield from map(convert, rows.flush())
        yield from self._damaged_rows()

    def _read_range(self, rows: RowReader, split_range: SplitRange) -> Iterator[Any]:
        offsets = self._filters.offsets
        start, end = max(split_range.start, offsets.first), min(split_range.end, offsets.last + 1)
        if start >= end:
            return iter(())
        options, directory = self._options, Path(split_range.directory)
        aborted = None
        if options.isolation == "read_committed":
            aborted = aborted_on_disk(self._disk, directory, end)
        reader = RangeReader(
            self._disk,
            directory,
            start,
            end,
            RangeOptions(
                timestamps=self._filters.timestamps,
                aborted=aborted,
                check_crcs=options.check_crcs,
                max_batch_bytes=options.max_batch_bytes,
                retries=options.retries,
            ),
            on_damage=lambda damage: self._on_damage(split_range, start, damage),
            on_missing=lambda error: resume_after(split_range, error, options.on_data_loss),
        )
        batch_slices = reader.batch_slices()
        if self._needs_segments:
            self._segments = _Segments()
            batch_slices = self._segments.follow(batch_slices)
        return rows.read(
            batch_slices,
            start,
            end,
            topic=split_range.topic,
            partition=split_range.partition,
            limit_bytes=options.max_batch_bytes,
        )

    # ------------------------------------------------------------------------------- damage

    def _skip_batch(self, split_range: SplitRange, view: BatchView, error: KafkaLogError) -> bool:
        """Raise, or return to skip a batch that cannot be decoded, by the mode."""
        found = error_of_batch(split_range, view, error)
        if found.code is ErrorCode.UNSUPPORTED or self._options.mode == "FAILFAST":
            raise found from error
        self._record_damage(split_range, view.header.base_offset, split_range.start, found)
        return True

    def _on_damage(self, split_range: SplitRange, start: int, damage: Damage) -> None:
        found = error_of_damage(split_range, damage, self._options.max_batch_bytes)
        if found.code is ErrorCode.UNSUPPORTED or self._options.mode == "FAILFAST":
            raise found
        self._record_damage(split_range, damage.corrupt_range.first_offset, start, found)

    def _record_damage(
        self, split_range: SplitRange, first_offset: int, start: int, found: KafkaLogSparkError
    ) -> None:
        """Keep damage that becomes a row, unless a filter leaves it out or another task has it."""
        if split_range.follows and first_offset < split_range.start:
            return
        offset = max(first_offset, start)
        logger.warning("%s", found)
        conditions = self._filters.conditions
        has_key = conditions.keys is None or None in conditions.keys
        if self._options.mode != "PERMISSIVE" or not has_key or offset not in conditions.offsets:
            return
        path, text = found.detail["path"], {"code": found.code, "message": found.message}
        self._damaged.append(
            {
                "topic": split_range.topic,
                "partition": split_range.partition,
                "offset": offset,
                "segment": Path(str(path)).name,
                self._options.corrupt_column: json.dumps(text | found.detail, default=str),
            }
        )

    def _damaged_rows(self) -> Iterator[pa.RecordBatch]:
        if self._damaged:
            rows, self._damaged = self._damaged, []
            yield self._converter.rows(rows)
