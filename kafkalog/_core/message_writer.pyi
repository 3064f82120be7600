"""Types of the writer of messages of the old formats."""

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns

def encode_messages(
    data: Buffer,
    columns: RecordColumns,
    *,
    magic: int,
    start: int = 0,
    stop: int | None = None,
    base_offset: int = 0,
    append_time: int | None = None,
) -> bytearray: ...
def wrap_messages(
    compressed: Buffer,
    *,
    magic: int,
    codec: int,
    last_offset: int,
    max_timestamp: int = -1,
    append_time: int | None = None,
) -> bytearray: ...
