"""Types of the common parts of the builders of batches and of message sets."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NoReturn, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

from kafkalog._core.bytes_column import CellColumn
from kafkalog._core.columns import RecordColumns
from kafkalog._core.headers_column import HeadersColumn
from kafkalog._core.record import Record

_Field: TypeAlias = bytes | bytearray | memoryview | None
_Timestamps: TypeAlias = SupportsIndex | datetime | NDArray[np.int64]

@disjoint_base
class RecordsBuilder:
    count: Final[int]
    size_bytes: Final[int]
    capacity: Final[int]
    max_timestamp: Final[int]
    min_timestamp: Final[int]
    null_key_count: Final[int]
    last_offset_delta: Final[int]
    def __reduce__(self) -> NoReturn: ...
    def append(
        self,
        key: _Field,
        value: _Field,
        timestamp_ms: SupportsIndex | datetime = -1,
        headers: Iterable[tuple[str, _Field]] | None = None,
    ) -> int: ...
    def try_append(
        self,
        size_limit: int,
        key: _Field,
        value: _Field,
        timestamp_ms: SupportsIndex | datetime = -1,
        headers: Iterable[tuple[str, _Field]] | None = None,
    ) -> int: ...
    def append_at(
        self,
        offset_delta: int,
        key: _Field,
        value: _Field,
        timestamp_ms: SupportsIndex | datetime = -1,
        headers: Iterable[tuple[str, _Field]] | None = None,
    ) -> int: ...
    def append_record(self, record: Record, default_timestamp_ms: int = -1) -> int: ...
    def extend_records(
        self,
        records: Iterable[Record],
        start: int = 0,
        default_timestamp_ms: int = -1,
        size_limit: int = ...,
    ) -> int: ...
    def extend_lists(
        self,
        keys: Sequence[_Field] | None,
        values: Sequence[_Field],
        timestamps: _Timestamps = -1,
        start: int = 0,
        size_limit: int = ...,
        headers: Sequence[Iterable[tuple[str, _Field]] | None] | None = None,
    ) -> int: ...
    def extend_columns(
        self,
        keys: CellColumn | None,
        values: CellColumn | None,
        timestamps: _Timestamps = -1,
        start: int = 0,
        stop: int | None = None,
        size_limit: int = ...,
        headers: HeadersColumn | None = None,
    ) -> int: ...
    def extend_decoded(
        self,
        data: Buffer,
        columns: RecordColumns,
        start: int = 0,
        stop: int | None = None,
        *,
        base_offset: int | None = None,
        size_limit: int = ...,
    ) -> int: ...
