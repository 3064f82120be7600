"""Chunks of batches of any format, decoded to columns, for both passes of a cleaning.

A chunk is as many uncompressed batches as fit the columns, which are decoded in one call, or as
many compressed ones of format v2, or one compressed batch of an old format. No object is made for a
single record, and callers decide about all batches of a chunk at once.

Every batch is checked: framing, order, CRC, and records against the header. Columns are reused from
chunk to chunk.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.batch import BatchColumns
from kafkalog._core.batch_rows import survey_run
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.record_filter import count_flags
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.errors import CorruptRecordError, KafkaLogError
from kafkalog.layout import CODEC_MASK, MAGIC_V2
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import CONTROL_KEY_SIZE_MIN, ControlType, control_key_fields
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.memory_walk import walk_memory
from kafkalog.records.reused_columns import ReusedColumns

__all__ = ["ChunkReader", "DecodedChunk", "FastPathRun"]

_FULL: Final = STATUS_CODES["FULL"]
_CHUNK_BATCHES: Final = 4096
# Rows of a chunk: their columns, 56 bytes each, should stay in the second-level cache.
_CHUNK_ROWS: Final = 8192
# Bytes of a chunk: it is read several times, and should stay in the cache.
_CHUNK_BYTES: Final = 4 << 20
# Uncompressed bytes of a chunk of compressed batches, except those of the last batch.
_CHUNK_PAYLOAD_BYTES: Final = 1 << 20
# Records of a batch on the fast path. Larger columns are made only after decompression: a header
# may declare too many.
_FAST_PATH_ROWS_MAX: Final = 1 << 18


@dataclass(slots=True)
class DecodedChunk:
    """
    Some batches and their records.

    Attributes:
        run: the run of the batches; `start`, `end`: their position in it.
        batches: their headers, rows `first_batch` to `end_batch`.
        data: the buffer of the positions in `columns`: the run, or the joined uncompressed
            payloads.
        payload_ends: start of the payload of each compressed batch in `data`, and the last end.
        columns: the records of all batches.
        first_rows: the first row of each batch, and the end of the rows of the last one.
        views: the compressed batches; empty for uncompressed ones.
    """

    run: FileRecords
    start: int
    end: int
    batches: BatchColumns
    first_batch: int
    end_batch: int
    data: Buffer
    payload_ends: Sequence[int]
    columns: RecordColumns
    first_rows: NDArray[np.int64]
    views: Sequence[BatchView]

    def header(self, name: str) -> NDArray[np.int64]:
        """Return a field of the headers, one for each batch."""
        column: NDArray[np.int64] = getattr(self.batches, name)
        return column[self.first_batch : self.end_batch].astype(np.int64, copy=False)

    @property
    def magic(self) -> NDArray[np.int64]:
        """Format of each batch."""
        return self.header("magic")

    def has_bits(self, mask: int) -> NDArray[np.bool_]:
        """Return which batches are of format v2 and have one of these bits in their attributes."""
        has_bits: NDArray[np.bool_] = ((self.header("attributes") & mask) != 0) & (
            self.magic == MAGIC_V2
        )
        return has_bits

    def counts(self, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many records of each batch a flag is set for."""
        counts = np.empty(len(self.first_rows) - 1, np.int64)
        count_flags(flags.view(np.uint8), self.first_rows, counts)
        return counts

    def key_of(self, row: int) -> bytes | None:
        """Return the key of a record."""
        start, size = int(self.columns.key_position[row]), int(self.columns.key_size[row])
        return None if size < 0 else bytes(memoryview(self.data)[start : start + size])

    def control_type(self, batch: int) -> ControlType | None:
        """Return the type of a control batch; None if it has no records."""
        row = int(self.first_rows[batch])
        if row == self.first_rows[batch + 1]:
            return None
        position, size = int(self.columns.key_position[row]), int(self.columns.key_size[row])
        key = memoryview(self.data)[position : position + max(0, size)]
        version, type_id = control_key_fields(key)
        if size < CONTROL_KEY_SIZE_MIN or version < 0:
            offset = int(self.columns.offset[row])
            raise CorruptRecordError(
                f"the control record at offset {offset} has a key of {size} bytes, version"
                f" {version}",
                path=self.run.path,
                position=self.run.position + self.start,
                base_offset=offset,
            )
        has_type = type_id in ControlType._value2member_map_
        return ControlType(type_id) if has_type else ControlType.UNKNOWN


class FastPathRun(NamedTuple):
    """
    Run for the compiled fast path (`kafkalog._core.batch_rows`): one call for all its batches.

    Attributes:
        run: the batches.
        columns: scratch columns with capacity for the records of any batch.
        next_offset: lowest base offset of the next run.
        plain_rows: records in batches that are not compressed, by their headers.
    """

    run: FileRecords
    columns: RecordColumns
    next_offset: int
    plain_rows: int


