"""Records of one `Producer.send_many`: checked, distributed over partitions, and their future.

All records are checked before the first is accepted, and their memory is reserved at once: a call
accepts all of its records or none. The records of a call in one batch are a part; they are stored
together or refused together. The future is done with its last part.

Thread-safety: lists and groups belong to one call; the future is for any thread. Its lock is
acquired above the condition of an outcome.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.record_groups import RecordGroup, group_records, whole_group
from kafkalog.clients.delivery import FINISHED, BatchOutcome
from kafkalog.clients.sent_range import SentRange
from kafkalog.clients.written_round import RoundShare
from kafkalog.model import Header
from kafkalog.records.packing import Timestamps, TimestampsLike, timestamps_of

__all__ = [
    "BATCH_OVERHEAD",
    "BatchPart",
    "ManyRecords",
    "PartitionRecords",
    "SentMany",
    "SentRange",
    "header_bytes",
    "list_of",
]

# More than the header of a batch takes.
BATCH_OVERHEAD: Final = 64
# Headers and timestamps are checked by encoding about so many bytes at a time.
CHECKED_BYTES: Final = 1 << 20

Fields: TypeAlias = list[bytes | None]
Headers: TypeAlias = list[tuple[Header, ...] | None]


logger = logging.getLogger(__name__)


class SentPart(Protocol):
    """Records of one call in one batch, at consecutive slots."""

    @property
    def outcome(self) -> BatchOutcome:
        """The outcome of the batch."""
        ...

    @property
    def slot(self) -> int:
        """Number of the first record in the batch."""
        ...

    @property
    def rows(self) -> Sequence[int]:
        """Numbers of the records in the call, in order."""
        ...

    @property
    def record_count(self) -> int:
        """Number of records."""
        ...

    @property
    def is_done(self) -> bool:
        """True if the outcome is set."""
        ...

    def wait(self, timeout: float | None) -> None:
        """Wait for the outcome; TimeoutError if it is not set in time."""

    def watch(self, many: SentMany) -> bool:
        """Let the batch notify a future, unless its outcome is set; return whether it will."""
        ...


class SentMany(Future[list[SentRange]]):
    """
    Future of the records of one `Producer.send_many`: their offsets, by partition.

    The result has the ranges of one partition after the other, in the order of their first records;
    within a partition records keep their order. If some records are not delivered, `result` raises
    the error of the first of them; `delivered` and `failed_rows` state what happened to each.

    It cannot be cancelled: the records were accepted.

    Its state is that of the batches: nothing is done for it when a batch ends, unless it has
    callbacks, or a thread in `concurrent.futures.wait`.
    """

    # `Future.__init__` is left out: what it would store are properties here.
    def __init__(self) -> None:
        self._parts: list[SentPart] = []
        # The records that were written at once; the parts have the others.
        self._share: RoundShare | None = None
        self._lock = threading.Lock()
        # Number of batches that have not ended, once it is watched.
        self._open_count: int | None = None
        self._callbacks: list[Callable[[Future[list[SentRange]]], object]] = []
        self._waiting: list[Any] = []

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far."""
        share = self._share
        if share is not None and not self._parts:
            return share.delivered
        # Without a call for each batch, as in `done`: a call of many records has thousands.
        found = [
            (
                each.rows[0],
                SentRange(
                    outcome.where.partition,
                    outcome.base_offset + each.slot,
                    len(each.rows),
                    outcome.is_duplicate,
                ),
            )
            for each in self._parts
            if (outcome := each.outcome).state == FINISHED and outcome.error is None
        ]
        return self._in_order(found)

    def _in_order(self, found: list[tuple[int, SentRange]]) -> list[SentRange]:
        """Return ranges of parts and of the share, one partition after the other."""
        share = self._share
        if share is not None:
            first_rows = share.first_rows()
            found += [(first_rows[each.partition], each) for each in share.delivered]
        starts: dict[int, int] = {}
        for row, each in found:
            starts[each.partition] = min(row, starts.get(each.partition, row))
        found.sort(key=lambda each: (starts[each[1].partition], each[0], each[1].first_offset))
        return [each for _row, each in found]

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log, counted from 0, in order."""
        failed = [each.rows for each in self._parts if each.outcome.error is not None]
        if self._share is not None:
            failed += [rows for rows, _error in self._share.failed]
        return sorted(row for rows in failed for row in rows)

    def take(self, share: RoundShare) -> None:
        """Take the records that were written at once, before the caller has the future."""
        self._share = share

    def split(self, counts: Sequence[int]) -> list[SentMany]:
        """
        Return a future for each group of consecutive records, of a call that joined several.

        Args:
            counts: the number of records of each group; all records together.
        """
        found = [SentMany() for _ in counts]
        if self._share is not None:
            for each, share in zip(
                found, RoundShare.split(self._share.written, [*counts]), strict=True
            ):
                each.take(share)
        if not self._parts:
            return found
        owners: list[tuple[int, int]] = []
        first = 0
        for number, count in enumerate(counts):
            owners += [(number, first)] * count
            first += count
        for part in self._parts:
            rows, start = part.rows, 0
            while start < len(rows):
                number, first = owners[rows[start]]
                stop = start + 1
                while stop < len(rows) and owners[rows[stop]][0] == number:
                    stop += 1
                own = [row - first for row in rows[start:stop]]
                found[number].add(PartOfPart(part, start, own))
                start = stop
        return found

    def add(self, part: SentPart) -> None:
        """Add a part, before the caller has the future."""
        self._parts.append(part)

    def abandon(self) -> None:
        """Forget callbacks in a forked child, where each batch has its error already."""
        # A thread of the parent may have had the lock.
        self._lock = threading.Lock()
        self._callbacks, self._waiting = [], []
        self._open_count = 0

    def cancel(self) -> bool:
        """Return False: sent records cannot be withdrawn."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def running(self) -> bool:
        """Return whether an outcome is not known yet."""
        return not self.done()

    def done(self) -> bool:
        """Return whether each record is in the log, or never will be."""
        if self._share is not None and not self._share.written.is_set:
            return False
        # A list takes half the time of a generator.
        return all([each.outcome.state == FINISHED for each in self._parts])  # noqa: C419

    def result(self, timeout: float | None = None) -> list[SentRange]:
        """
        Return the ranges once all records are in the log.

        Args:
            timeout: seconds to wait at most; None for ever.

        Raises:
            TimeoutError: an outcome is not known yet.
            KafkaLogError: the error of the first record that is not in the log.
        """
        share = self._share
        if share is None or self._parts or not share.is_delivered:
            error = self.exception(timeout)
            if error is not None:
                raise error
        return self.delivered

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the first error, None once all are in the log; TimeoutError as `result`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for part in self._parts:
            if not part.is_done:
                part.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        if self._share is not None and not self._share.written.is_set:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not self._share.written.wait(left):
                raise FutureTimeoutError("the outcome of records is not known")
        return self._first_error()

    def _first_error(self) -> BaseException | None:
        """Return the error of the first record that is not in the log."""
        failed = [
            (each.rows[0], each.outcome.error)
            for each in self._parts
            if each.outcome.error is not None
        ]
        if self._share is not None:
            failed += [(rows[0], error) for rows, error in self._share.failed]
        return min(failed, key=lambda each: each[0])[1] if failed else None

    def add_done_callback(self, fn: Callable[[Future[list[SentRange]]], object]) -> None:
        """Call `fn` with this future once it is done; at once if it is already."""
        with self._lock:
            self._watch()
            if self._open_count:
                self._callbacks.append(fn)
                return
        self._call(fn)

    def end_part(self) -> None:
        """Count the end of a batch that is watched; the last one calls the callbacks."""
        with self._lock:
            assert self._open_count is not None
            self._open_count -= 1
            if self._open_count:
                return
            callbacks, self._callbacks = self._callbacks, []
            waiting = tuple(self._waiting)
        for waiter in waiting:
            if self.exception(0) is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        for fn in callbacks:
            self._call(fn)

    def _watch(self) -> None:
        """Let the batches notify this future, unless they do; the lock is held."""
        if self._open_count is None:
            self._open_count = sum(each.watch(self) for each in self._parts)
            if self._share is not None:
                self._open_count += self._share.written.watch(self)

    def _call(self, fn: Callable[[Future[list[SentRange]]], object]) -> None:
        try:
            fn(self)
        except Exception:
            # As in `concurrent.futures`: an exception of a callback must not stop the writer.
            logger.exception("a callback failed for %r", self)

    def __repr__(self) -> str:
        count = sum(each.record_count for each in self._parts)
        if self._share is not None:
            count += self._share.record_count
        state = "done" if self.done() else "pending"
        return f"<SentMany of {count} records, {state}>"

    # For `concurrent.futures.wait` and `as_completed`, which hold the condition.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return threading.Condition(self._lock)

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self.done() else "RUNNING"

    @property
    def _result(self) -> list[SentRange] | None:  # type: ignore[override]
        is_delivered = self.done() and self.exception(0) is None
        return self.delivered if is_delivered else None

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self.exception(0) if self.done() else None

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        self._watch()
        return self._waiting


