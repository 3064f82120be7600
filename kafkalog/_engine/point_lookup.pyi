"""Types of the point readers of a log."""

from collections.abc import Sequence
from typing import Any, final

from kafkalog._core.point_read import PointReader
from kafkalog._core.record import Record
from kafkalog._engine.segment_slice import SegmentSlice

@final
class PointLookupTable:
    @property
    def owner(self) -> object: ...
    @property
    def cached_time_count(self) -> int: ...
    def __init__(
        self,
        owner: object,
        bases: Sequence[int],
        capacity: int,
        answer: type[Any] = ...,
        slices: type[SegmentSlice] = ...,
        segments: Sequence[object] = (),
    ) -> None: ...
    def find(
        self, offset: int, snapshot: tuple[Any, int, int, int], check_crcs: bool = True
    ) -> Record | None: ...
    def slice(
        self,
        offset: int,
        max_bytes: int,
        min_one_batch: bool,
        snapshot: tuple[Any, int, int, int],
    ) -> Any: ...
    def find_time(
        self, timestamp_ms: int, snapshot: tuple[Any, int, int, int], check_crcs: bool = True
    ) -> Any: ...
    def put_times(self, latest: Sequence[int]) -> None: ...
    def reader(self, slot: int) -> PointReader | None: ...
    def put(self, slot: int, reader: PointReader) -> None: ...
