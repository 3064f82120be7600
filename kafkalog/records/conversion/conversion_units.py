"""Units of conversion: parts of a run of batches that are converted in one call.

A unit is one batch, or a run of plain messages of one old format with one timestamp type: such
messages are small and many, and are decoded by the run, never one by one. Messages with the
log's append time belong together only while they have the same one, for in a v2 batch all records
share it.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Final, NamedTuple

import numpy as np

from kafkalog._core.batch import BatchColumns
from kafkalog.layout import CODEC_MASK, TIMESTAMP_TYPE_MASK
from kafkalog.records.memory_walk import walk_memory

__all__ = ["ConversionUnit", "FileRecords", "UnitWalker"]

_CHUNK_BATCHES: Final = 4096
# No append time: every message has a separate time, or none.
_OWN_TIME: Final = -2


class FileRecords(NamedTuple):
    """
    Whole batches back to back.

    Attributes:
        data: their bytes.
        path: the file they come from, for errors; `position`: where in it.
    """

    data: memoryview
    path: str | PathLike[str] | None = None
    position: int = 0


class ConversionUnit(NamedTuple):
    """
    Part of a run that is converted in one call.

    Attributes:
        start, end: its bytes in the run.
        batch_count: batches in it, above 1 only where they are plain.
        magic: their format; `codec`: the codec bits of their attributes.
        is_plain: whether these are plain messages of v0 or v1.
        append_time_ms: the log's append time of plain messages that have one, else None.
    """

    start: int
    end: int
    batch_count: int
    magic: int
    codec: int
    is_plain: bool
    append_time_ms: int | None


class UnitWalker:
    """
    Cuts one run after the other; offsets must rise from run to run.

    Args:
        check_crc: whether the CRC of every batch is checked.
        merge: whether plain messages are joined to units; else each message is a unit.

    Thread-safety: none; one caller at a time.
    """

    def __init__(self, *, check_crc: bool, merge: bool = True) -> None:
        self._check_crc = check_crc
        self._merge = merge
        self._next_offset = 0
        self._columns = BatchColumns(_CHUNK_BATCHES)

    def units(self, run: FileRecords) -> Iterator[ConversionUnit]:
        """
        Yield the units of a run.

        Raises:
            CorruptRecordError: a batch is damaged, cut, or out of order; the ones before it have
                been yielded.
        """
        for step in walk_memory(
            run.data,
            self._columns,
            check_crc=self._check_crc,
            next_offset=self._next_offset,
            path=run.path,
            origin=run.position,
        ):
            yield from _cut(self._columns, merge=self._merge)
            self._next_offset = step.next_offset


def _cut(columns: BatchColumns, *, merge: bool) -> Iterator[ConversionUnit]:
    count = len(columns)
    magic = columns.magic[:count]
    attributes = columns.attributes[:count]
    codec = attributes & CODEC_MASK
    is_plain = (magic < 2) & (codec == 0)
    time = np.where(
        (magic == 1) & (attributes & TIMESTAMP_TYPE_MASK != 0),
        columns.max_timestamp[:count],
        _OWN_TIME,
    )
    joins = is_plain[1:] & is_plain[:-1] & (magic[1:] == magic[:-1]) & (time[1:] == time[:-1])
    joins &= merge
    starts = np.concatenate(([0], np.flatnonzero(~joins) + 1))
    lasts = np.concatenate((starts[1:] - 1, [count - 1]))
    positions = columns.position[:count]
    ends = (positions[lasts] + columns.size_bytes[:count][lasts]).tolist()
    for start, end, first, last in zip(
        positions[starts].tolist(), ends, starts.tolist(), lasts.tolist(), strict=True
    ):
        append_time = int(time[first])
        plain = bool(is_plain[first])
        yield ConversionUnit(
            start,
            end,
            last - first + 1,
            int(magic[first]),
            int(codec[first]),
            plain,
            append_time if plain and append_time != _OWN_TIME else None,
        )
