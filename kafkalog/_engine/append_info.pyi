"""Types of the assignment of offsets to a run."""

from kafkalog._core.memory_records import MemoryRecords
from kafkalog.model import AppendInfo

def assign_run_offsets(
    run: MemoryRecords, log_end_offset: int, partition_leader_epoch: int
) -> AppendInfo: ...
