"""Views of a log for which no record is decoded: its partitions, segments, batches, its health.

    view=partitions   a row for each partition: its range, its segments, its bytes
    view=segments     a row for each segment: batches and records, counted by their headers
    view=batches      a row for each batch: the fields of its header
    view=verify       a row for each segment: the result of a check of every CRC

`segments` and `batches` apply the options of a query of records: its range, its isolation, its
modes of bad input; the records of all segments are as many as such a query returns. `verify` reads
whole files, raises for no damage, and reports what it finds.

Thread-safety: pure functions over files. Nothing here imports pyspark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.layout import (
    CODEC_MASK,
    CONTROL_MASK,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog.log.aborted import aborted_on_disk
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.rows import check_crcs
from kafkalog.records.codecs import Codec
from kafkalog.spark.damage_errors import error_of_damage, resume_after
from kafkalog.spark.errors import of_engine
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import Bounds, LogSplit, QuerySnapshot, SplitRange
from kafkalog.spark.row_converter import times_of
from kafkalog.spark.segment_verification import verify_segment

__all__ = ["PartitionRows", "ViewSplit", "plan_view", "read_view"]

logger = logging.getLogger(__name__)

_CODECS: Final = {codec.value: codec.kafka_name for codec in Codec}
_PARTITIONS_A_TASK: Final = 10_000


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of the view of partitions, which planning has already."""

    rows: tuple[dict[str, Any], ...]


ViewSplit = LogSplit | PartitionRows


def plan_view(snapshot: QuerySnapshot, bounds: Bounds, options: ReadOptions) -> Sequence[ViewSplit]:
    """Return the tasks of a view whose rows are partitions or whole segments."""
    if options.view == "partitions":
        rows = [_partition_row(snapshot, row) for row in range(len(snapshot))]
        starts = range(0, len(rows), _PARTITIONS_A_TASK)
        return [PartitionRows(tuple(rows[start : start + _PARTITIONS_A_TASK])) for start in starts]
    return list(_packed(_segment_ranges(snapshot, bounds, options), options.split_bytes))


def _partition_row(snapshot: QuerySnapshot, row: int) -> dict[str, Any]:
    bases, sizes = snapshot.segments_of(row)
    return {
        "topic": snapshot.topics[row],
        "partition": int(snapshot.partitions[row]),
        "directory": snapshot.directories[row],
        "logStartOffset": int(snapshot.log_starts[row]),
        "logEndOffset": int(snapshot.log_ends[row]),
        "visibleEndOffset": int(snapshot.visible_ends[row]),
        "segmentCount": len(bases),
        "sizeBytes": sum(sizes),
    }


def _segment_ranges(
    snapshot: QuerySnapshot, bounds: Bounds, options: ReadOptions
) -> Iterator[tuple[SplitRange, int]]:
    """
    Yield each segment as a range with its size; whole for `verify`, else the part in the bounds.
    """
    is_whole = options.view == "verify"
    for row, directory in enumerate(snapshot.directories):
        bases, sizes = snapshot.segments_of(row)
        log_end = int(snapshot.log_ends[row])
        lower = 0 if is_whole else int(bounds.starts[row])
        upper = log_end if is_whole else int(bounds.ends[row])
        topic, number = snapshot.topics[row], int(snapshot.partitions[row])
        for base, following, size in zip(bases, [*bases[1:], log_end], sizes, strict=True):
            start, stop = max(base, lower), min(following, upper)
            if start < stop or is_whole:
                yield SplitRange(directory, topic, number, start, max(stop, start)), size


def _packed(ranges: Iterable[tuple[SplitRange, int]], split_bytes: int) -> Iterator[LogSplit]:
    """Combine neighbours until a task is large enough."""
    held: list[SplitRange] = []
    held_bytes = 0
    for each, size in ranges:
        if held and held_bytes + size > split_bytes:
            yield LogSplit(tuple(held), held_bytes)
            held, held_bytes = [], 0
        held.append(each)
        held_bytes += size
    if held:
        yield LogSplit(tuple(held), held_bytes)


def read_view(
    split: ViewSplit,
    schema: pa.Schema,
    options: ReadOptions,
    *,
    filesystem: FileSystem | None = None,
) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a view.

    Raises:
        KafkaLogSparkError: CORRUPT_BATCH, BATCH_TOO_LARGE, UNSUPPORTED, DATA_LOSS, STORAGE.
    """
    disk = PosixFileSystem() if filesystem is None else filesystem
    if isinstance(split, PartitionRows):
        yield _of_rows(split.rows, schema)
        return
    for split_range in split.ranges:
        try:
            match options.view:
                case "batches":
                    yield from _batch_rows(disk, split_range, schema, options)
                case "segments":
                    yield _of_rows([_segment_row(disk, split_range, options)], schema)
                case _:
                    yield _of_rows([verify_segment(disk, split_range, options)], schema)
        except KafkaLogError as error:
            raise of_engine(
                error, topic=split_range.topic, partition=split_range.partition
            ) from error


def _of_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batch_slices(
    disk: FileSystem, split_range: SplitRange, options: ReadOptions
) -> Iterator[BatchSlice]:
    """Yield the batches of a range, with the query's rules for damage and loss."""

    def meet(damage: Damage) -> None:
        found = error_of_damage(split_range, damage, options.max_batch_bytes)
        if options.mode == "FAILFAST" or damage.unknown_magic is not None:
            raise found
        logger.warning("%s", found)

    directory = Path(split_range.directory)
    aborted = None
    if options.isolation == "read_committed":
        aborted = aborted_on_disk(disk, directory, split_range.end)
    reader = RangeReader(
        disk,
        directory,
        split_range.start,
        split_range.end,
        RangeOptions(
            aborted=aborted,
            check_crcs=options.check_crcs,
            max_batch_bytes=options.max_batch_bytes,
            retries=options.retries,
        ),
        on_damage=meet,
        on_missing=lambda error: resume_after(split_range, error, options.on_data_loss),
    )
    return reader.batch_slices()


