"""Types of the builder of Arrow columns."""

from collections.abc import Sequence
from typing import Final, Self, final

from typing_extensions import Buffer

from kafkalog._core.arrow_decode import ArrowBatchRun
from kafkalog._core.arrow_export import ArrowBatch, ArrowField
from kafkalog._core.columns import RecordColumns
from kafkalog._core.row_filter import BatchRuns

BINARY_FORMATS: Final[dict[str, str]]
COLUMN_NAMES: Final[tuple[str, ...]]

def row_fields(
    columns: Sequence[str], *, binary_type: str = "binary", text_keys: bool = True
) -> tuple[ArrowField, ...]: ...

@final
class RowBuilder:
    fields: Final[tuple[ArrowField, ...]]
    def __new__(
        cls,
        columns: Sequence[str],
        *,
        binary_type: str = "binary",
        text_keys: bool = True,
        rows_max: int,
        bytes_max: int,
    ) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def can_add_runs(self) -> bool: ...
    @property
    def needs_batch_runs(self) -> bool: ...
    def set_partition(self, topic: str, partition: int) -> None: ...
    def add(
        self,
        data: Buffer,
        columns: RecordColumns,
        start: int,
        runs: BatchRuns,
        *,
        lasting: bool = False,
    ) -> int: ...
    def add_run(self, run: ArrowBatchRun) -> int: ...
    def finish(self) -> ArrowBatch: ...
