"""Types of the staging of batches."""

from typing import Final, Self, final

from kafkalog._core.batch_metadata import BatchMetadata

@final
class RollPlanner:
    base_offset: Final[int]
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    @property
    def rolling_timestamp(self) -> int: ...
    @property
    def has_entries(self) -> bool: ...
    def __new__(
        cls,
        base_offset: int,
        *,
        offset_entries_max: int,
        time_entries_max: int,
        offset_count: int = 0,
        time_count: int = 0,
        last_time: int = -1,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        rolling_timestamp: int = -1,
    ) -> Self: ...
    def set_limits(
        self, *, segment_bytes: int, interval_bytes: int, roll_after_ms: int
    ) -> None: ...
    def plan(
        self, facts: BatchMetadata, first: int, size_bytes: int, waited_ms: int
    ) -> tuple[int, int]: ...
    def close(self) -> None: ...
    def ready_entries(self) -> tuple[bytes, bytes]: ...
    def save(self) -> None: ...
    def restore(self) -> tuple[int, int]: ...
