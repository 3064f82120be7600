"""Types of the filter of rows."""

from collections.abc import Iterable
from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.batch import BatchColumns
from kafkalog._core.columns import RecordColumns
from kafkalog._core.header import BatchHeader

@final
class BatchRuns:
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def add_batch(self, header: BatchHeader, row_count: int) -> None: ...
    def add_message(self, header: BatchHeader, timestamp_type: int) -> None: ...
    def add_batches(self, batches: BatchColumns, start: int, stop: int) -> None: ...

@final
class RowFilter:
    has_conditions: Final[bool]
    def __new__(
        cls,
        *,
        timestamps: tuple[int, int] | None = None,
        listed_timestamps: Iterable[int] | None = None,
        keys: Iterable[bytes | None] | None = None,
        offsets: Iterable[int] | None = None,
    ) -> Self: ...
    def apply(
        self,
        data: Buffer,
        columns: RecordColumns,
        runs: BatchRuns,
        offset_min: int,
        offset_end: int,
    ) -> int: ...
