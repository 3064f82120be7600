"""Properties of the two kinds of indexes: entry layout, look-up view and check.

Entry of an offset index: offset minus base offset, position in the segment.
Entry of a time index: timestamp, offset minus base offset.
Big-endian, no header, no checksum: order and length are the only signs of damage.

`kafkalog.layout` defines the fields; code of other packages uses the kinds.

Thread-safety: immutable values, and pure functions over bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.index import (
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)
from kafkalog.layout import (
    OFFSET_INDEX_ENTRY,
    OFFSET_INDEX_ENTRY_FIELDS,
    TIME_INDEX_ENTRY,
    TIME_INDEX_ENTRY_FIELDS,
)

__all__ = [
    "OFFSET_INDEX",
    "TIME_INDEX",
    "IndexKind",
]

View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class IndexKind(Generic[View]):
    """
    One kind of index.

    Attributes:
        name: name in messages.
        entry: struct of one entry, two fields.
        dtype: the same as a NumPy type with named fields.
        make_view: (entries, base offset, count) -> look-up view.
        check: (entries, segment size) -> (number of used entries, whether they are in order).
    """

    name: str
    entry: struct.Struct
    dtype: np.dtype[np.void]
    make_view: Callable[[Buffer, int, int], View]
    check: Callable[[Buffer, int], tuple[int, bool]]

    @property
    def entry_size(self) -> int:
        """Bytes of one entry."""
        return self.entry.size

    def whole_entries(self, data: bytes) -> bytes:
        """Return the bytes without a part of an entry at the end."""
        return data[: len(data) // self.entry.size * self.entry.size]


OFFSET_INDEX: IndexKind[OffsetIndexView] = IndexKind(
    name="offset index",
    entry=OFFSET_INDEX_ENTRY,
    dtype=np.dtype(OFFSET_INDEX_ENTRY_FIELDS),
    make_view=OffsetIndexView,
    check=lambda entries, segment_size: check_offset_index(entries, segment_size=segment_size),
)

TIME_INDEX: IndexKind[TimeIndexView] = IndexKind(
    name="time index",
    entry=TIME_INDEX_ENTRY,
    dtype=np.dtype(TIME_INDEX_ENTRY_FIELDS),
    make_view=TimeIndexView,
    check=lambda entries, _segment_size: check_time_index(entries),
)
