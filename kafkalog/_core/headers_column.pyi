"""Types of the column of headers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

from kafkalog._core.bytes_column import CellColumn

@disjoint_base
class HeadersColumn:
    def __init__(
        self,
        offsets: Buffer | NDArray[np.int32] | NDArray[np.int64],
        keys: CellColumn,
        values: CellColumn,
        validity: Buffer | NDArray[Any] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
