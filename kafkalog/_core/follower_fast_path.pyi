"""Types of the look at batches that keep their offsets."""

from kafkalog._core.memory_records import MemoryRecords

def follower_fast_path(data: bytes | bytearray, size_limit: int) -> MemoryRecords | None: ...
