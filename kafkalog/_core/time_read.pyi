"""Types of the look-up by time."""

from typing_extensions import Buffer

from kafkalog._core.index import OffsetIndexView

def find_time(
    data: Buffer,
    offsets: OffsetIndexView,
    entry_timestamp: int,
    entry_offset: int,
    timestamp_ms: int,
    start_offset: int,
) -> tuple[int, int, int] | None: ...