class ChunkReader:
    """
    Reader of one run after the other; offsets must rise from run to run.

    Args:
        limit_bytes: largest size of one batch uncompressed.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._batches = BatchColumns(_CHUNK_BATCHES)
        self._reused = ReusedColumns(_CHUNK_ROWS, limit_bytes)
        self._next_offset = 0

    def fast_path(self, run: FileRecords) -> FastPathRun | None:
        """Return a run for the fast path; None if it must be read in chunks."""
        found = survey_run(run.data, self._next_offset)
        if found is None or found[1] > min(_FAST_PATH_ROWS_MAX, self._limit_bytes):
            return None
        next_offset, rows_max, plain_rows = found
        return FastPathRun(run, self._reused.with_capacity(rows_max), next_offset, plain_rows)

    def advance(self, run: FastPathRun) -> None:
        """Record that the fast path has read a whole run."""
        self._next_offset = run.next_offset

    def chunks(self, run: FileRecords) -> Iterator[DecodedChunk]:
        """
        Yield the chunks of a run, each good until the next is asked for.

        Raises:
            CorruptRecordError: a batch is damaged, cut, or out of order; the chunks before it have
                been yielded.
        """
        batches = self._batches
        for step in walk_memory(
            run.data,
            batches,
            next_offset=self._next_offset,
            path=run.path,
            origin=run.position,
        ):
            codecs = batches.attributes[: step.count] & CODEC_MASK
            yield from self._cut(run, codecs != 0)
            self._next_offset = step.next_offset

    def _cut(self, run: FileRecords, is_compressed: NDArray[np.bool_]) -> Iterator[DecodedChunk]:
        count = len(is_compressed)
        # Ends of slices that are compressed or not.
        ends = [*(np.flatnonzero(np.diff(is_compressed)) + 1).tolist(), count]
        batch = 0
        for end in ends:
            while batch < end:
                decode = self._compressed if is_compressed[batch] else self._plain
                chunk = decode(run, batch, end)
                yield chunk
                batch = chunk.end_batch

    def _end(self, batch: int) -> int:
        return int(self._batches.position[batch]) + int(self._batches.size_bytes[batch])

    def _plain(self, run: FileRecords, first: int, limit: int) -> DecodedChunk:
        """Decode uncompressed batches from `first`, at least one and not the one at `limit`."""
        start = int(self._batches.position[first])
        # Batches that end within the bound; at least one, however large.
        ends = self._batches.position[first:limit] + self._batches.size_bytes[first:limit]
        within = int(np.searchsorted(ends, start + _CHUNK_BYTES, side="right"))
        end = int(ends[max(1, within) - 1])
        columns = self._reused.columns
        columns.clear()
        _, done, position, status = decode_run(run.data, start, columns, end=end)
        if done == 0 and status == _FULL:
            # A batch has more rows than the columns; its header was compared with its size before.
            columns = self._reused.with_capacity(int(self._batches.record_count[first]))
            _, done, position, status = decode_run(run.data, start, columns, end=self._end(first))
        if done == 0:
            check_status(status, run.position + position, run.path)
        counts = self._batches.record_count[first : first + done]
        return DecodedChunk(
            run,
            start,
            position,
            self._batches,
            first,
            first + done,
            run.data,
            (),
            columns,
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            (),
        )

    def _compressed(self, run: FileRecords, first: int, limit: int) -> DecodedChunk:
        """Decompress batches from `first`, at least one and not the one at `limit`."""
        view = self._checked(run, first)
        columns, payload = self._reused.decode(view)
        views, payloads = [view], [payload]
        sizes, counts = [memoryview(payload).nbytes], [len(view)]
        while first + len(views) < limit and view.header.magic >= MAGIC_V2:
            capacity_left = columns.capacity - len(columns)
            if sum(sizes) >= _CHUNK_PAYLOAD_BYTES:
                break
            try:
                view = self._checked(run, first + len(views))
                if len(view) > capacity_left or view.header.magic < MAGIC_V2:
                    break
                rows, payload = view.columns(columns, limit_bytes=self._limit_bytes)
            except KafkaLogError:
                # The next chunk starts at this batch and raises the error.
                break
            views.append(view)
            payloads.append(payload)
            sizes.append(memoryview(payload).nbytes)
            counts.append(rows)
        payload_ends = np.cumsum([0, *sizes], dtype=np.int64)
        if len(views) > 1:
            shift = np.repeat(payload_ends[:-1], counts)
            for name in ("key_position", "value_position", "headers_position"):
                positions: NDArray[np.int64] = getattr(columns, name)
                positions += shift
        return DecodedChunk(
            run,
            int(self._batches.position[first]),
            self._end(first + len(views) - 1),
            self._batches,
            first,
            first + len(views),
            payloads[0] if len(views) == 1 else b"".join(payloads),
            payload_ends.tolist(),
            columns,
            np.cumsum([0, *counts], dtype=np.int64),
            views,
        )

    def _checked(self, run: FileRecords, batch: int) -> BatchView:
        start, end = int(self._batches.position[batch]), self._end(batch)
        view = BatchView(run.data[start:end], path=run.path, position=run.position + start)
        view.check()
        return view
