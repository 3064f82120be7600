"""Types of the record iterators."""

from typing import Generic, Literal, NoReturn, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer

from kafkalog._core.header import BatchHeader
from kafkalog._core.record import Record

_Pair: TypeAlias = tuple[bytes | None, bytes | None]
_T = TypeVar("_T", Record, _Pair)

@final
class RecordIterator(Generic[_T]):
    @overload
    def __new__(
        cls,
        payload: Buffer,
        header: BatchHeader,
        start: int,
        end: int,
        *,
        pairs: Literal[False] = False,
        strict: bool = True,
    ) -> RecordIterator[Record]: ...
    @overload
    def __new__(
        cls,
        payload: Buffer,
        header: BatchHeader,
        start: int,
        end: int,
        *,
        pairs: Literal[True],
        strict: bool = True,
    ) -> RecordIterator[_Pair]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...
    def __length_hint__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...

@final
class CloseSignal:
    @property
    def is_open(self) -> bool: ...
    def close(self) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class ClosableRecords:
    def __new__(cls, records: list[Record], signal: CloseSignal) -> Self: ...
    def __iter__(self) -> Self: ...
    def __length_hint__(self) -> int: ...
    def __next__(self) -> Record: ...
    def __reduce__(self) -> NoReturn: ...
