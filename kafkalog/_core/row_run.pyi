"""Types of runs of plain batches on their way into Arrow columns."""

from typing import Final, Self, final

from typing_extensions import Buffer

@final
class BatchRun:
    data: Final[Buffer]
    def __new__(
        cls,
        data: Buffer,
        position: int,
        end: int,
        *,
        check_crc: bool,
        offset_min: int,
        offset_end: int,
    ) -> Self: ...
    @property
    def batch_count(self) -> int: ...
    def go_on(self, position: int, batch_count: int, offset_min: int) -> None: ...
