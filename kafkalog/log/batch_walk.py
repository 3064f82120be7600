"""The walk over the batches of a segment, for everything that reads one from end to end.

Recovery, scans, readers, the cleaner, conversion and the planning of Spark differ in where bytes
are stored, in when a CRC is checked and in what they do at damage. The loop is the same: read a
window, walk the whole batches in it, read more if a batch does not fit, and call the caller's
`on_damage` where no whole batch is. `walk.py` and `judging.py`, which are called from here and from
nowhere else, decide what a whole batch is and which offset is believed.

Readers pass a `BatchJudge`, the state of knowledge about the damage in a segment. If anything is
odd, the segment is judged as a whole before a batch is yielded, so that all readers believe the
same batches, for every start and every window size.

Invariants: a batch is yielded once, in order of position. Without a judge the walk changes nothing
and stores nothing.

Thread-safety: none; a walk belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.zeros import is_zero
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log.byte_source import ByteSource
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.walk import WalkResult, walk_batches

__all__ = [
    "WINDOW_BYTES",
    "BatchJudge",
    "CrcCheck",
    "OnDamage",
    "ResumePoint",
    "WalkDamage",
    "WalkRange",
    "WalkedBatches",
    "walk_source",
]

OK: Final = STATUS_CODES["OK"]
FULL: Final = STATUS_CODES["FULL"]
TRUNCATED: Final = STATUS_CODES["TRUNCATED"]
GOOD: Final = (OK, FULL)

# Bytes of one read if bytes are copied.
WINDOW_BYTES: Final = 1 << 20
# Largest number of walks from one position, each after a judgement that has changed the batches
# that are believed there.
JUDGEMENTS_MAX: Final = 1024


class CrcCheck(Enum):
    """
    When the CRC of a batch is checked.

    ON_DOUBT is for a caller that checks the CRC of each batch itself while it decodes it, and
    reports a wrong one with `WalkedBatches.reject`. Headers are walked first; if that walk ends in
    anything odd, it is repeated with every CRC, and only the result of the second walk counts.
    """

    ALWAYS = "always"
    NEVER = "never"
    ON_DOUBT = "on doubt"


class WalkRange(NamedTuple):
    """
    Bounds of a walk.

    Attributes:
        position: of the first batch.
        end: one past the last byte that is read.
        next_offset: smallest offset that the first batch may have.
        offset_max: largest offset that any batch may have.
    """

    position: int
    end: int
    next_offset: int
    offset_max: int


class ResumePoint(NamedTuple):
    """
    Start of the rest of a walk, after damage.

    Attributes:
        position: of the next batch.
        next_offset: smallest offset that it may have.
    """

    position: int
    next_offset: int


class WalkDamage(NamedTuple):
    """
    Bytes at which a walk found no whole batch, and the reason.

    Attributes:
        position: of the bytes in question.
        status: the check that failed there, a code of `_core/status`.
        next_offset: one above the last offset before.
        resume_min: first position where a batch may be believed again.
        rest: the bytes from the position on, up to the end of the window.
        batch_bytes: size of a batch that is refused because it is larger than allowed, else 0.
    """

    position: int
    status: int
    next_offset: int
    resume_min: int
    rest: memoryview
    batch_bytes: int = 0


# Raises, or returns the point where the walk continues; None ends the walk.
OnDamage: TypeAlias = Callable[[WalkDamage], ResumePoint | None]


@dataclass(slots=True)
class WalkedBatches:
    """
    Consecutive whole batches: the first `count` rows of the columns, valid until the next step.

    Attributes:
        data: bytes with the batches. Positions in the columns count from its first byte.
        origin: position in the segment where `data` begins.
        count: number of batches, at least one.
        position, end_position: their start and end in the segment.
        expected: smallest offset that the first one could have.
        next_offset: one above the last offset of the last one.
        is_checked: whether every CRC was checked.
        rejected_row: a row that `reject` named.
    """

    data: memoryview
    origin: int
    count: int
    position: int
    end_position: int
    expected: int
    next_offset: int
    is_checked: bool
    rejected_row: int | None = None

    def start_of_rejected(self, columns: BatchColumns) -> ResumePoint:
        """Return the start of the row that `reject` named."""
        row = self.rejected_row or 0
        expected = int(columns.last_offset[row - 1]) + 1 if row else self.expected
        return ResumePoint(self.origin + int(columns.position[row]), expected)

    def reject(self, row: int) -> None:
        """Continue the walk at a row whose CRC is wrong; the CRCs of the rows before are right."""
        self.rejected_row = row

    @property
    def run(self) -> memoryview:
        """The bytes of the batches."""
        return self.data[self.position - self.origin : self.end_position - self.origin]


class BatchJudge(Protocol):
    """
    Knowledge about the damage in a segment, and the means to find more.

    Attributes:
        end: one past the last byte that may hold batches; lowered when more is known.
        is_final: whether all damage before the end is known, so that other batches are believed.
    """

    @property
    def end(self) -> int: ...

    @property
    def is_final(self) -> bool: ...

    def corrupt_range_from(self, position: int) -> CorruptRange | None:
        """Return the first corrupt range that ends after a position."""
        ...

    def judge(self, damage: WalkDamage, /) -> None:
        """Judge the segment, because a walk found no whole batch, or an odd batch."""
        ...

    def accepts(
        self, walk: WalkResult, origin: int, expected: int, columns: BatchColumns, /
    ) -> bool:
        """
        Return whether the records of batches fit between the batches around them.

        Args:
            walk: a walk over a window, which found batches.
            origin: start of the window.
            expected: smallest offset that the first of them may have.
            columns: their headers.
        """
        ...

    def judge_refused(self) -> None:
        """Judge the segment, because `accepts` returned False."""
        ...


def walk_source(
    source: ByteSource,
    walk_range: WalkRange,
    columns: BatchColumns,
    *,
    check_crc: CrcCheck = CrcCheck.ALWAYS,
    check_order: bool = True,
    on_damage: OnDamage,
    judge: BatchJudge | None = None,
    window_bytes: int | None = None,
    batch_bytes_max: int | None = None,
) -> Iterator[WalkedBatches]:
    """
    Yield the whole batches of a segment, run by run; the caller decides what happens at damage.

    Args:
        source: the bytes.
        walk_range: which of them, and which offsets may be in them.
        columns: filled with the headers of each run. Its capacity bounds a run.
        check_crc: when the CRC of a batch is checked.
        check_order: False to yield batches in any order of their offsets; not with a judge.
        on_damage: called where no whole batch is, after the batches before were yielded.
        judge: knowledge about the damage in the segment; None to accept the batches as they are,
            in order of their offsets.
        window_bytes: bytes of one read; all at once if None and that is free.
        batch_bytes_max: a batch larger than this, and than a window, is reported as damage.

    Raises:
        Exception: any error of `on_damage` or of the source.
    """
    if window_bytes is None:
        is_free = source.whole_is_free
        window_bytes = walk_range.end - walk_range.position if is_free else WINDOW_BYTES
    judged = (
        None if judge is None else _JudgedWalk(judge, columns, walk_range.offset_max, check_crc)
    )
    sizes = max(window_bytes, RECORD_BATCH_OVERHEAD), batch_bytes_max or walk_range.end
    checks = check_crc, check_order
    return _walk(source, walk_range, columns, checks, on_damage, judged, sizes)


def _walk(
    source: ByteSource,
    walk_range: WalkRange,
    columns: BatchColumns,
    checks: tuple[CrcCheck, bool],
    on_damage: OnDamage,
    judged: _JudgedWalk | None,
    sizes: tuple[int, int],
) -> Iterator[WalkedBatches]:
    """As `walk_source`; `sizes` are those of a window and of the largest batch."""
    position, end, expected, limit = walk_range
    checks_all = is_checking = checks[0] is CrcCheck.ALWAYS
    window_bytes, origin, window = sizes[0], -1, memoryview(b"")
    read = partial(walk_batches, columns=columns, offset_max=limit, check_order=checks[1])
    while position < end:
        if origin < 0:
            # A header more shows whether the last batch of the window is followed by another.
            window = source.window(
                position, min(window_bytes + RECORD_BATCH_OVERHEAD, end - position)
            )
            origin, end = position, min(end, source.size_bytes)
        stop, at = min(end, origin + window_bytes), position - origin
        data = window if stop - origin == len(window) else window[: stop - origin]
        if judged is None:
            columns.clear()
            walk = read(data, at, next_offset=expected, check_crc=is_checking)
            is_cut = walk.status == TRUNCATED and stop < end
        else:
            here = _Here(window, origin, position, stop, end, expected, is_checking)
            walk, is_cut, is_checking = judged.walk(here)
            end = min(end, judged.end)
        status, count = walk.status, walk.count
        if count:
            after = origin + walk.position
            walked = WalkedBatches(
                window, origin, count, position, after, expected, walk.next_offset, is_checking
            )
            yield walked
            if walked.rejected_row is not None:
                # Walk again from there, with every CRC: only the result of that walk counts.
                (position, expected), is_checking = walked.start_of_rejected(columns), True
                continue
            position, expected, is_checking = after, walk.next_offset, checks_all
        batch_bytes = 0
        if is_cut and not count and position == origin:
            batch_bytes = _declared_bytes(window, end - position)
            is_cut = stop - position < batch_bytes <= sizes[1]
        if is_cut or status in GOOD:
            if is_cut or position == stop:
                # A window of the usual size again, unless a batch does not fit.
                window_bytes, origin = batch_bytes or sizes[0], -1
            continue
        rest, resume_min = window[position - origin :], origin + walk.resume_min
        resume = on_damage(WalkDamage(position, status, expected, resume_min, rest, batch_bytes))
        if resume is None:
            return
        (position, expected), is_checking = resume, checks_all
        if not origin <= position < stop:
            window_bytes, origin = sizes[0], -1


class _Here(NamedTuple):
    """
    Start of a judged walk.

    Attributes:
        window, origin: bytes, and their start in the segment.
        position, expected: of the next batch, and the smallest offset that it may have.
        stop: end of the part of the window that is walked.
        end: one past the last byte that is walked.
        is_checking: whether every CRC is checked.
    """

    window: memoryview
    origin: int
    position: int
    stop: int
    end: int
    expected: int
    is_checking: bool


class _JudgedWalk:
    """
    Walks over batches that a judge believes. The judge is called first if anything is odd.

    Args:
        judge: knowledge about the damage in the segment.
        columns, offset_max, check_crc: as of the walk.
    """

    __slots__ = ("_columns", "_is_doubting", "_judge", "_judged", "_offset_max")

    def __init__(
        self, judge: BatchJudge, columns: BatchColumns, offset_max: int, check_crc: CrcCheck
    ) -> None:
        self._judge = judge
        self._columns = columns
        self._offset_max = offset_max
        self._is_doubting = check_crc is CrcCheck.ON_DOUBT
        # Position and end of the last judgement, which is not repeated if it changed nothing.
        self._judged = (-1, -1)

    @property
    def end(self) -> int:
        """One past the last byte that may hold batches."""
        return self._judge.end

    def walk(self, here: _Here) -> tuple[WalkResult, bool, bool]:
        """Return a walk, whether it ended because the window did, and whether CRCs were checked."""
        judge, is_checking = self._judge, here.is_checking
        for _attempt in range(JUDGEMENTS_MAX):
            at, end = here.position - here.origin, judge.end
            corrupt = judge.corrupt_range_from(here.position)
            if corrupt is not None and corrupt.position <= here.position:
                status, resume_min = STATUS_CODES[corrupt.reason], corrupt.end_position
                walk = WalkResult(0, at, status, here.expected, resume_min - here.origin)
                return walk, False, is_checking
            limit = end if corrupt is None else min(end, corrupt.position)
            stop, is_final = max(min(here.stop, limit), here.position), judge.is_final
            self._columns.clear()
            walk = walk_batches(
                here.window[: stop - here.origin],
                at,
                self._columns,
                # Batches between corrupt ranges are believed once all of them are known.
                next_offset=0 if is_final else here.expected,
                offset_max=self._offset_max,
                check_crc=is_checking,
            )
            is_cut = walk.status == TRUNCATED and stop < limit
            is_odd = not (is_cut or walk.status in GOOD)
            if not (is_odd or is_final or stop in (limit, here.end)):
                is_odd = not _is_followed(here.window, walk)
            if is_odd and self._is_doubting and not is_checking:
                is_checking = True
                continue
            if is_odd and not is_final and self._judged != (here.position, end):
                self._judged = here.position, end
                judge.judge(_damage_of(walk, here))
                continue
            if not walk.count or judge.accepts(walk, here.origin, here.expected, self._columns):
                break
            if self._is_doubting and not is_checking:
                is_checking = True
            else:
                judge.judge_refused()
        return walk, is_cut, is_checking


def _is_followed(window: memoryview, walk: WalkResult) -> bool:
    """Return whether the batch after the last one of a walk begins where it may."""
    if not walk.count:
        return True
    head = window[walk.position : walk.position + RECORD_BATCH_OVERHEAD]
    header = _header(head)
    return is_zero(head) if header is None else header.base_offset >= walk.next_offset


def _declared_bytes(window: memoryview, available: int) -> int:
    """Return the size of the batch that a window begins with; 0 if its header is damaged."""
    header = _header(window)
    return 0 if header is None or header.size_bytes > available else header.size_bytes


def _header(data: memoryview) -> BatchHeader | None:
    """Return the header that bytes begin with, None if it is damaged or not whole."""
    try:
        return parse_header(data)
    except (CorruptRecordError, InvalidRecordError):
        return None


def _damage_of(walk: WalkResult, here: _Here) -> WalkDamage:
    """Return the damage that ended a walk; its status is OK if only the batch after it is odd."""
    expected = walk.next_offset if walk.count else here.expected
    return WalkDamage(
        here.origin + walk.position,
        walk.status,
        expected,
        here.origin + walk.resume_min,
        here.window[walk.position :],
    )
