"""A walk over whole batches that does not believe every offset.

The CRC of a batch covers neither its base offset nor its length. A wrong length ends the walk by
itself; a wrong base offset makes a neighbour look wrong. If a batch begins below the end of the
batch before, the offsets around the two show which of them is wrong, because their last offset
deltas are covered by the CRC:

    before k      k                B                C
    ... e-1 | base .. last | base ........ last | base ...

  * k may be wrong if B begins at or above the end that k has when it begins at e;
  * B may be wrong if C begins at or above the end that B has when it begins after k;
  * if both may, the batch whose correction leaves no hole is; if that decides nothing (logs with
    holes), both are corrupt. Missing records are reported; records under a wrong offset would not.

A wrapper of an old format names its last offset only, and has one or more below: it counts as one
in the two rules above, and holes never distinguish it from its neighbour. A reader decompresses it
and compares it with its neighbours (`wrapper_checks.py`); a wrapper too large for that is
compared with the batch before when its records are decoded: `check_wrapper`.

A wrong base offset that contradicts no neighbour (the last batch of a log, or a flip into a hole)
cannot be found.

Thread-safety: pure functions over bytes; columns and results belong to one caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import NamedTuple

import numpy as np

from kafkalog._core.batch import BatchColumns, ScanResult, scan_batches
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.records.batch_view import BatchView

__all__ = [
    "BatchEnd",
    "WalkResult",
    "check_wrapper",
    "check_wrapper_offsets",
    "fits_after",
    "walk_batches",
]

OK = STATUS_CODES["OK"]
FULL = STATUS_CODES["FULL"]
TRUNCATED = STATUS_CODES["TRUNCATED"]
OFFSET_ORDER = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET = STATUS_CODES["BASE_OFFSET"]


@dataclass(slots=True)
class WalkResult:
    """
    Result of a walk.

    Attributes:
        count: rows of the columns that are whole, believable batches.
        position: first byte after them: where the walk stopped, or continues.
        status: why it stopped: OK at the end of the data, FULL columns, else the failure there.
        next_offset: one above the last offset of the last of them; as given where there is none.
        resume_min: first position where a batch may be believed again after a failure.
    """

    count: int
    position: int
    status: int
    next_offset: int
    resume_min: int


def walk_batches(
    data: memoryview,
    position: int,
    columns: BatchColumns,
    *,
    next_offset: int,
    offset_max: int,
    check_crc: bool = True,
    check_order: bool = True,
) -> WalkResult:
    """
    Walk whole batches of `data` from `position` on.

    Args:
        data: bytes of a segment, to the end of what is published.
        position: where a batch begins.
        columns: cleared columns for the headers.
        next_offset: smallest offset that may come first.
        offset_max: largest offset that may come at all.
        check_crc: False for a caller that checks the batches itself, and walks again with True
            after a walk that ended for another reason than OK or FULL.
        check_order: False for batches in any order of their offsets.
    """
    result = scan_batches(
        data,
        position,
        columns=columns,
        next_offset=next_offset,
        check_crc=check_crc,
        check_order=check_order,
    )
    if result.count and result.next_offset - 1 > offset_max:
        result = _up_to(data, position, columns, result, next_offset, offset_max)
    end_offset = result.next_offset if result.count else next_offset
    walk = WalkResult(result.count, result.position, result.status, end_offset, result.position + 1)
    if result.count == 0 or result.status not in (OK, FULL, OFFSET_ORDER):
        return walk
    if result.position == len(data):
        return walk
    following = _header(data, result.position)
    if following is None and result.status == FULL:
        # Possible damage: the batches before it are no more certain than within a run.
        status = scan_batches(data, result.position, check_crc=False).status
        return walk if status in (OK, TRUNCATED) else replace(walk, status=status)
    if following is None or following.base_offset >= end_offset or not check_order:
        return walk
    return _blame(data, columns, walk, following, next_offset)


class BatchEnd(NamedTuple):
    """End of a batch: the file, the position, and one above its last offset."""

    path: str | PathLike[str] | None
    position: int
    next_offset: int


def check_wrapper(batch: BatchView, records: list[Record], before: BatchView | None) -> None:
    """As `check_wrapper_offsets`, of the records themselves."""
    if not records or not batch.header.is_wrapper:
        return
    end = None
    if before is not None:
        position = before.position + before.header.size_bytes
        end = BatchEnd(before.path, position, before.header.next_offset)
    check_wrapper_offsets(batch, records[0].offset, records[-1].offset, end)


def fits_after(batch: BatchView, records: list[Record], before: BatchView | None) -> bool:
    """Return whether `check_wrapper` accepts a batch."""
    try:
        check_wrapper(batch, records, before)
    except CorruptRecordError:
        return False
    return True


def check_wrapper_offsets(
    batch: BatchView, first_offset: int, last_offset: int, before: BatchEnd | None
) -> None:
    """
    Compare the offsets in a wrapper with its own, and with the batch that was read before.

    No checksum covers that offset. In magic 0 each record has an offset, and the last of them is
    the wrapper's. In magic 1 all follow from it: if it is wrong, or the offset of the batch before,
    the two may overlap; and if it is too low for the records, a broker takes the offsets inside as
    they are.

    Args:
        batch: the wrapper.
        first_offset, last_offset: of the first and the last record inside.
        before: the end of the batch that was read before.

    Raises:
        CorruptRecordError: one of the offsets is wrong.
    """
    is_wrong = last_offset != batch.header.last_offset
    if before is not None and batch.path == before.path:
        adjacent = before.position == batch.position
        is_wrong = is_wrong or (adjacent and first_offset < before.next_offset)
    if is_wrong:
        check_status(OFFSET_ORDER, batch.position, batch.path, first_offset)


def _up_to(
    data: memoryview,
    position: int,
    columns: BatchColumns,
    result: ScanResult,
    next_offset: int,
    offset_max: int,
) -> ScanResult:
    """Walk again, and stop with BASE_OFFSET at the first batch that reaches above `offset_max`."""
    row = int(np.searchsorted(columns.last_offset[: result.count], offset_max, side="right"))
    foreign = int(columns.position[row])
    columns.clear()
    result = scan_batches(data, position, end=foreign, columns=columns, next_offset=next_offset)
    return result._replace(position=foreign, status=BASE_OFFSET)


def _blame(
    data: memoryview,
    columns: BatchColumns,
    walk: WalkResult,
    following: BatchHeader,
    first_offset: int,
) -> WalkResult:
    """Decide which base offset is wrong: that of the last batch walked, or of the next one."""
    row = walk.count - 1
    base, last = int(columns.base_offset[row]), int(columns.last_offset[row])
    expected = int(columns.last_offset[row - 1]) + 1 if row else first_offset
    third = _header(data, following.end_position)
    # End of each if the other one is right; one of them had to begin there or above.
    end_of_last = expected + (last - base) + 1
    end_of_following = last + following.last_offset_delta + 2
    last_may_be_wrong = following.base_offset >= end_of_last
    following_may_be_wrong = third is None or third.base_offset >= end_of_following
    if last_may_be_wrong and following_may_be_wrong:
        # Both fit. If offsets have no holes, the true neighbour fits exactly. The header of a
        # wrapper does not contain its number of offsets, so next to a wrapper nothing is certain.
        is_certain = not following.is_wrapper and columns.record_count[row] >= 0
        last_may_be_wrong = is_certain and following.base_offset == end_of_last
        following_may_be_wrong = (
            is_certain
            and third is not None
            and not third.is_wrapper
            and third.base_offset == end_of_following
        )
    if following_may_be_wrong and not last_may_be_wrong:
        return replace(walk, status=OFFSET_ORDER)
    start = int(columns.position[row])
    resume_min = (
        start + 1 if last_may_be_wrong and not following_may_be_wrong else following.end_position
    )
    return WalkResult(row, start, OFFSET_ORDER, expected, resume_min)


def _header(data: memoryview, position: int) -> BatchHeader | None:
    """Return the header at `position`, None at the end and at damage."""
    try:
        header = parse_header(data, position)
    except (CorruptRecordError, InvalidRecordError):
        return None
    return header if header.end_position <= len(data) else None
