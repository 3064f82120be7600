"""Records of one `Producer.send_many`: checked, distributed over partitions, and their future.

All records are checked before the first is accepted, and their memory is reserved at once: a call
accepts all of its records or none. The records of a call in one batch are a part; they are stored
together or refused together. The future is done with its last part.

Thread-safety: lists and groups belong to one call; the future is for any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.record_groups import RecordGroup, group_records, whole_group
from kafkalog.clients.delivery import BatchOutcome
from kafkalog.model import Header
from kafkalog.records.packing import Timestamps, TimestampsLike, timestamps_of

__all__ = [
    "BATCH_OVERHEAD",
    "BatchPart",
    "ManyRecords",
    "PartitionRecords",
    "SentMany",
    "SentRange",
]

# More than the header of a batch takes.
BATCH_OVERHEAD: Final = 64

Fields: TypeAlias = list[bytes | None]
Headers: TypeAlias = list[tuple[Header, ...] | None]


_first_row = attrgetter("first_row")


class SentRange(NamedTuple):
    """
    Records of one call at consecutive offsets.

    Attributes:
        partition: the partition.
        first_offset: offset of the first.
        record_count: number of records.
    """

    partition: int
    first_offset: int
    record_count: int


class SentMany(Future[list[SentRange]]):
    """
    Future of the records of one `Producer.send_many`: their offsets, by partition.

    The result has the ranges in the order of their first records; within a partition records keep
    their order. If some records are not delivered, `result` raises the error of the first of them;
    `delivered` and `failed_rows` state what happened to each.

    It cannot be cancelled: the records were accepted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        # No lock: each step is one call of a list, which is atomic.
        self._ended: list[BatchPart] = []
        # Number of parts, None until all are known.
        self._part_count: int | None = None
        # Emptied by the thread that completes the future.
        self._open = [True]

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far, in the order of their first records."""
        return [each.range for each in self._parts() if each.outcome.error is None]

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log, counted from 0, in order."""
        failed = (each.rows for each in self._parts() if each.outcome.error is not None)
        return sorted(row for rows in failed for row in rows)

    def end(self, part: BatchPart) -> None:
        """End a part; the last one completes the future."""
        self._ended.append(part)
        self._complete_after_all()

    def set_parts(self, count: int) -> None:
        """Set the number of parts, some of which may have ended."""
        self._part_count = count
        self._complete_after_all()

    def _complete_after_all(self) -> None:
        if len(self._ended) != self._part_count:
            return
        try:
            self._open.pop()
        except IndexError:
            return  # Another thread completes it.
        parts = self._parts()
        error = next((each.outcome.error for each in parts if each.outcome.error), None)
        if error is None:
            self.set_result([each.range for each in parts])
        else:
            self.set_exception(error)

    def _parts(self) -> list[BatchPart]:
        return sorted(self._ended, key=_first_row)


class BatchPart:
    """
    Records of one call in one batch, at consecutive slots.

    Args:
        many: the future of the call.
        outcome: the outcome of the batch.
        slot: number of the first record in the batch.
        rows: numbers of the records in the call, in order.
    """

    __slots__ = ("_many", "first_row", "outcome", "rows", "slot")

    def __init__(
        self, many: SentMany, outcome: BatchOutcome, slot: int, rows: Sequence[int]
    ) -> None:
        # Released with the outcome: the future has its parts then.
        self._many: SentMany | None = many
        self.outcome = outcome
        self.slot = slot
        self.rows = rows
        self.first_row = rows[0]

    @property
    def record_count(self) -> int:
        """Number of records."""
        return len(self.rows)

    @property
    def range(self) -> SentRange:
        """The offsets, once the batch is in the log."""
        outcome = self.outcome
        return SentRange(outcome.where.partition, outcome.base_offset + self.slot, len(self.rows))

    def move(self, outcome: BatchOutcome, slot: int) -> None:
        """Change the outcome, to one of the same condition, or the slot in the batch."""
        with outcome.condition:
            if self.outcome.unwatch(self):
                outcome.watch(self)
            self.outcome, self.slot = outcome, slot

    def notify(self) -> None:
        """Take the outcome, which is set."""
        many, self._many = self._many, None
        if many is not None:
            many.end(self)


