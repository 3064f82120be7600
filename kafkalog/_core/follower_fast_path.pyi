"""Types of the fast validation of follower appends."""

from kafkalog._core.memory_records import MemoryRecords

def follower_fast_path(
    data: bytes | bytearray, size_limit: int, rewritings: tuple[object, ...]
) -> MemoryRecords | None: ...
