"""Types of the direct decoding of runs into Arrow columns."""

from typing import Final, Self, final

from typing_extensions import Buffer

@final
class ArrowBatchRun:
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
    def list_compressed(self, bytes_max: int) -> list[tuple[int, int, int]]: ...
    def add_decompressed(
        self, parts: list[tuple[int, int, int]], memory: Buffer, ends: list[int]
    ) -> None: ...
    def resume_at(self, position: int, batch_count: int, offset_min: int) -> None: ...
