"""Types of the published state of a log."""

from typing import Final, NamedTuple, Self, final

from kafkalog._engine.counters import LogCounters
from kafkalog._engine.histogram import Histogram
from kafkalog.log.segments import LogSegments

class ReadBound(NamedTuple):
    end: int
    following_offset: int

@final
class LogSnapshot:
    segments: Final[LogSegments]
    end_offset: Final[int]
    end_position: Final[int]
    start_offset: Final[int]
    def __new__(
        cls, segments: LogSegments, end_offset: int, end_position: int, start_offset: int
    ) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def replace(
        self,
        *,
        segments: LogSegments | None = None,
        end_offset: int | None = None,
        end_position: int | None = None,
        start_offset: int | None = None,
    ) -> LogSnapshot: ...
    def read_bound(self, slot: int) -> ReadBound: ...

@final
class PublishedSnapshot:
    @property
    def snapshot(self) -> LogSnapshot: ...
    @property
    def counters(self) -> LogCounters: ...
    @property
    def append_times(self) -> Histogram: ...
    def __new__(
        cls,
        snapshot: LogSnapshot,
        counters: LogCounters | None = None,
        append_times: Histogram | None = None,
    ) -> Self: ...
    def publish(self, snapshot: LogSnapshot) -> None: ...
