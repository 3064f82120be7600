"""Types of the point read."""

from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.record import Record

@final
class PointReader:
    def __new__(
        cls, data: Buffer, index: OffsetIndexView, times: TimeIndexView | None = None
    ) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def is_lost(self) -> bool: ...
    @property
    def has_times(self) -> bool: ...
    def find(self, offset: int, check_crcs: bool = True) -> Record | None: ...
    def find_many(
        self,
        offsets: NDArray[np.int64],
        found: list[Record | None],
        start: int,
        stop: int,
        check_crcs: bool = True,
    ) -> None: ...
    def find_time(
        self, timestamp_ms: int, start_offset: int = 0, check_crcs: bool = True
    ) -> tuple[int, int, int] | None: ...
    def find_times(
        self,
        timestamps: NDArray[np.int64],
        found: NDArray[np.int64],
        start: int,
        stop: int,
        start_offset: int = 0,
        check_crcs: bool = True,
    ) -> int: ...
