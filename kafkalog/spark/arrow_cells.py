"""Arrow arrays from NumPy's and from texts, and back, without what would load pandas.

`pa.array`, `pa.scalar` and `to_numpy` load it where it is installed: 40 MiB of a worker, and half a
second. Arrays made here share the memory that they are given.

Thread-safety: pure functions. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["array_of", "cell_of", "mask_of", "numbers_of", "texts_of", "validity_of"]


def array_of(kind: pa.DataType, numbers: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as an array of a type whose cells are such numbers; none is null."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def mask_of(mask: npt.NDArray[np.bool_]) -> pa.Array:
    """Return truth values as an array; none is null."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def texts_of(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array; none is null."""
    cells = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.string(), len(cells), buffers)


def cell_of(kind: pa.DataType, value: str | bool | int | None) -> pa.Array:
    """Return one value as an array: a text, a truth value or a number of such a type, or null."""
    if value is None:
        return pa.nulls(1, kind)
    if isinstance(value, str):
        return texts_of([value])
    if isinstance(value, bool):
        return mask_of(np.array([value]))
    return array_of(kind, np.array([value], f"i{kind.bit_width // 8}"))


def numbers_of(array: pa.Array, kind: Any) -> npt.NDArray[Any]:
    """Return the numbers of an array, those too that count as null."""
    return np.frombuffer(
        array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize
    )


def validity_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which cells of an array are not null."""
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), np.bool_)
    octets = np.frombuffer(bits, np.uint8)
    count = array.offset + len(array)
    return np.unpackbits(octets, count=count, bitorder="little")[array.offset :].view(np.bool_)
