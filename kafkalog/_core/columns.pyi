"""Types of the column decoders."""

from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from kafkalog._core.header import BatchHeader

@final
class RecordColumns:
    capacity: Final[int]
    def __new__(cls, capacity: int) -> Self: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    @property
    def offset(self) -> NDArray[np.int64]: ...
    @property
    def timestamp(self) -> NDArray[np.int64]: ...
    @property
    def key_position(self) -> NDArray[np.int64]: ...
    @property
    def key_size(self) -> NDArray[np.int32]: ...
    @property
    def value_position(self) -> NDArray[np.int64]: ...
    @property
    def value_size(self) -> NDArray[np.int32]: ...
    @property
    def headers_position(self) -> NDArray[np.int64]: ...
    @property
    def headers_size(self) -> NDArray[np.int32]: ...
    @property
    def header_count(self) -> NDArray[np.int32]: ...

def decode_columns(
    payload: Buffer,
    header: BatchHeader,
    start: int,
    end: int,
    columns: RecordColumns,
    *,
    strict: bool = True,
) -> int: ...
def decode_run(
    data: Buffer,
    position: int,
    columns: RecordColumns,
    *,
    end: int | None = None,
    check_crc: bool = True,
    strict: bool = True,
) -> tuple[int, int, int, int]: ...
