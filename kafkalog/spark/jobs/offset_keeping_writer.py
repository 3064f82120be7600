"""Writer of files of batches whose records keep their offsets: the task of an import.

Rows come sorted by topic, partition and offset. Gaps between offsets stay gaps. A task has whole
partitions, so that a partition's rows are in one file.

Thread-safety: none; a writer is one task's.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkalog._core.arrow_source import arrow_column, arrow_headers
from kafkalog._core.builder import BatchBuilder
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.posix import PosixFileSystem
from kafkalog.layout import NO_TIMESTAMP
from kafkalog.records.codecs import Codec, compress_if_smaller
from kafkalog.spark.arrow_cells import numbers_of
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError

__all__ = ["OffsetKeepingWriter"]

_BATCH_BYTES: Final = 1 << 20
_BATCH_OFFSETS_MAX: Final = 2**31 - 1


@dataclass
class _PartitionFile:
    """The file of one partition, with its batch under construction and its counts."""

    topic: str
    partition: int
    path: Path
    handle: FileHandle
    builder: BatchBuilder
    base_offset: int = -1
    first_offset: int = -1
    last_offset: int = -1
    rows: int = 0
    size_bytes: int = 0

    def begin_batch(self, base_offset: int) -> None:
        """Begin a batch, which is empty yet."""
        self.base_offset = base_offset

    def count_rows(self, first_offset: int, last_offset: int, count: int) -> None:
        """Count rows that were added to the batch."""
        if self.first_offset < 0:
            self.first_offset = first_offset
        self.last_offset = last_offset
        self.rows += count

    def count_batch(self, size: int) -> None:
        """Count the bytes of a batch that was written."""
        self.size_bytes += size

    def description(self) -> dict[str, Any]:
        """Return the description of the file for the job's ledger."""
        return {
            "path": str(self.path),
            "topic": self.topic,
            "partition": self.partition,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
        }


