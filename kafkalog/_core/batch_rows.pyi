"""Types of `batch_rows`: rows of the records of plain batches."""

from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns

def survey_run(run: Buffer, next_offset: int) -> tuple[int, int, int] | None: ...

@final
class BatchRows:
    def __new__(
        cls, run: Buffer, columns: RecordColumns, decompress: Callable[[int, memoryview], bytes]
    ) -> Self: ...