class BatchPart:
    """
    Records of one call in one batch, at consecutive slots.

    Args:
        outcome: the outcome of the batch.
        slot: number of the first record in the batch.
        rows: numbers of the records in the call, in order.
    """

    __slots__ = ("_watching", "outcome", "rows", "slot")

    def __init__(self, outcome: BatchOutcome, slot: int, rows: Sequence[int]) -> None:
        self.outcome = outcome
        self.slot = slot
        self.rows = rows
        # The futures while they are watched: they have their parts, and must not be kept by them.
        self._watching: tuple[SentMany, ...] = ()

    @property
    def record_count(self) -> int:
        """Number of records."""
        return len(self.rows)

    @property
    def is_done(self) -> bool:
        """True if the outcome is set."""
        return self.outcome.is_set

    def wait(self, timeout: float | None) -> None:
        """Wait for the outcome; TimeoutError if it is not set in time."""
        outcome = self.outcome
        if outcome.is_set:
            return
        with outcome.condition:
            # `move` may change the outcome.
            if not outcome.condition.wait_for(lambda: self.outcome.is_set, timeout):
                raise FutureTimeoutError(f"the outcome of records for {outcome.where} is not known")

    def watch(self, many: SentMany) -> bool:
        """Let the batch notify a future, unless its outcome is set; return whether it will."""
        while not (outcome := self.outcome).is_set:
            with outcome.condition:
                if outcome is not self.outcome:
                    continue
                if outcome.is_set:
                    return False
                self._watching += (many,)
                outcome.watch(self)
                return True
        return False

    def move(self, outcome: BatchOutcome, slot: int) -> None:
        """Change the outcome, to one of the same condition, or the slot in the batch."""
        with outcome.condition:
            if self.outcome.unwatch(self):
                outcome.watch(self)
            self.outcome, self.slot = outcome, slot

    def notify(self) -> None:
        """Take the outcome, which is set."""
        watching, self._watching = self._watching, ()
        for many in watching:
            many.end_part()

    def abandon(self) -> None:
        """Take the error of the outcome in a forked child."""
        watching, self._watching = self._watching, ()
        for many in watching:
            many.abandon()