# ---- batches ----------------------------------------------------------------------------------


def _batch_rows(
    disk: FileSystem, split_range: SplitRange, schema: pa.Schema, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    for batch_slice in _batch_slices(disk, split_range, options):
        check_crcs(batch_slice)
        stop = batch_slice.stop if batch_slice.rejected_row is None else batch_slice.rejected_row
        rows = np.arange(batch_slice.first, stop)
        # A batch on the border of two tasks belongs to the task of its last offset.
        last = batch_slice.batches.last_offset[rows]
        rows = rows[(last >= split_range.start) & (last < split_range.end)]
        if len(rows):
            cells = _batch_cells(batch_slice, rows, split_range)
            arrays = [_array(cells[field.name], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(cells: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(cells, pa.int64()).cast(kind)
    return pa.array(cells, kind)


def _batch_cells(
    batch_slice: BatchSlice, rows: npt.NDArray[np.int64], split_range: SplitRange
) -> dict[str, Any]:
    """Return the cells of some batches, by column."""
    batches, count = batch_slice.batches, len(rows)
    attributes, magic = batches.attributes[rows], batches.magic[rows]
    types = np.where(attributes & TIMESTAMP_TYPE_MASK != 0, 1, 0)
    codecs = (attributes & CODEC_MASK).tolist()
    return {
        "topic": [split_range.topic] * count,
        "partition": np.full(count, split_range.partition, np.int32),
        "segment": [batch_slice.path.name] * count,
        "position": batches.position[rows] + batch_slice.origin,
        "sizeBytes": batches.size_bytes[rows],
        "baseOffset": batches.base_offset[rows],
        "lastOffset": batches.last_offset[rows],
        "recordCount": batches.record_count[rows],
        "baseTimestamp": times_of(batches.base_timestamp[rows]),
        "maxTimestamp": times_of(batches.max_timestamp[rows]),
        "timestampType": np.where(magic == 0, -1, types).astype(np.int32),
        "compression": [_CODECS.get(number, str(number)) for number in codecs],
        "magic": magic.astype(np.int32),
        "producerId": batches.producer_id[rows],
        "producerEpoch": batches.producer_epoch[rows].astype(np.int32),
        "baseSequence": batches.base_sequence[rows],
        "leaderEpoch": batches.leader_epoch[rows],
        "isTransactional": (attributes & TRANSACTIONAL_MASK != 0) & (magic == MAGIC_V2),
        "isControl": (attributes & CONTROL_MASK != 0) & (magic == MAGIC_V2),
    }


# ---- segments ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Counts:
    """Counts from the headers of a range."""

    batches: int = 0
    records: int = 0
    controls: int = 0
    size_bytes: int = 0
    max_timestamp: int = -1

    def add(self, batch_slice: BatchSlice, split_range: SplitRange) -> None:
        """Count a slice; of a batch across the border of the range, the part inside."""
        batches = batch_slice.batches
        rows = np.arange(batch_slice.first, batch_slice.stop)
        rows = rows[batches.last_offset[rows] >= split_range.start]
        if not len(rows):
            return
        self.batches += len(rows)
        self.size_bytes += int(batches.size_bytes[rows].sum())
        self.max_timestamp = max(self.max_timestamp, int(batches.max_timestamp[rows].max()))
        is_control = batches.attributes[rows] & CONTROL_MASK != 0
        self.controls += int((is_control & (batches.magic[rows] == MAGIC_V2)).sum())
        if not batch_slice.is_wanted:
            return
        counts = batches.record_count[rows]
        # A wrapper of an old format does not have the number of its records: -1.
        is_open = (batches.base_offset[rows] < split_range.start) | (counts < 0)
        is_open |= batches.last_offset[rows] >= split_range.end
        self.records += int(counts[~is_open].sum())
        for row in rows[is_open].tolist():
            records = batch_slice.view(row).records(strict=False)
            self.records += sum(
                split_range.start <= each.offset < split_range.end for each in records
            )


def _segment_row(disk: FileSystem, split_range: SplitRange, options: ReadOptions) -> dict[str, Any]:
    counts = _Counts()
    name = None
    for batch_slice in _batch_slices(disk, split_range, options):
        counts.add(batch_slice, split_range)
        name = batch_slice.path.name
    return {
        "topic": split_range.topic,
        "partition": split_range.partition,
        "segment": name,
        "sizeBytes": counts.size_bytes,
        "startOffset": split_range.start,
        "endOffset": split_range.end,
        "batchCount": counts.batches,
        "recordCount": counts.records,
        "controlBatchCount": counts.controls,
        "maxTimestamp": int(times_of(np.array([counts.max_timestamp]))[0]),
    }
