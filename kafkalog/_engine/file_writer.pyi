"""Types of writes to an open file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, final

from typing_extensions import Buffer

@final
class Descriptor:
    number: Final[int]
    def __new__(cls, number: int) -> Self: ...

@final
class FileWriter:
    @property
    def is_closed(self) -> bool: ...
    def __new__(
        cls,
        number: int,
        path: Path,
        finish_write: Callable[[Descriptor, Buffer, int, int, Path], object],
        check_sources: Callable[[Sequence[Buffer]], object],
    ) -> Self: ...
    def descriptor(self) -> Descriptor: ...
    def close(self) -> None: ...
    def pwrite(self, data: Buffer, position: int) -> None: ...
