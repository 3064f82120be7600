"""Types of the second pass over a run."""

from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns
from kafkalog._core.offset_map import OffsetMap

def output_bytes_for(run_bytes: int, plain_rows: int) -> int: ...

@final
class RunFilter:
    def __new__(
        cls,
        offset_map: OffsetMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        end_offset: int,
        max_message_bytes: int,
        sets_delete_horizon: bool,
        last_offsets: dict[int, int],
        decompress: Callable[[int, memoryview], bytes],
        compress: Callable[[int, memoryview], bytes],
    ) -> Self: ...
    def filter(
        self, run: Buffer, columns: RecordColumns, output: Buffer
    ) -> tuple[int, int, dict[str, int]]: ...
