"""Types of the look at batches that keep their offsets."""

from kafkalog._core.packed_run import PackedRun

def own_run(data: bytes | bytearray, size_limit: int) -> PackedRun | None: ...