class PartOfPart:
    """
    Some records of a part, for a future of their own.

    Args:
        part: the part, which follows its records to another batch.
        start: number of the first record in it.
        rows: numbers of the records in their own call, in order.
    """

    __slots__ = ("_part", "_start", "rows")

    def __init__(self, part: SentPart, start: int, rows: Sequence[int]) -> None:
        self._part = part
        self._start = start
        self.rows = rows

    @property
    def outcome(self) -> BatchOutcome:
        """The outcome of the batch."""
        return self._part.outcome

    @property
    def slot(self) -> int:
        """Number of the first record in the batch."""
        return self._part.slot + self._start

    @property
    def record_count(self) -> int:
        """Number of records."""
        return len(self.rows)

    @property
    def is_done(self) -> bool:
        """True if the outcome is set."""
        return self._part.outcome.is_set

    def wait(self, timeout: float | None) -> None:
        """Wait for the outcome; TimeoutError if it is not set in time."""
        self._part.wait(timeout)

    def watch(self, many: SentMany) -> bool:
        """Let the batch notify a future, unless its outcome is set; return whether it will."""
        return self._part.watch(many)


class PartitionRecords:
    """
    Records of one call for one partition.

    Args:
        group: keys, values and rows.
        timestamps: one for all, or one for each.
        headers: the headers of each record, None for no headers.

    Attributes:
        group: the records.
        timestamp_ms: that of all records, if they have no headers and one timestamp; else None.
        size_bytes: an upper bound of the bytes of all records, in one batch.
    """

    __slots__ = ("_headers", "_timestamps", "group", "record_count", "size_bytes", "timestamp_ms")

    def __init__(
        self, group: RecordGroup, timestamps: Timestamps, headers: Headers | None = None
    ) -> None:
        self.group = group
        self._timestamps = timestamps
        self._headers = headers
        is_plain = headers is None and type(timestamps) is int
        self.timestamp_ms: int | None = timestamps if is_plain else None  # type: ignore[assignment]
        self.record_count = len(group)
        self.size_bytes = BATCH_OVERHEAD + group.size_bytes
        if headers is not None:
            self.size_bytes += _headers_size(headers)

    def extend(self, builder: BatchBuilder, start: int, size_limit: int) -> int:
        """Add records from a slot on to a batch; return how many went in."""
        group = self.group
        return builder.extend_lists(
            group.keys, group.values, self._timestamps, start, size_limit, self._headers
        )

    def rows(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers of records in the call."""
        rows: Sequence[int] = self.group.rows
        if stop == start + 1:
            return range(rows[start], rows[start] + 1)
        # Of numbers alone: garbage collections visit neither a range nor such a tuple.
        return rows[start:stop] if type(rows) is range else tuple(rows[start:stop])

    def bytes_between(self, start: int, stop: int) -> int:
        """Return an upper bound of the bytes of some records in a batch."""
        size = self.group.bytes_between(start, stop)
        return size if self._headers is None else size + _headers_size(self._headers[start:stop])


class ManyRecords:
    """
    The records of one call, as they are now: the call may wait, and the caller change its lists.

    Args:
        keys: bytes or None for each record; None for records without keys.
        values: bytes or None for each record; None for tombstones.
        headers: the headers of each record, or None.
        timestamps: one for all, or one for each; `now_ms` if None.
        now_ms: the present time.

    Raises:
        ValueError: there are other numbers of headers or timestamps than of values.
        InvalidRecordError: headers or a timestamp cannot be encoded.
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        headers: Sequence[Iterable[Header] | None] | None,
        timestamps: TimestampsLike | None,
        now_ms: int,
    ) -> None:
        self.values = list_of(values)
        self.keys = None if keys is None else list_of(keys)
        self._headers = None if headers is None else _header_tuples(headers)
        self._timestamps = now_ms if timestamps is None else _own_timestamps(timestamps)
        if headers is not None or timestamps is not None:
            self._check()

    def __len__(self) -> int:
        return len(self.values)

    def for_partition(self, partition: int) -> list[tuple[int, PartitionRecords]]:
        """
        Return all records, for one partition; -1 for any.

        Raises:
            TypeError: a key or value is not bytes or None.
            ValueError: there are other numbers of keys than of values.
        """
        group = whole_group(self.keys, self.values)
        return [(partition, PartitionRecords(group, self._timestamps, self._headers))]

    def by_partition(self, partition_count: int) -> list[tuple[int, PartitionRecords]]:
        """
        Return the records of each partition, in the order of their first records.

        Records without a key have the partition -1: any.

        Raises:
            TypeError, ValueError: as for `for_partition`.
        """
        assert self.keys is not None
        groups = group_records(self.keys, self.values, partition_count)
        if self._headers is None and isinstance(self._timestamps, int):
            return [(each.partition, PartitionRecords(each, self._timestamps)) for each in groups]
        return [(each.partition, self._taken(each)) for each in groups]

    def _check(self) -> None:
        """Encode all records, which alone checks headers and timestamps; nothing of it is kept."""
        times, count = self._timestamps, len(self.values)
        # The encoder stops at the last record, and does not see that there are more timestamps.
        if not isinstance(times, int) and len(times) != count:
            raise ValueError(f"timestamps must be one per record, {count}, got {len(times)}")
        builder, start, is_left = BatchBuilder(), 0, True
        while is_left:
            builder.reset()
            start += builder.extend_lists(
                self.keys, self.values, self._timestamps, start, CHECKED_BYTES, self._headers
            )
            is_left = start < len(self.values)

    def _taken(self, group: RecordGroup) -> PartitionRecords:
        headers, times = self._headers, self._timestamps
        return PartitionRecords(
            group,
            times if isinstance(times, int) else np.take(times, group.rows),
            None if headers is None else [headers[row] for row in group.rows],
        )


