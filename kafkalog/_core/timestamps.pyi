"""Types of the conversion of timestamps."""

from collections.abc import Sequence
from datetime import datetime
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

def to_timestamp_ms(
    value: SupportsIndex | datetime, name: str = "timestamp_ms", *, round_up: bool = False
) -> int: ...
def to_timestamps_ms(
    values: Sequence[SupportsIndex | datetime] | npt.NDArray[np.generic],
    name: str = "timestamps",
    *,
    round_up: bool = False,
) -> npt.NDArray[np.int64]: ...
