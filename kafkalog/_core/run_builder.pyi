"""Types of the builder of runs."""

from collections.abc import Iterable
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.records_builder import RecordsBuilder

@final
class RunBuilder(RecordsBuilder):
    record_count: Final[int]
    nulls: Final[int]
    earliest: Final[int]
    latest: Final[int]
    def __new__(cls) -> Self: ...
    def reset(self, *, compressed: bool = False) -> None: ...
    def drop_batch(self) -> None: ...
    def payload(self) -> memoryview: ...
    def close_batch(
        self, append_time: int = -1, codec: int = 0, payload: Buffer | None = None
    ) -> int: ...
    def pack_records(
        self,
        records: Iterable[Record],
        default_timestamp_ms: int,
        size_limit: int,
        append_time: int = -1,
    ) -> None: ...
    def pack_columns(
        self,
        keys: CellColumn | None,
        values: CellColumn | None,
        timestamps: int | NDArray[np.int64],
        count: int,
        size_limit: int,
        headers: HeadersColumn | None = None,
        append_time: int = -1,
    ) -> None: ...
    def finish(
        self, log_append_time_ms: int | None = None, rewriting: object = None
    ) -> MemoryRecords: ...

@final
class SpareBuilder:
    def __new__(cls) -> Self: ...

def pack_uncompressed(
    spare: SpareBuilder,
    records: list[Record],
    limits: AppendLimits,
    now_ms: int,
    default_timestamp_ms: int,
) -> MemoryRecords | None: ...
def pack_batch(
    spare: SpareBuilder,
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: list[int],
    start: int,
    size_limit: int,
) -> MemoryRecords: ...
