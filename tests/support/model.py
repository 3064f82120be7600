"""A log in memory: what a log on a disk must hold, may hold, and must never show.

`LogModel` follows what a test does to a log. Operations that were begun and not seen to end (the
power went, or the disk failed) stay in `doubts`: afterwards the log may stand before or after them.
`verify` then judges what a reopened log serves.

Thread-safety: none; one test, one model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import kafkalog
from kafkalog import Record

__all__ = ["Doubt", "LogModel", "RecordFact", "Seen", "observe", "record_fact"]


class RecordFact(NamedTuple):
    """All of a record that a reader sees."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def record_fact(record: Record) -> RecordFact:
    """Return what a reader sees of a record."""
    return RecordFact(
        record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers)
    )


class Doubt(NamedTuple):
    """An operation that was begun: append (records), truncate, restart, delete (an offset)."""

    kind: str
    offset: int = 0
    records: tuple[RecordFact, ...] = ()


class Seen(NamedTuple):
    """The records of a reopened log; `corrupt_ranges` as (first offset, next offset)."""

    start_offset: int
    end_offset: int
    records: tuple[RecordFact, ...]
    corrupt_ranges: tuple[tuple[int, int], ...]
    bases: tuple[int, ...]


def observe(log: kafkalog.Log) -> Seen:
    """Read all that a log serves, around its corrupt ranges."""
    records = tuple(record_fact(record) for record in log.records(on_corrupt="skip"))
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        records,
        tuple(
            (corrupt_range.first_offset, corrupt_range.next_offset)
            for corrupt_range in log.corrupt_ranges()
        ),
        tuple(segment.base_offset for segment in log.segments()),
    )


