"""Batches that one call has written to several partitions, and that are acknowledged together.

A call of many records to many partitions has a batch in each. Its future would wait for hundreds of
outcomes, each with a lock, and with objects for the batch and its part; here all of them are one:
the offsets are known since the append, and the disk has all batches, or fails for some. With
outcomes of their own 470 batches took 10 ms more.

Thread-safety: filled by the thread that writes; then `finish` and `abandon` once, by any thread,
everything else from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalog._core.sent_ranges import split_ranges
from kafkalog.clients.delayed_sends import DelayedCall
from kafkalog.clients.sent_range import SentRange
from kafkalog.errors import KafkaLogError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition

__all__ = ["RoundPartition", "RoundShare", "RoundWatcher", "WrittenBatch", "WrittenRound"]


class RoundPartition(Protocol):
    """Partition of a batch."""

    @property
    def where(self) -> TopicPartition:
        """Topic and partition."""
        ...

    def renew_identity(self) -> None:
        """Number later batches by another producer id."""


class RoundWatcher(Protocol):
    """Receiver of the end of a round."""

    def end_part(self) -> None:
        """Take note that the round has ended."""

    def abandon(self) -> None:
        """Forget everything in a forked child."""


class WrittenBatch(NamedTuple):
    """
    Batch of a round.

    Attributes:
        partition, log: the partition.
        range: the offsets.
        rows: numbers of the records in the call, in order.
    """

    partition: RoundPartition
    log: Log
    range: SentRange
    rows: Sequence[int]


class WrittenRound:
    """
    Batches of one call, one for each of several partitions.

    Args:
        delayed: records whose logs get them later; the round has no other batches.

    Attributes:
        delayed: as given.
        reserved_bytes: buffer memory that was reserved for them; of an interrupted call it may be
            less.
        is_set: whether it is known what is in the log.
        errors: errors of batches, by their place in `batches`; set with `is_set`.
    """

    __slots__ = (
        "_batches",
        "_condition",
        "_watched",
        "delayed",
        "errors",
        "is_set",
        "reserved_bytes",
    )

    def __init__(self, delayed: DelayedCall | None = None) -> None:
        self.delayed = delayed
        # Of delayed records, when they are asked for.
        self._batches: list[WrittenBatch] | None = None if delayed else []
        self.reserved_bytes = 0
        self.is_set = False
        self.errors: dict[int, BaseException] = {}
        self._condition = threading.Condition()
        self._watched: tuple[RoundWatcher, ...] = ()

    @property
    def batches(self) -> list[WrittenBatch]:
        """The batches; only `Accumulator.write_at_once` adds others."""
        if self._batches is None:
            assert self.delayed is not None
            self._batches = _batches_of(self.delayed)
        return self._batches

    @property
    def record_count(self) -> int:
        """Number of records."""
        if self.delayed is not None:
            return len(self.delayed.send)
        return sum(len(each.rows) for each in self.batches)

    @property
    def topic(self) -> str:
        """The topic."""
        return self.delayed.topic if self.delayed else self.batches[0].partition.where.topic

    @property
    def logs(self) -> list[Log]:
        """The logs that are to be committed: none of delayed records."""
        return [] if self.delayed else [each.log for each in self.batches]

    def split(self, counts: list[int]) -> list[list[SentRange]]:
        """Return the ranges of each group of consecutive records; `counts` of all records."""
        if self.delayed is not None:
            return self.delayed.send.split(counts, SentRange)
        return split_ranges(self.batches, counts, SentRange)

    def add_reserved(self, size_bytes: int) -> None:
        """Take over memory that was reserved for a batch."""
        self.reserved_bytes += size_bytes

    def failures(self, failed: Mapping[Log, KafkaLogError]) -> Mapping[int, KafkaLogError]:
        """Return the errors of batches, after a commit in which logs have failed."""
        if self.delayed is not None:
            return self.delayed.send.errors
        if not failed:
            return {}
        found = {}
        for place, each in enumerate(self.batches):
            error = failed.get(each.log)
            # The close of a log syncs it as well.
            end_offset = each.range.first_offset + each.range.record_count
            if error is not None and end_offset > each.log.durable_offset:
                found[place] = error
        return found

    def finish(self, errors: Mapping[int, BaseException]) -> None:
        """Set the outcome."""
        with self._condition:
            if self.is_set:
                return
            self.errors = dict(errors)
            self.is_set = True
            self._condition.notify_all()
            watched, self._watched = self._watched, ()
        for watcher in watched:
            watcher.end_part()

    def fail(self, error: BaseException) -> None:
        """Set an error as the outcome of all partitions."""
        self.finish(dict.fromkeys(range(len(self.batches)), error))

    def wait(self, timeout: float | None) -> bool:
        """Wait for the outcome, for ever if None; return whether it is set."""
        with self._condition:
            return self._condition.wait_for(lambda: self.is_set, timeout)

    def watch(self, watcher: RoundWatcher) -> bool:
        """Notify a watcher once the outcome is set, unless it is; return whether it will be."""
        with self._condition:
            if self.is_set:
                return False
            self._watched += (watcher,)
            return True

    def abandon(self, error: BaseException) -> None:
        """Set an error in a forked child, where no outcome will arrive; call no callbacks."""
        self._condition = threading.Condition()
        watched, self._watched = self._watched, ()
        if not self.is_set:
            self.errors = dict.fromkeys(range(len(self.batches)), error)
            self.is_set = True
        for watcher in watched:
            watcher.abandon()


class RoundShare:
    """
    Consecutive records of a call that a round has.

    Args:
        written: the round.
        first_row, stop_row: numbers of the records in the call.
        ranges: their offsets, in the order of the first records; found when they are needed if
            None, for all records of the call.
    """

    __slots__ = ("_first_row", "_ranges", "_stop_row", "written")

    def __init__(
        self,
        written: WrittenRound,
        first_row: int,
        stop_row: int,
        ranges: list[SentRange] | None = None,
    ) -> None:
        self.written = written
        self._first_row = first_row
        self._stop_row = stop_row
        self._ranges = ranges

    @property
    def ranges(self) -> list[SentRange]:
        """The offsets, in the order of the first records."""
        if self._ranges is None:
            (self._ranges,) = self.written.split([self._stop_row])
        return self._ranges

    @property
    def record_count(self) -> int:
        """Number of records."""
        return sum(each.record_count for each in self.ranges)

    @property
    def is_delivered(self) -> bool:
        """True once all records of the round are in the log."""
        written = self.written
        return written.is_set and not written.errors

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far, in the order of their first records."""
        if not self.written.is_set:
            return []
        failed = self.written.errors
        if not failed:
            return self.ranges.copy()
        batches = self.written.batches
        partitions = {batches[place].range.partition for place in failed}
        return [each for each in self.ranges if each.partition not in partitions]

    @property
    def failed(self) -> list[tuple[list[int], BaseException]]:
        """Numbers of the records that will not be in the log, with their errors, by partition."""
        first, stop = self._first_row, self._stop_row
        found = []
        for place, error in self.written.errors.items():
            rows = [row - first for row in self.written.batches[place].rows if first <= row < stop]
            if rows:
                found.append((rows, error))
        return found

    def first_rows(self) -> dict[int, int]:
        """Return the number of the first record of each partition."""
        first, stop = self._first_row, self._stop_row
        found = {}
        for each in self.written.batches:
            row = next((row for row in each.rows if first <= row < stop), None)
            if row is not None:
                found[each.range.partition] = row - first
        return found

    @classmethod
    def split(cls, written: WrittenRound, counts: list[int]) -> list[RoundShare]:
        """Return the shares of groups of consecutive records; `counts` of all records of a call."""
        first, shares = 0, []
        for count, ranges in zip(counts, written.split(counts), strict=True):
            shares.append(cls(written, first, first + count, ranges))
            first += count
        return shares


class _DelayedPartition:
    """Partition of delayed records, which have no producer id."""

    __slots__ = ("where",)

    def __init__(self, where: TopicPartition) -> None:
        self.where = where

    def renew_identity(self) -> None:
        """Do nothing: there is no number to be used again."""


def _batches_of(delayed: DelayedCall) -> list[WrittenBatch]:
    """Return the records of each partition of delayed records as a batch."""
    topic, send = delayed
    found = []
    for place, records in enumerate(send.logs):
        where = TopicPartition(topic, send.partition(place))
        first_offset = send.first_offset(place)
        sent = SentRange(where.partition, first_offset, send.end_offset(place) - first_offset)
        found.append(WrittenBatch(_DelayedPartition(where), records.log, sent, send.rows(place)))
    return found
