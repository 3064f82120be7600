"""Types of the copy of rows from one batch to another."""

from typing import Self, final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns

@final
class DecodedRows:
    count: int
    def __new__(cls, data: Buffer, columns: RecordColumns) -> Self: ...
    def __len__(self) -> int: ...

def pack_rows(
    data: Buffer,
    columns: RecordColumns,
    *,
    start: int = 0,
    stop: int | None = None,
    tag: bytes = b"",
) -> bytearray: ...
