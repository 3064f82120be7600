"""The batches of a segment, with every damage, up to its end.

The segment comes as a view of the mapped file; headers are read in chunks of columns, so the memory
used does not depend on the size of the file. Every batch's CRC is checked. A failure becomes a
DamageFact for the range up to the next whole batch, found by the same search that recovery uses.

Offsets are outside the CRC. A whole batch that breaks their order is still shown, with a DamageFact
of no size before it: the user must decide which of the two neighbours is wrong. So the walk does
not check the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog._core.status import status_meaning
from kafkalog.files.names import MAX_OFFSET
from kafkalog.files.zeros import is_zero
from kafkalog.log.batch_walk import ResumePoint, WalkDamage, WalkRange, walk_source
from kafkalog.log.byte_source import MappedSource
from kafkalog.log.corrupt_ranges import CorruptRange, find_corrupt_range
from kafkalog.log.judging import RELATIVE_OFFSET_MAX, LogEndFacts, judge_batches

from .facts import BatchFact, DamageFact, Fact, ZerosFact

__all__ = ["RecordReader", "segment_batches"]

_CHUNK_BATCHES: Final = 4096

RecordReader = Callable[[memoryview, BatchFact], Iterator[Fact]]


def segment_batches(
    data: memoryview,
    path: Path,
    base_offset: int,
    *,
    show_batches: bool = True,
    records: RecordReader | None = None,
) -> Iterator[Fact]:
    """
    Yield batches, their records and damaged ranges in the order of the file.

    Args:
        data: the whole segment.
        path: its file, for messages.
        base_offset: the offset in its name; an earlier offset inside is damage.
        show_batches: True to show batches themselves; damage is always shown.
        records: decodes one batch (its bytes and its fact); None shows no records.
    """
    columns = BatchColumns(_CHUNK_BATCHES)
    expected, limit = base_offset, base_offset + RELATIVE_OFFSET_MAX
    believed = _BelievedBatches(data, path, base_offset)
    damage: list[Fact] = []

    def on_damage(found: WalkDamage) -> ResumePoint | None:
        if is_zero(found.rest):
            damage.append(ZerosFact(found.position, len(found.rest)))
            return None
        fact = _damage(data, path, found.position, found.status, expected, base_offset)
        damage.append(fact)
        return ResumePoint(found.position + fact.size_bytes, 0)

    for walked in walk_source(
        MappedSource(data),
        WalkRange(0, len(data), 0, MAX_OFFSET),
        columns,
        check_order=False,
        on_damage=on_damage,
    ):
        # Damage that the walk found before these batches.
        yield from damage
        damage.clear()
        for batch in _rows(columns, walked.count):
            is_ordered = expected <= batch.base_offset <= batch.last_offset
            if not is_ordered or (batch.last_offset > limit and not believed.has(batch.position)):
                yield _disorder(batch, expected, base_offset)
            expected = batch.last_offset + 1
            if show_batches:
                yield batch
            if records is not None:
                yield from records(data[batch.position : batch.position + batch.size_bytes], batch)
    yield from damage


class _BelievedBatches:
    """
    The batches of a segment that contradict no other, found at the first call.

    Segments of old cleaners have offsets further from the base than an index can express.
    """

    def __init__(self, data: memoryview, path: Path, base_offset: int) -> None:
        self._data = data
        self._path = path
        self._base_offset = base_offset
        self._corrupt_ranges: tuple[CorruptRange, ...] | None = None

    def has(self, position: int) -> bool:
        """Return True if the batch at a position is one of them."""
        if self._corrupt_ranges is None:
            self._corrupt_ranges = judge_batches(
                self._data,
                self._path,
                first_offset=self._base_offset,
                offset_max=MAX_OFFSET - 1,
                following_offset=0,
                end_facts=LogEndFacts(),
            ).corrupt_ranges
        return not any(
            each.position <= position < each.end_position for each in self._corrupt_ranges
        )


def _damage(
    data: memoryview, path: Path, position: int, status: int, expected: int, base_offset: int
) -> DamageFact:
    corrupt_range = find_corrupt_range(
        data,
        path,
        position=position,
        end=len(data),
        status=status,
        # Not the expected offset: the offsets of the batch before may be false.
        next_offset=base_offset,
        offset_max=base_offset + RELATIVE_OFFSET_MAX,
        following_offset=expected,
    )
    found_next = corrupt_range.end_position < len(data) and corrupt_range.next_offset >= expected
    return DamageFact(
        position,
        corrupt_range.size_bytes,
        corrupt_range.reason,
        status_meaning(status),
        first_offset=expected,
        next_offset=corrupt_range.next_offset if found_next else None,
    )


def _disorder(batch: BatchFact, expected: int, base_offset: int) -> DamageFact:
    meaning = (
        f"offsets {batch.base_offset} to {batch.last_offset} where {expected} or more, up to "
        f"{base_offset + RELATIVE_OFFSET_MAX}, belong"
    )
    return DamageFact(batch.position, 0, "OFFSET_ORDER", meaning)


def _rows(columns: BatchColumns, count: int) -> Iterator[BatchFact]:
    """Yield the columns' rows as facts: one conversion for each column, none for each cell."""
    lists = (
        columns.position,
        columns.size_bytes,
        columns.base_offset,
        columns.last_offset,
        columns.record_count,
        columns.base_timestamp,
        columns.max_timestamp,
        columns.attributes,
        columns.crc,
        columns.leader_epoch,
        columns.producer_id,
        columns.producer_epoch,
        columns.base_sequence,
        columns.magic,
    )
    for row in zip(*(column[:count].tolist() for column in lists), strict=True):
        yield BatchFact(*row)
