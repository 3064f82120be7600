"""Types of the batch entry points: walks, look-ups and columns."""

from typing import NamedTuple, Self, final

import numpy
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.assign_offsets import assign_offsets as assign_offsets
from kafkalog._core.assign_offsets import set_entry_offset as set_entry_offset
from kafkalog._core.assign_offsets import set_max_timestamp as set_max_timestamp
from kafkalog._core.header import BatchHeader as BatchHeader
from kafkalog._core.header import parse_header as parse_header

__all__ = [
    "BatchColumns",
    "BatchHeader",
    "ScanResult",
    "assign_offsets",
    "check_batch",
    "find_batch",
    "find_offset",
    "find_timestamp",
    "parse_header",
    "scan_batches",
    "set_entry_offset",
    "set_max_timestamp",
]

class ScanResult(NamedTuple):
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used here
    position: int
    status: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int

@final
class BatchColumns:
    position: NDArray[numpy.int64]
    base_offset: NDArray[numpy.int64]
    last_offset: NDArray[numpy.int64]
    base_timestamp: NDArray[numpy.int64]
    max_timestamp: NDArray[numpy.int64]
    producer_id: NDArray[numpy.int64]
    size_bytes: NDArray[numpy.int32]
    record_count: NDArray[numpy.int32]
    leader_epoch: NDArray[numpy.int32]
    base_sequence: NDArray[numpy.int32]
    crc: NDArray[numpy.uint32]
    attributes: NDArray[numpy.int16]
    producer_epoch: NDArray[numpy.int16]
    magic: NDArray[numpy.int8]
    def __new__(cls, capacity: int) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def clear(self) -> None: ...

def check_batch(data: Buffer, position: int = 0, *, check_crc: bool = True) -> int: ...
def scan_batches(
    data: Buffer,
    position: int = 0,
    *,
    end: int | None = None,
    columns: BatchColumns | None = None,
    check_crc: bool = True,
    check_order: bool = True,
    next_offset: int = 0,
) -> ScanResult: ...
def find_offset(
    data: Buffer, offset: int, position: int = 0, *, end: int | None = None
) -> tuple[int, int]: ...
def find_timestamp(
    data: Buffer, timestamp_ms: int, position: int = 0, *, end: int | None = None
) -> tuple[int, int]: ...
def find_batch(
    data: Buffer,
    position: int,
    *,
    end: int | None = None,
    offset_min: int = 0,
    offset_max: int = ...,
) -> int: ...
