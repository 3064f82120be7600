"""Columns of the outer entries of a run of batches: positions and header fields.

Entries of every format, in any order: offsets are not checked.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kafkalog._core.batch import BatchColumns
from kafkalog.layout import CODEC_MASK, MESSAGE_OVERHEAD_V0, TIMESTAMP_TYPE_MASK
from kafkalog.records.memory_walk import walk_memory

__all__ = ["EntryColumns", "scan_entries"]

_CHUNK_ENTRIES: Final = 4096
_NAMES: Final = ("position", "size_bytes", "magic", "attributes", "max_timestamp")


class EntryColumns(NamedTuple):
    """
    Columns, a row for each entry.

    Attributes:
        position: of the entry in the run; `size_bytes`: of all of it.
        magic, attributes: as in its header.
        max_timestamp: of a batch; the timestamp of a message, -1 where it has none.
    """

    position: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    magic: npt.NDArray[np.int64]
    attributes: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]

    @property
    def codec(self) -> npt.NDArray[np.int64]:
        """The codec bits of each."""
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> npt.NDArray[np.bool_]:
        """Return which entries have the time of an append; magic 0 never has it."""
        mask: npt.NDArray[np.bool_] = self.attributes & TIMESTAMP_TYPE_MASK != 0
        mask &= self.magic != 0
        return mask


def scan_entries(data: Buffer, *, check_crc: bool = True) -> EntryColumns:
    """
    Return the entries of a run.

    Raises:
        CorruptRecordError: an entry is cut, or a length, its magic or its CRC is wrong.
    """
    view = memoryview(data)
    columns = BatchColumns(min(_CHUNK_ENTRIES, max(1, len(view) // MESSAGE_OVERHEAD_V0)))
    chunks = [[np.empty(0, dtype=np.int64)] * len(_NAMES)]
    chunks += [
        [getattr(columns, name)[: step.count].astype(np.int64) for name in _NAMES]
        for step in walk_memory(view, columns, check_crc=check_crc, check_order=False)
    ]
    return EntryColumns(*map(np.concatenate, zip(*chunks, strict=True)))
