"""Types of the fast validation of appends."""

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.memory_records import MemoryRecords

def leader_fast_path(
    data: bytearray, limits: AppendLimits, segment_bytes: int, now_ms: int, *, of_client: bool
) -> MemoryRecords | None: ...
def follower_fast_path(
    data: bytes | bytearray, size_limit: int, rewritings: tuple[object, ...]
) -> MemoryRecords | None: ...
