"""Types of what hands columns to other programs."""

from collections.abc import Iterator
from typing import Final, Self, final

@final
class ArrowField:
    name: Final[str]
    kind: Final[str]
    nullable: Final[bool]
    children: Final[tuple[ArrowField, ...]]
    def __new__(
        cls, name: str, kind: str, nullable: bool, children: tuple[ArrowField, ...] = ()
    ) -> Self: ...

@final
class ArrowBatch:
    fields: Final[tuple[ArrowField, ...]]
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    def buffer(self, column: int, slot: int) -> memoryview | None: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

def schema_capsule(fields: tuple[ArrowField, ...]) -> object: ...
def stream_capsule(source: Iterator[ArrowBatch], fields: tuple[ArrowField, ...]) -> object: ...
