"""Types of runs of batches on their way into Arrow columns."""

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
        compressed: bool = False,
        limit_bytes: int = 0,
    ) -> Self: ...
    @property
    def batch_count(self) -> int: ...
    def to_decompress(self, bytes_max: int) -> list[tuple[int, int, int]]: ...
    def give(self, parts: list[tuple[int, int, int]], memory: Buffer, ends: list[int]) -> None: ...
    def go_on(self, position: int, batch_count: int, offset_min: int) -> None: ...
