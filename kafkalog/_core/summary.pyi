"""Types of the summary of records."""

from typing import NamedTuple

from typing_extensions import Buffer

from kafkalog._core.header import BatchHeader

class RecordSummary(NamedTuple):
    status: int
    position: int
    min_timestamp: int
    max_timestamp: int
    null_key_count: int

def summarize_records(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> RecordSummary: ...
