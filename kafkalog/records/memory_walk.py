"""Walk over whole batches in memory, for code that has their bytes already.

The bytes come from a caller, or from a run that `walk_source` returned. So this walk has no windows
and does not continue after damage: a batch that is not whole is an error. It is not `walk_source`,
which reads segments, because `records` is a layer below `log`.

Thread-safety: none; a walk belongs to one thread, and the columns to the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.batch import BatchColumns, ScanResult, scan_batches
from kafkalog._core.status import STATUS_CODES, check_status

__all__ = ["walk_memory"]

_GOOD: Final = (STATUS_CODES["OK"], STATUS_CODES["FULL"])


def walk_memory(
    data: Buffer,
    columns: BatchColumns,
    *,
    check_crc: bool = False,
    check_order: bool = True,
    next_offset: int = 0,
    path: str | PathLike[str] | None = None,
    origin: int = 0,
) -> Iterator[ScanResult]:
    """
    Yield the batches of `data` in steps, each as many as fit the columns.

    Args:
        data: batches back to back.
        columns: cleared and filled with the headers of each step, with positions in `data`.
        check_crc, check_order, next_offset: as of `scan_batches`.
        path, origin: file and position of the first byte, for errors.

    Raises:
        CorruptRecordError, InvalidRecordError: a batch is damaged, cut or out of order; the batches
            before it have been yielded.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        columns.clear()
        step = scan_batches(
            view,
            position,
            columns=columns,
            check_crc=check_crc,
            check_order=check_order,
            next_offset=next_offset,
        )
        if step.count:
            yield step
        position, next_offset = step.position, step.next_offset
        if step.status not in _GOOD:
            check_status(step.status, origin + position, path)