@dataclass(slots=True)
class LogModel:
    """
    The expected content of a log.

    Attributes:
        records: by offset; those below the start too, until their segment may be gone.
        start_offset, end_offset: the log's range.
        durable_offset: everything below it was acknowledged as being on the disk.
        doubts: what was begun and not seen to end.
        left_out: offsets that went with a batch which straddled the target of a truncation. They
            may be reported as lost.
    """

    records: dict[int, RecordFact] = field(default_factory=dict)
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    doubts: list[Doubt] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)

    def copy(self) -> Self:
        """Return an independent model; facts and doubts never change."""
        return replace(
            self,
            records=dict(self.records),
            doubts=list(self.doubts),
            left_out=set(self.left_out),
        )

    # Operations.

    def append(self, facts: Iterable[RecordFact]) -> None:
        """Take in records whose offsets follow the log end."""
        for fact in facts:
            assert fact.offset == self.end_offset, f"{fact} at log end {self.end_offset}"
            self.records[fact.offset] = fact
            self.end_offset += 1

    def truncate_to(self, offset: int, batch_base: int) -> None:
        """Remove everything from `batch_base` on, where the batch begins that holds `offset`."""
        if offset >= self.end_offset:
            return
        self.records = {at: fact for at, fact in self.records.items() if at < batch_base}
        self.left_out = {at for at in self.left_out if at < offset} | {*range(batch_base, offset)}
        self.end_offset = offset
        self.durable_offset = min(self.durable_offset, offset)

    def restart_at(self, offset: int) -> None:
        """Remove everything; the next offset is `offset`."""
        self.records, self.left_out = {}, set()
        self.start_offset = self.end_offset = offset
        self.durable_offset = min(self.durable_offset, offset)

    def delete_before(self, offset: int) -> None:
        """Move the start up."""
        self.start_offset = max(self.start_offset, offset)
        self.records = {at: fact for at, fact in self.records.items() if at >= self.start_offset}

    def became_durable(self, offset: int) -> None:
        """Take note of an acknowledgement."""
        self.durable_offset = max(self.durable_offset, offset)

    def continue_from(self, seen: Seen) -> None:
        """Continue from the content of a reopened log; nothing is in doubt any more."""
        self.records = {fact.offset: fact for fact in seen.records}
        self.start_offset, self.end_offset = seen.start_offset, seen.end_offset
        self.durable_offset = min(self.durable_offset, seen.end_offset)
        self.doubts = []

    # Checks.

    def verify_losses(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Raise AssertionError unless all that is reported as lost was left out by a truncation."""
        reported = {at for first, following in ranges for at in range(first, following)}
        assert reported <= self.left_out, f"reported {reported}, left out {self.left_out}"

    def served(self, start: int | None = None, end: int | None = None) -> list[RecordFact]:
        """Return the records of a range, in order."""
        start = self.start_offset if start is None else start
        end = self.end_offset if end is None else end
        return [self.records[at] for at in sorted(self.records) if start <= at < end]

    def first_at(self, timestamp_ms: int) -> RecordFact | None:
        """Return the first record at or above a time."""
        found = (fact for fact in self.served() if fact.timestamp_ms >= timestamp_ms)
        return next(found, None)

    def verify(self, seen: Seen) -> None:
        """Raise AssertionError unless `seen` is a state that a crash may leave."""
        facts = dict(self.records)
        for doubt in self.doubts:
            facts.update((fact.offset, fact) for fact in doubt.records)
        self._verify_range(seen)
        previous = seen.start_offset - 1
        for fact in seen.records:
            assert fact.offset > previous, f"offset {fact.offset} after {previous}"
            assert facts.get(fact.offset) == fact, f"{fact} is not {facts.get(fact.offset)}"
            self._verify_gap(seen, previous + 1, fact.offset)
            previous = fact.offset
        self._verify_gap(seen, previous + 1, seen.end_offset)
        self._verify_kept(seen)
        for first, following in seen.corrupt_ranges:
            # Or a segment, whose name outlived batches before it that were not promised.
            behind = following in seen.bases
            behind = behind or any(fact.offset >= following for fact in seen.records)
            assert behind, f"a corrupt range {first} to {following} with nothing whole behind it"

    def _of_kind(self, kind: str) -> Sequence[Doubt]:
        return [doubt for doubt in self.doubts if doubt.kind == kind]

    def _verify_range(self, seen: Seen) -> None:
        starts = {self.start_offset}
        ends = {self.end_offset}
        for doubt in self.doubts:
            if doubt.kind in ("delete", "restart"):
                starts.add(doubt.offset)
                ends.add(doubt.offset)
            ends.update(fact.offset + 1 for fact in doubt.records)
        assert seen.start_offset in starts, f"log start {seen.start_offset}, not one of {starts}"
        assert seen.end_offset <= max(ends), f"log end {seen.end_offset} above {ends}"

    def _kept_end(self) -> int:
        ends = [self.durable_offset, *(doubt.offset for doubt in self._of_kind("truncate"))]
        return min(ends)

    def _verify_gap(self, seen: Seen, first: int, following: int) -> None:
        """A hole must lie in a corrupt range, or be the unsynced end of a segment that others
        follow.
        """
        lost = [offset for offset in range(first, following) if offset in self.records]
        if not lost:
            return
        for range_first, range_next in seen.corrupt_ranges:
            if range_first <= lost[0] and lost[-1] < range_next:
                return
        at_border = following in seen.bases and following > seen.start_offset
        at_border = at_border or following == seen.end_offset
        assert at_border and lost[0] >= self._kept_end(), (
            f"offsets {lost[0]} to {lost[-1]} are missing; durable is {self.durable_offset}"
        )

    def _verify_kept(self, seen: Seen) -> None:
        if self._of_kind("restart"):
            return
        kept_start = max([self.start_offset, *(doubt.offset for doubt in self._of_kind("delete"))])
        served = {fact.offset for fact in seen.records}
        for offset in range(kept_start, self._kept_end()):
            assert offset not in self.records or offset in served, (
                f"offset {offset} was durable (below {self.durable_offset}) and is gone"
            )
        assert self._kept_end() <= max(seen.end_offset, seen.start_offset)
