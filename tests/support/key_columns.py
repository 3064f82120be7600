"""Keys as the columns that decoders make: one buffer, positions and sizes, with gaps between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tests.support.buffers import exact

__all__ = ["KeyColumns"]


@dataclass(frozen=True)
class KeyColumns:
    """
    The keys of some records.

    Attributes:
        keys: as given; None is a null key.
        data: the keys, each after a byte that is no part of it, in a block of exact size.
        positions, sizes: those of each key in `data`; -1 is the size of a null key.
    """

    keys: Sequence[bytes | None]
    data: Buffer
    positions: NDArray[np.int64]
    sizes: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Sequence[bytes | None]) -> KeyColumns:
        """Lay out keys."""
        data = b"".join(b"|" + (key or b"") for key in keys)
        sizes = [-1 if key is None else len(key) for key in keys]
        steps = [1 + max(0, size) for size in sizes]
        ends = np.cumsum([0, *steps], dtype=np.int64)
        return cls(keys, exact(data), ends[:-1] + 1, np.array(sizes, np.int32))
