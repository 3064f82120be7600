"""Types of the first pass over a run."""

from collections.abc import Callable

from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns
from kafkalog._core.offset_map import OffsetMap

def put_keys(
    offset_map: OffsetMap,
    run: Buffer,
    columns: RecordColumns,
    decompress: Callable[[int, memoryview], bytes],
    *,
    start_offset: int,
) -> tuple[int, bool, int]: ...
