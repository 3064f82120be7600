"""Types of the decoder of compressed batches into columns."""

import sys
from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns

ENOUGH_BYTES: Final[int]

@final
class PayloadMemory:
    def __new__(cls, limit_bytes: int = sys.maxsize) -> Self: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def decode_compressed_run(
    data: Buffer,
    position: int,
    columns: RecordColumns,
    memory: PayloadMemory,
    *,
    end: int | None = None,
    check_crc: bool = True,
    strict: bool = True,
) -> tuple[int, int, int, int]: ...
