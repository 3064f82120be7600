"""Types of the look at ordinary batches that are to get offsets."""

from kafkalog._core.packed_run import PackedRun
from kafkalog._core.run_limits import RunLimits

def leader_run(
    data: bytearray, limits: RunLimits, segment_bytes: int, now_ms: int, *, of_client: bool
) -> PackedRun | None: ...
