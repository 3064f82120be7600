"""Types of the import of Arrow's columns."""

from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.headers_column import HeadersColumn

COLUMNS_SET_BY_LOG: Final[frozenset[str]]

@final
class SchemaRef: ...

@final
class ArrayRef: ...

@final
class ArrowColumn(CellColumn): ...

@final
class ArrowRows:
    count: Final[int]
    keys: Final[CellColumn | None]
    values: Final[CellColumn | None]
    headers: Final[HeadersColumn | None]
    timestamps: Final[NDArray[np.int64] | None]
    def __len__(self) -> int: ...

@final
class ArrowSource:
    def __new__(cls, source: object) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ArrowRows: ...

def arrow_column(source: object) -> CellColumn | None: ...
def arrow_headers(source: object) -> HeadersColumn | None: ...
