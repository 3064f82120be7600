"""Types of the point read."""

from collections.abc import Sequence
from typing import Any, Self, final

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

@final
class PointTable:
    @property
    def owner(self) -> object: ...
    @property
    def known_times(self) -> int: ...
    def __init__(
        self, owner: object, bases: Sequence[int], capacity: int, answer: type[Any] = ...
    ) -> None: ...
    def find(
        self, offset: int, snapshot: tuple[Any, int, int, int], check_crcs: bool = True
    ) -> Record | None: ...
    def find_time(
        self, timestamp_ms: int, snapshot: tuple[Any, int, int, int], check_crcs: bool = True
    ) -> Any: ...
    def put_times(self, latest: Sequence[int]) -> None: ...
    def reader(self, slot: int) -> PointReader | None: ...
    def put(self, slot: int, reader: PointReader) -> None: ...
