"""Types of the columns that the builder takes."""

from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

@final
class BytesColumn:
    def __new__(cls, data: Buffer, offsets: Buffer, validity: Buffer | None = None) -> Self: ...
    def __len__(self) -> int: ...

@final
class TimestampColumn:
    def __new__(cls, timestamps: int | NDArray[np.int64]) -> Self: ...
