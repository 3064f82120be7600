"""Types of the batch doors: headers, walks, CRC and stamping."""

from typing import NamedTuple, final

import numpy
from numpy.typing import NDArray
from typing_extensions import Buffer

@final
class BatchHeader:
    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    def __init__(
        self,
        position: int,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

class ScanResult(NamedTuple):
    count: int
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
    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def clear(self) -> None: ...

def parse_header(data: Buffer, position: int = 0) -> BatchHeader: ...
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
def assign_offsets(
    data: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int = -1,
    position: int = 0,
    end: int | None = None,
) -> int: ...
def set_max_timestamp(
    data: Buffer, position: int, *, timestamp_type: int, max_timestamp: int
) -> None: ...
