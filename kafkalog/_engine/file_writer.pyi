"""Types of what writes to an open file."""

from typing import Final, Self, final

from typing_extensions import Buffer, disjoint_base

@final
class Descriptor:
    number: Final[int]
    def __new__(cls, number: int) -> Self: ...

@disjoint_base
class FileWriter:
    _descriptor: Descriptor | None
    def pwrite(self, data: Buffer, position: int) -> None: ...
