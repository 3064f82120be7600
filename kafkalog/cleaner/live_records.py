"""Bitmap of the records that are the latest of their keys, found by another process.

A cleaning finds these records with a map of keys in its own memory (`_core.offset_map`). If a log
has more keys than one machine has memory, several machines find them and pass one bit per offset.

Thread-safety: immutable, as long as the caller does not change the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

__all__ = ["LiveRecordBitmap", "LiveRecords"]


class LiveRecords(Protocol):
    """Source of the latest records for the filter: an `OffsetMap` or a `LiveRecordBitmap`."""

    @property
    def latest_offset(self) -> int: ...
    def latest_run(self, offsets: NDArray[np.int64], latest: NDArray[np.uint8]) -> bool: ...
    def get_run(
        self,
        data: Buffer,
        positions: NDArray[np.int64],
        sizes: NDArray[np.int32],
        found: NDArray[np.int64],
        *,
        offsets: NDArray[np.int64] | None = None,
        same_keys: Callable[[NDArray[np.int64], NDArray[np.int64]], Sequence[bool] | Any]
        | None = None,
    ) -> None: ...


class LiveRecordBitmap:
    """
    A bit for each offset of a range: whether its record is the latest of its key.

    Args:
        bits: uint8, the bit of `start` is the lowest of the first.
        start, end: the range of offsets; no record outside is the latest of its key.

    Raises:
        ValueError: there are fewer bits than offsets.
    """

    def __init__(self, bits: NDArray[np.uint8], start: int, end: int) -> None:
        if 8 * len(bits) < end - start:
            raise ValueError(f"bits must be at least {end - start}, got {8 * len(bits)}")
        self._bits = bits
        self._start = start
        self._end = end

    @property
    def latest_offset(self) -> int:
        """Last offset of the range."""
        return self._end - 1

    def latest_run(self, offsets: NDArray[np.int64], latest: NDArray[np.uint8]) -> bool:
        """Write for each record whether it is the latest of its key; return True: all are known."""
        latest[:] = self.takes(offsets)
        return True

    def takes(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which offsets have a record that is the latest of its key."""
        if not len(self._bits):
            return np.zeros(len(offsets), np.bool_)
        within = (offsets >= self._start) & (offsets < self._end)
        numbers = np.where(within, offsets - self._start, 0)
        marked: NDArray[np.bool_] = (
            self._bits[numbers >> 3] >> (numbers & 7).astype(np.uint8)
        ) & 1 > 0
        return marked & within

    def get_run(self, *_arguments: Any, **_named: Any) -> None:
        """Raise AssertionError: `latest_run` answers for all records, so this is not called."""
        raise AssertionError("a bitmap has no keys")