def list_of(fields: Any) -> Fields:
    """Return a new list of keys or values; Arrow arrays are converted."""
    if type(fields) is list:
        return fields.copy()
    return fields.to_pylist() if hasattr(fields, "to_pylist") else list(fields)


def _own_timestamps(timestamps: TimestampsLike) -> Timestamps:
    found = timestamps_of(timestamps)
    return found if isinstance(found, int) else found.copy()


def _header_tuples(headers: Sequence[Iterable[Header] | None]) -> Headers:
    return [None if each is None else tuple(map(_own_header, each)) for each in headers]


def _own_header(header: Any) -> Header:
    """Return a header that no caller changes; anything else is refused when it is encoded."""
    if type(header) is list:
        header = tuple(header)
    if type(header) is tuple and len(header) == 2:
        name, field = header
        if isinstance(field, bytearray | memoryview):
            return name, bytes(field)
    return header  # type: ignore[no-any-return]


def header_bytes(headers: Iterable[Header]) -> int:
    """Return an upper bound of the bytes of a record's headers in a batch."""
    return sum(
        len(name) * (1 if name.isascii() else 4) + len(field or b"") + 10 for name, field in headers
    )


def _headers_size(headers: Headers) -> int:
    return sum(header_bytes(each) for each in headers if each)
