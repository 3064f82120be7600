"""Types of the look into a batch for a time."""

from typing_extensions import Buffer

from kafkalog._core.header import BatchHeader

def first_record_at(
    payload: Buffer,
    header: BatchHeader,
    start: int,
    end: int,
    timestamp_ms: int,
    start_offset: int,
) -> tuple[int, int] | None: ...