class PartitionRecords:
    """
    Records of one call for one partition.

    Args:
        group: keys, values and rows.
        timestamps: one for all, or one for each.
        headers: the headers of each record, None for no headers.

    Attributes:
        size_bytes: an upper bound of the bytes of all records, in one batch.
    """

    __slots__ = ("_group", "_headers", "_timestamps", "record_count", "size_bytes")

    def __init__(
        self, group: RecordGroup, timestamps: Timestamps, headers: Headers | None = None
    ) -> None:
        self._group = group
        self._timestamps = timestamps
        self._headers = headers
        self.record_count = len(group)
        self.size_bytes = BATCH_OVERHEAD + group.size_bytes
        if headers is not None:
            self.size_bytes += _header_bytes(headers)

    def extend(self, builder: BatchBuilder, start: int, size_limit: int) -> int:
        """Add records from a slot on to a batch; return how many went in."""
        group = self._group
        return builder.extend_lists(
            group.keys, group.values, self._timestamps, start, size_limit, self._headers
        )

    def rows(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers of records in the call."""
        return self._group.rows[start:stop]

    def bytes_between(self, start: int, stop: int) -> int:
        """Return an upper bound of the bytes of some records in a batch."""
        size = self._group.bytes_between(start, stop)
        return size if self._headers is None else size + _header_bytes(self._headers[start:stop])


class ManyRecords:
    """
    The records of one call.

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
        self._values = _listed(values)
        self.keys = None if keys is None else _listed(keys)
        self._headers = None if headers is None else _header_tuples(headers)
        self._timestamps = now_ms if timestamps is None else timestamps_of(timestamps)
        if headers is not None or timestamps is not None:
            # Only the encoding checks these; nothing of it is kept.
            BatchBuilder().extend_lists(
                self.keys, self._values, self._timestamps, headers=self._headers
            )

    def __len__(self) -> int:
        return len(self._values)

    def for_partition(self, partition: int) -> list[tuple[int, PartitionRecords]]:
        """
        Return all records, for one partition; -1 for any.

        Raises:
            TypeError: a key or value is not bytes or None.
            ValueError: there are other numbers of keys than of values.
        """
        group = whole_group(self.keys, self._values, partition)
        return [(partition, PartitionRecords(group, self._timestamps, self._headers))]

    def by_partition(self, partition_count: int) -> list[tuple[int, PartitionRecords]]:
        """
        Return the records of each partition, in the order of their first records.

        Records without a key have the partition -1: any.

        Raises:
            TypeError, ValueError: as for `for_partition`.
        """
        assert self.keys is not None
        groups = group_records(self.keys, self._values, partition_count)
        if self._headers is None and isinstance(self._timestamps, int):
            return [(each.partition, PartitionRecords(each, self._timestamps)) for each in groups]
        return [(each.partition, self._taken(each)) for each in groups]

    def _taken(self, group: RecordGroup) -> PartitionRecords:
        headers, times = self._headers, self._timestamps
        return PartitionRecords(
            group,
            times if isinstance(times, int) else np.take(times, group.rows),
            None if headers is None else [headers[row] for row in group.rows],
        )


def _listed(fields: Any) -> Fields:
    """Return keys or values as a list; Arrow arrays are converted."""
    if hasattr(fields, "to_pylist"):
        fields = fields.to_pylist()
    return fields if type(fields) is list else list(fields)


def _header_tuples(headers: Sequence[Iterable[Header] | None]) -> Headers:
    return [None if each is None else tuple(each) for each in headers]


def _header_bytes(headers: Headers) -> int:
    """Return an upper bound of the bytes of headers in a batch."""
    return sum(
        len(name) * 4 + len(field or b"") + 8 for each in headers for name, field in each or ()
    )
