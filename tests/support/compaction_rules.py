"""The rules of records that a compaction may remove, checked from records before and after.

Nothing here knows how a log is cleaned. A record may be missing afterwards for four reasons only:
its transaction was aborted; the same key has a later record; it is a tombstone whose time is over;
it has no key. All else must be there, as and where it was, and a reader that folds the records
into a state must get the same one.

Thread-safety: pure functions of what was observed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalog import Log
from tests.support.model import RecordFact, record_fact

__all__ = ["Served", "Tombstones", "state_of", "verify_compacted", "verify_finished"]


@dataclass(frozen=True)
class Served:
    """
    The records that a log returns.

    Attributes:
        start_offset, stable_offset, end_offset: where it begins; up to where transactions are
            decided; where it ends.
        records: all of its records of data, those of aborted transactions too.
        committed: offsets of those that readers of committed records see.
        old: offsets of those in the formats v0 and v1.
    """

    start_offset: int
    stable_offset: int
    end_offset: int
    records: tuple[RecordFact, ...]
    committed: frozenset[int]
    old: frozenset[int] = frozenset()

    @classmethod
    def of(cls, log: Log) -> Served:
        """Return what a log serves now."""
        old: set[int] = set()
        for batch in log.batches():
            if batch.header.magic < 2:
                old.update(record.offset for record in batch.records())
        return cls(
            log.log_start_offset,
            log.last_stable_offset,
            log.log_end_offset,
            tuple(record_fact(record) for record in log.records()),
            frozenset(record.offset for record in log.records(isolation="read_committed")),
            frozenset(old),
        )

    @property
    def offsets(self) -> frozenset[int]:
        """The offsets of all records."""
        return frozenset(fact.offset for fact in self.records)

    def latest(self, end_offset: int) -> dict[bytes, RecordFact]:
        """Return the last committed record of each key below an offset."""
        return {
            fact.key: fact
            for fact in self.records
            if fact.key is not None and fact.offset in self.committed and fact.offset < end_offset
        }


def state_of(served: Served, *, without: Collection[bytes] = ()) -> dict[bytes, bytes]:
    """Return what a reader of committed records ends with: the value of each key."""
    return {
        key: fact.value
        for key, fact in served.latest(served.end_offset).items()
        if fact.value is not None and key not in without
    }


@dataclass(frozen=True)
class Tombstones:
    """
    When tombstones may go, and when they must.

    Attributes:
        now_ms: the time of the cleaning.
        retention_ms: `delete.retention.ms`.
        may_be_seen: offset -> time of the first cleaning that may have seen it.
        must_be_seen: offset -> time of the first cleaning that has seen it.
        first_dirty: old tombstones below it were in a cleaning before: their time is that of their
            segment, of which nothing is known here.
    """

    now_ms: int
    retention_ms: int
    may_be_seen: Mapping[int, int]
    must_be_seen: Mapping[int, int]
    first_dirty: int = 0

    def may_go(self, fact: RecordFact, *, is_old: bool) -> bool:
        """Return whether a tombstone may be missing."""
        if fact.value is not None:
            return False
        if is_old:
            return fact.offset < self.first_dirty or self.retention_ms == 0
        seen_ms = self.may_be_seen.get(fact.offset)
        return seen_ms is not None and self.now_ms >= seen_ms + self.retention_ms

    def must_go(self, fact: RecordFact) -> bool:
        """Return whether a tombstone must be missing, of the format v2."""
        seen_ms = self.must_be_seen.get(fact.offset)
        return seen_ms is not None and self.now_ms >= seen_ms + self.retention_ms


def verify_compacted(
    before: Served,
    after: Served,
    *,
    end_offset: int,
    tombstones: Tombstones,
    lost_from: int | None = None,
) -> None:
    """
    Raise AssertionError if anything is missing that must be there, or there that must not be.

    Args:
        before, after: what was served.
        end_offset: where the cleaning ends at the latest.
        tombstones: their times.
        lost_from: where what was not on the disk begins, after a crash: all of it may be missing.
    """
    facts = {fact.offset: fact for fact in before.records}
    for fact in after.records:
        assert facts.get(fact.offset) == fact, f"{fact} was not served: {facts.get(fact.offset)}"
    offsets = [fact.offset for fact in after.records]
    assert sorted(set(offsets)) == offsets, f"out of order: {offsets}"
    assert before.start_offset == after.start_offset
    if lost_from is None:
        assert (before.stable_offset, before.end_offset) == (after.stable_offset, after.end_offset)
        assert before.committed & after.offsets == after.committed
    # The record that replaced another one is still there, or had a reason to be removed.
    latest = after.latest(end_offset)
    for fact in before.records:
        if fact.offset in after.offsets:
            continue
        if lost_from is not None and fact.offset >= lost_from:
            continue
        is_old = fact.offset in before.old
        assert fact.offset < end_offset, f"{fact} is beyond what may be cleaned, {end_offset}"
        if fact.offset not in before.committed:
            assert fact.offset < before.stable_offset, f"{fact} is gone, and was not decided"
            continue
        if fact.key is None or tombstones.may_go(fact, is_old=is_old):
            continue
        later = latest.get(fact.key)
        if later is not None and later.offset > fact.offset:
            continue
        expired = [
            other
            for other in before.records
            if other.key == fact.key
            and other.offset > fact.offset
            and other.offset in before.committed
            and (lost_from is None or other.offset < lost_from)
            and tombstones.may_go(other, is_old=other.offset in before.old)
        ]
        assert expired, f"{fact} is gone, and nothing later is there: {later}"
    if lost_from is None:
        assert state_of(before) == state_of(after)


def verify_finished(after: Served, *, end_offset: int, tombstones: Tombstones) -> None:
    """Raise AssertionError if a cleaning with memory for all keys left removable records."""
    latest = after.latest(end_offset)
    for fact in after.records:
        if fact.offset >= end_offset or (
            fact.offset in after.old and fact.offset + 1 == end_offset
        ):
            continue
        assert fact.offset in after.committed, f"{fact} was aborted"
        assert fact.key is not None, f"{fact} has no key"
        assert fact == latest[fact.key], f"{fact} is superseded by {latest[fact.key]}"
        assert not tombstones.must_go(fact), f"{fact} should be gone"
