"""Types of the look at ordinary batches that are to get offsets."""

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.memory_records import MemoryRecords

def leader_fast_path(
    data: bytearray, limits: AppendLimits, segment_bytes: int, now_ms: int, *, of_client: bool
) -> MemoryRecords | None: ...
