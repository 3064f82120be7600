"""Types of the assignment of offsets and timestamps."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

def assign_offsets(
    data: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int = -1,
    position: int = 0,
    end: int | None = None,
) -> int: ...
def set_entry_offset(data: Buffer, position: int, *, offset: int) -> None: ...
def set_max_timestamps(
    data: Buffer,
    positions: npt.NDArray[np.int64],
    max_timestamps: npt.NDArray[np.int64],
    *,
    timestamp_type: int,
) -> None: ...
def set_max_timestamp(
    data: Buffer, position: int, *, timestamp_type: int, max_timestamp: int
) -> None: ...
