"""Types of the record object and its decoders."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Self, SupportsIndex, final

from typing_extensions import Buffer

from kafkalog._core.header import BatchHeader

@final
class PayloadRef:
    def __new__(cls, data: Buffer) -> Self: ...

@final
class Record:
    offset: Final[int]
    timestamp_ms: Final[int]
    timestamp_type: Final[int]
    def __init__(
        self,
        *,
        key: bytes | bytearray | memoryview | None = None,
        value: bytes | bytearray | memoryview | None = None,
        headers: Iterable[tuple[str, bytes | bytearray | memoryview | None]] = (),
        timestamp_ms: SupportsIndex | datetime = -1,
        offset: int = -1,
    ) -> None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    def detach(self) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ArenaAnchors:
    def __new__(cls) -> Self: ...

def decode_records(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> list[Record]: ...
def decode_tuples(
    payload: Buffer,
    header: BatchHeader,
    start: int,
    end: int,
    *,
    strict: bool = True,
    anchors: ArenaAnchors | None = None,
) -> list[tuple[bytes | None, bytes | None]]: ...
def decode_lists(
    payload: Buffer,
    header: BatchHeader,
    start: int,
    end: int,
    *,
    strict: bool = True,
    anchors: ArenaAnchors | None = None,
) -> tuple[list[bytes | None], list[bytes | None]]: ...
def check_records(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> int: ...
