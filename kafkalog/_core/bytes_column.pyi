"""Types of the columns that the builder takes."""

from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

_Bytes: TypeAlias = Buffer | NDArray[Any]

@disjoint_base
class CellColumn:
    def __len__(self) -> int: ...

@final
class BytesColumn(CellColumn):
    def __new__(cls, data: _Bytes, offsets: _Bytes, validity: _Bytes | None = None) -> Self: ...

@final
class TimestampColumn:
    def __new__(cls, timestamps: int | NDArray[np.int64]) -> Self: ...
