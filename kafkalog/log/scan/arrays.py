"""Scan as NumPy arrays: one array for a column of numbers, two or three for a column of bytes.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.arrow_export import ArrowBatch
from kafkalog.log.scan.options import DEFAULT_COLUMNS, ScanOptions

__all__ = ["BytesArray", "ScanArrays", "arrays_of", "numpy_options"]


class BytesArray(NamedTuple):
    """
    Cells of bytes in sequence: cell i is `data[offsets[i] : offsets[i + 1]]`.

    Attributes:
        data: uint8, of shape (bytes,).
        offsets: int64, of shape (rows + 1,); they never fall.
        is_null: bool, of shape (rows,); None if no cell is null. A null cell is empty.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    is_null: NDArray[np.bool_] | None


ScanArrays: TypeAlias = dict[str, NDArray[Any] | BytesArray]

_DTYPES: Final[dict[str, str]] = {
    "offset": "i8",
    "timestamp": "i8",
    "timestamp_type": "i4",
    "partition": "i4",
    "producer_id": "i8",
    "producer_epoch": "i2",
    "sequence": "i4",
    "leader_epoch": "i4",
}
_BYTES: Final = ("key", "value")


def numpy_options(options: ScanOptions) -> ScanOptions:
    """Return the same scan, in one batch of 64-bit offsets; ValueError for columns of lists."""
    columns = options.columns
    if columns == DEFAULT_COLUMNS:
        columns = tuple(name for name in columns if name in _DTYPES or name in _BYTES)
    for name in columns:
        if name not in _DTYPES and name not in _BYTES:
            raise ValueError(f"columns must be those with a NumPy array, got {name!r}")
    return replace(
        options,
        columns=columns,
        binary_type="large_binary",
        batch_rows=2**62,
        batch_bytes=2**62,
    )


def arrays_of(batches: Sequence[ArrowBatch], columns: Sequence[str]) -> ScanArrays:
    """Return the arrays of the only batch of a scan, or empty ones without a batch."""
    if not batches:
        return {name: _empty(name) for name in columns}
    (batch,) = batches
    return {name: _array(batch, slot, name) for slot, name in enumerate(columns)}


def _empty(name: str) -> NDArray[Any] | BytesArray:
    if name in _BYTES:
        return BytesArray(np.empty(0, np.uint8), np.zeros(1, np.int64), None)
    return np.empty(0, _DTYPES[name])


def _array(batch: ArrowBatch, slot: int, name: str) -> NDArray[Any] | BytesArray:
    if name not in _BYTES:
        # For a null of Arrow the number is still there: -1.
        return _frombuffer(batch.buffer(slot, 1), _DTYPES[name])
    return BytesArray(
        _frombuffer(batch.buffer(slot, 2), "u1"),
        _frombuffer(batch.buffer(slot, 1), "i8"),
        _nulls(batch, slot),
    )


def _frombuffer(buffer: memoryview | None, dtype: str) -> NDArray[Any]:
    assert buffer is not None
    return np.frombuffer(buffer, dtype)


def _nulls(batch: ArrowBatch, slot: int) -> NDArray[np.bool_] | None:
    bits = batch.buffer(slot, 0)
    if bits is None:
        return None
    octets = np.frombuffer(bits, np.uint8)
    is_valid = np.unpackbits(octets, count=len(batch), bitorder="little").view(np.bool_)
    return ~is_valid
