"""First pass of a cleaning: adds the keys of the dirty part of a log to the offset map.

Control batches and aborted records never enter the map: they must not supersede older records.
This module gets bytes and fills the map. It does not read segments; the caller decides what to do
if the map is full (fewer segments, or a part of the keys).

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.key_collection import put_keys
from kafkalog._core.offset_map import OffsetMap
from kafkalog._core.status import STATUS_CODES
from kafkalog.cleaner.decoded_chunks import ChunkReader, DecodedChunk
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, decompress
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["HaveKeys", "KeyCollector", "row_comparison"]

# For an exact map: returns for each row whether the record at its offset has its key.
HaveKeys: TypeAlias = Callable[[Sequence[int], Sequence[bytes]], Sequence[bool]]
_SameKeys: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], Sequence[bool]]

_OK: Final = STATUS_CODES["OK"]
_FULL: Final = STATUS_CODES["FULL"]


class KeyCollector:
    """
    Collector of the keys of one run after the other in a map.

    Args:
        offset_map: empty, or filled by the runs before.
        transactions: has the aborted transactions.
        have_keys: for an exact map.
        limit_bytes: largest size of one batch uncompressed.
        uses_fast_path: whether a run without transactions is added in one compiled call.

    Attributes:
        records_read: all rows that were read, with those that do not enter the map.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: TransactionTracker,
        *,
        have_keys: HaveKeys | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        uses_fast_path: bool = True,
    ) -> None:
        self.records_read = 0
        self._uses_fast_path = uses_fast_path and not offset_map.exact
        self._map = offset_map
        self._transactions = transactions
        self._have_keys = have_keys
        self._reader = ChunkReader(limit_bytes)
        self._decompress = partial(decompress, limit_bytes=limit_bytes)

    def add(self, run: FileRecords, *, start_offset: int = 0) -> bool:
        """
        Add the keys of the records of a run from an offset on.

        Returns:
            False if the map is full: all keys up to `offset_map.latest_offset` are in it, and the
            cleaning ends there. No more keys may be added.

        Raises:
            CorruptRecordError: a batch is damaged.
        """
        is_whole = self._add_fast(run, start_offset)
        if is_whole is None:
            is_whole = all(self._add(chunk, start_offset) for chunk in self._reader.chunks(run))
        return is_whole

    def _add_fast(self, run: FileRecords, start_offset: int) -> bool | None:
        """Add the keys of a run in one compiled call; return None if it needs the slow path."""
        if not self._uses_fast_path:
            return None
        fast = self._reader.fast_path(run)
        if fast is None:
            return None
        try:
            count, is_whole, status = put_keys(
                self._map, run.data, fast.columns, self._decompress, start_offset=start_offset
            )
        except KafkaLogError:
            # The slow path fails again, with a complete message.
            return None
        if status != _OK:
            return None
        self.records_read += count
        self._reader.advance(fast)
        return is_whole

    def _add(self, chunk: DecodedChunk, start_offset: int) -> bool:
        columns, first_rows = chunk.columns, chunk.first_rows
        self.records_read += len(columns)
        for batch, is_control, is_gone in self._transactions.judge(chunk):
            if is_control or is_gone:
                # Records of these batches count as records without a key.
                columns.key_size[first_rows[batch] : first_rows[batch + 1]] = -1
        _, status = self._map.put_run(
            chunk.data,
            columns.key_position,
            columns.key_size,
            columns.offset,
            start=int(np.searchsorted(columns.offset, start_offset)),
            same_keys=row_comparison(chunk, self._have_keys),
        )
        if status == _FULL:
            return False
        last_offset = int(chunk.header("last_offset")[-1])
        if last_offset >= start_offset:
            self._map.advance_to(last_offset)
        return True


def row_comparison(chunk: DecodedChunk, have_keys: HaveKeys | None) -> _SameKeys | None:
    """Return the comparison of keys that an exact map needs for a chunk; None for other maps."""
    if have_keys is None:
        return None
    data = memoryview(chunk.data)
    positions, sizes = chunk.columns.key_position, chunk.columns.key_size

    def same_keys(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> Sequence[bool]:
        keys = [
            bytes(data[position : position + size])
            for position, size in zip(positions[rows].tolist(), sizes[rows].tolist(), strict=True)
        ]
        return have_keys(offsets.tolist(), keys)

    return same_keys
