"""Properties of the two kinds of indexes: entry layout, look-up view and check.

Offset index entry (8 bytes): i32 offset - base offset, i32 position in the segment.
Time index entry (12 bytes): i64 timestamp, i32 offset - base offset.
Big-endian, no header, no checksum: order and length are the only signs of damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from typing_extensions import Buffer

from kafkalog._core.index import (
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)

__all__ = [
    "OFFSET_INDEX",
    "TIME_INDEX",
    "IndexKind",
    "unpack_time_entry",
]

View = TypeVar("View")

unpack_time_entry = struct.Struct(">qi").unpack


@dataclass(frozen=True, slots=True)
class IndexKind(Generic[View]):
    """
    One kind of index.

    Attributes:
        name: name in messages.
        entry_size: bytes of one entry.
        make_view: (entries, base offset, count) -> look-up view.
        check: (entries, segment size) -> (number of used entries, whether they are in order).
    """

    name: str
    entry_size: int
    make_view: Callable[[Buffer, int, int], View]
    check: Callable[[Buffer, int], tuple[int, bool]]


OFFSET_INDEX: IndexKind[OffsetIndexView] = IndexKind(
    name="offset index",
    entry_size=8,
    make_view=OffsetIndexView,
    check=lambda entries, segment_size: check_offset_index(entries, segment_size=segment_size),
)

TIME_INDEX: IndexKind[TimeIndexView] = IndexKind(
    name="time index",
    entry_size=12,
    make_view=TimeIndexView,
    check=lambda entries, _segment_size: check_time_index(entries),
)
