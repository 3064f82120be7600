"""Types of the writer to several partitions."""

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.bytes_column import CellColumn

def extend_partitions(
    builders: list[BatchBuilder],
    partitions: NDArray[np.int32],
    keys: CellColumn | None,
    values: CellColumn | None,
    timestamps: int | NDArray[np.int64] = -1,
    start: int = 0,
    size_limit: int = 2147483647,
) -> int: ...
