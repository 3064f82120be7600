"""Types of the offset map."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

ABSENT: Final[int]
ELSEWHERE: Final[int]
KEYLESS: Final[int]
ENTRY_BYTES: Final[int]

_Longs: TypeAlias = NDArray[np.int64]
_Ints: TypeAlias = NDArray[np.int32]
_SameKeys: TypeAlias = Callable[[_Longs, _Longs], Sequence[bool] | NDArray[np.bool_]]

@final
class OffsetMap:
    exact: Final[bool]
    latest_offset: Final[int]
    def __new__(
        cls,
        memory: Buffer,
        *,
        load_factor: float = 0.9,
        identity: Literal["md5", "siphash"] = "md5",
        exact: bool = False,
        secret: Buffer,
        part: int = 0,
        part_count: int = 1,
    ) -> Self: ...
    def clear(self, *, secret: Buffer, part: int = 0, part_count: int = 1) -> None: ...
    def __len__(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def usable(self) -> int: ...
    def advance_to(self, offset: int) -> None: ...
    def mark(self, marks: Buffer, first_offset: int) -> None: ...
    def latest_run(self, offsets: _Longs, latest: NDArray[np.uint8]) -> bool: ...
    def entries(
        self, firsts: _Longs, seconds: _Longs, offsets: _Longs, *, slot: int = 0
    ) -> tuple[int, int]: ...
    def put(self, key: Buffer, offset: int, *, same_keys: _SameKeys | None = None) -> int: ...
    def get(self, key: Buffer, *, same_keys: _SameKeys | None = None) -> int: ...
    def put_run(
        self,
        data: Buffer,
        positions: _Longs,
        sizes: _Ints,
        offsets: _Longs,
        *,
        start: int = 0,
        end: int | None = None,
        same_keys: _SameKeys | None = None,
    ) -> tuple[int, int]: ...
    def get_run(
        self,
        data: Buffer,
        positions: _Longs,
        sizes: _Ints,
        found: _Longs,
        *,
        offsets: _Longs | None = None,
        start: int = 0,
        end: int | None = None,
        same_keys: _SameKeys | None = None,
    ) -> None: ...