class OffsetKeepingWriter:
    """
    Encoder of rows that come sorted by topic, partition and offset.

    Args:
        folder: directory of the files.
        codec: of the batches.
        batch_bytes: of a batch, before compression.
    """

    def __init__(self, folder: Path, codec: Codec, batch_bytes: int = _BATCH_BYTES) -> None:
        self._folder = folder
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._filesystem = PosixFileSystem()
        self._target: _PartitionFile | None = None
        self._written: list[dict[str, Any]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """
        Add rows.

        Raises:
            KafkaLogSparkError: COLUMN_MISSING for a null in topic, partition or offset,
                RECORD_INVALID for offsets that do not rise.
        """
        for name in ("topic", "partition", "offset"):
            if batch.column(name).null_count:
                raise KafkaLogSparkError(
                    ErrorCode.COLUMN_MISSING, f"a row has no {name}", column=name
                )
        coded = pc.dictionary_encode(batch.column("topic"))
        codes = np.asarray(coded.indices)
        partitions = numbers_of(batch.column("partition"), np.int32)
        is_other = (np.diff(codes) != 0) | (np.diff(partitions) != 0)
        cuts = [0, *(np.flatnonzero(is_other) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(cuts):
            if start < end:
                topic = coded.dictionary[int(codes[start])].as_py()
                self._add(topic, int(partitions[start]), batch.slice(start, end - start))

    def finish(self) -> list[dict[str, Any]]:
        """Sync everything; return the descriptions of the files."""
        self._close()
        if self._written:
            with storage_errors(self._folder, doing="syncing"):
                self._filesystem.sync_directory(self._folder)
        return self._written

    def abandon(self) -> None:
        """Remove the written files after a failure of the attempt."""
        if self._target is not None:
            self._target.handle.close()
        paths = [each["path"] for each in self._written]
        if self._target is not None:
            paths.append(str(self._target.path))
        for path in paths:
            Path(path).unlink(missing_ok=True)

    def _add(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        target = self._target
        if target is None or (target.topic, target.partition) != (topic, partition):
            self._close()
            target = self._target = self._begin(topic, partition)
        offsets = numbers_of(rows.column("offset"), np.int64)
        steps = np.diff(offsets)
        if (len(steps) and int(steps.min()) <= 0) or int(offsets[0]) <= target.last_offset:
            raise KafkaLogSparkError(
                ErrorCode.RECORD_INVALID,
                f"{topic}-{partition}: two rows have one offset, near {int(offsets[0])}",
                topic=topic,
                partition=partition,
            )
        cuts = [0, *(np.flatnonzero(steps != 1) + 1).tolist(), len(offsets)]
        columns = _Columns(rows)
        for start, end in pairwise(cuts):
            if start < end:
                self._encode(target, columns, offsets, start, end)

    def _encode(
        self,
        target: _PartitionFile,
        columns: _Columns,
        offsets: NDArray[np.int64],
        start: int,
        end: int,
    ) -> None:
        """Encode rows with consecutive offsets."""
        builder = target.builder
        while start < end:
            offset = int(offsets[start])
            if builder.count and offset - target.base_offset > _BATCH_OFFSETS_MAX:
                self._flush(target)
            if not builder.count:
                target.begin_batch(offset)
            if builder.count and builder.size_bytes >= self._batch_bytes:
                self._flush(target)
                continue
            if offset != target.base_offset + builder.last_offset_delta + 1 or not builder.count:
                # The first row after a gap has its offset given; the rows after it follow.
                builder.append_at(offset - target.base_offset, *columns.row(start))
                taken = 1
            else:
                taken = builder.extend_columns(
                    columns.keys,
                    columns.values,
                    columns.times,
                    start,
                    end,
                    self._batch_bytes,
                    columns.headers,
                )
            if not taken:
                self._flush(target)
                continue
            start += taken
            target.count_rows(offset, int(offsets[start - 1]), taken)

    def _begin(self, topic: str, partition: int) -> _PartitionFile:
        path = self._folder / f"{uuid.uuid4().hex}.batches"
        with storage_errors(path, doing="writing"):
            handle = self._filesystem.create_new(path)
        return _PartitionFile(topic, partition, path, handle, BatchBuilder())

    def _flush(self, target: _PartitionFile) -> None:
        builder = target.builder
        if not builder.count:
            return
        codec, payload = self._codec, None
        if codec is not Codec.NONE:
            codec, payload = compress_if_smaller(codec, builder.payload())
        batch = builder.finish(base_offset=target.base_offset, codec=int(codec), payload=payload)
        size = memoryview(batch).nbytes
        with storage_errors(target.path, doing="writing"):
            target.handle.pwrite(batch, target.size_bytes)
        target.count_batch(size)
        builder.reset()

    def _close(self) -> None:
        target, self._target = self._target, None
        if target is None:
            return
        self._target = target
        self._flush(target)
        with storage_errors(target.path, doing="writing"):
            target.handle.sync()
        target.handle.close()
        self._target = None
        self._written.append(target.description())


class _Columns:
    """The columns of some rows for the builder, and single rows of them."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names
        self._rows = rows
        self.keys = arrow_column(rows.column("key")) if "key" in names else None
        self.values = arrow_column(rows.column("value"))
        self.headers = arrow_headers(rows.column("headers")) if "headers" in names else None
        self.times: NDArray[np.int64] | int = NO_TIMESTAMP
        if "timestamp" in names:
            micros = rows.column("timestamp").cast(pa.int64())
            times = np.asarray(micros.fill_null(-1000), np.int64) // 1000
            self.times = np.maximum(times, NO_TIMESTAMP)

    def row(self, number: int) -> tuple[bytes | None, bytes | None, int, Any]:
        """Return key, value, time and headers of one row."""
        names = self._rows.schema.names
        key = self._rows.column("key")[number].as_py() if "key" in names else None
        value = self._rows.column("value")[number].as_py()
        time_ms = self.times if isinstance(self.times, int) else int(self.times[number])
        headers = None
        if "headers" in names:
            listed = self._rows.column("headers")[number].as_py() or []
            headers = [(each["key"], each["value"]) for each in listed]
        return _as_bytes(key), _as_bytes(value), time_ms, headers


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
