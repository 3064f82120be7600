"""Records of topics, read from where a group stands, as they come.

A group is a name for positions, no more: nobody shares its partitions out. Who works with others
assigns partitions by hand. Nothing is committed unless somebody says so (`commit`, a transaction of
a producer, or `enable.auto.commit`).

An append in this process wakes a consumer that waits. A log that another process writes to is
looked at every `kafkalog.poll.interval.ms`.

Thread-safety: one thread at a time; `wakeup` and `close` from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.record import Record
from kafkalog.clients.config import ConsumerConfig
from kafkalog.clients.fetching import AssignedPartition
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.source import LogSource
from kafkalog.clients.transactions import Coordinators
from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import ClosingContextManager
from kafkalog.errors import (
    ClientClosedError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Wait
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition

if TYPE_CHECKING:
    import asyncio

__all__ = ["Consumer", "ConsumerRecord", "LostRecords"]

logger = logging.getLogger(__name__)


class ConsumerRecord(NamedTuple):
    """A record, and the partition that it comes from."""

    partition: TopicPartition
    record: Record


class LostRecords(NamedTuple):
    """
    Offsets that a consumer wanted to read and the log no longer holds, or does not hold yet.

    Attributes:
        partition: where.
        requested_offset: the consumer's position.
        resumed_offset: where it goes on, as `auto.offset.reset` says.
    """

    partition: TopicPartition
    requested_offset: int
    resumed_offset: int


class Consumer(ClosingContextManager):
    """
    Reads the records of topics or partitions. Made by `LogManager.consumer`.

    >>> with manager.consumer("billing", auto_offset_reset="earliest") as consumer:
    ...     consumer.subscribe("orders")
    ...     for partition, record in consumer.records(timeout_ms=0):
    ...         charge(record.value)
    ...     consumer.commit()

    Args:
        source: the logs.
        group: under which name positions are kept; "" for a consumer that keeps none.
        config: its settings.
        coordinators: of groups' positions, and of transactions: that one undoes those that nobody
            goes on with.
        clock: measures times.
        on_corrupt: "raise" at damage, "skip" to pass over it, as for `Log.records`.
        on_lost: called with each LostRecords; they are logged, and kept in `lost`, anyway.

    Attributes:
        group: its name.
        lost: what was lost so far, at most the last thousand.
    """

    def __init__(
        self,
        source: LogSource,
        group: str = "",
        config: ConsumerConfig | None = None,
        *,
        coordinators: Coordinators | None = None,
        clock: Clock | None = None,
        on_corrupt: OnCorrupt = "raise",
        on_lost: Callable[[LostRecords], object] | None = None,
    ) -> None:
        self.config = ConsumerConfig() if config is None else config
        self.group = group
        self.lost: list[LostRecords] = []
        self._source = source
        coordinators = Coordinators(GroupOffsets(source)) if coordinators is None else coordinators
        self._offsets = coordinators.groups
        self._coordinator = coordinators.transactions
        self._clock = SystemClock() if clock is None else clock
        self._on_corrupt: OnCorrupt = on_corrupt
        self._on_lost = on_lost
        self._topics: tuple[str, ...] = ()
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        # Of the topics: those that could not be opened when they were looked for last.
        self._unreachable: set[TopicPartition] = set()
        self._discovered_ms = 0
        self._committed_ms = self._clock.monotonic_ms()
        self._closed = False
        self._is_inherited = False
        self._woken = False
        self._changed = threading.Event()
        self._async_waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        refuse_in_children(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Consumer {self.group!r} {state}, {len(self._assigned)} partitions>"

    # --------------------------------------------------------------------------------- assignment

    def subscribe(self, *topics: str | Iterable[str]) -> None:
        """
        Read all partitions of topics, also those that come later; replaces what was read.

        Args:
            topics: their names, or lists of names.

        Raises:
            ValueError: there is none.
            TypeError: one is not a text.
        """
        self._ensure_open()
        names: list[str] = []
        for each in topics:
            names += [each] if isinstance(each, str) else each
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a topic must be a str, got {name!r}")
        if not names:
            raise ValueError("subscribe to at least one topic")
        self._assign(())
        self._topics = tuple(dict.fromkeys(names))
        self._discover_partitions()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """
        Read these partitions; replaces what was read.

        Raises:
            KafkaLogError: there is no such partition, or its log does not open.
        """
        self._ensure_open()
        self._topics = ()
        self._assign([TopicPartition(*each) for each in partitions])

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are read."""
        return tuple(self._assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Leave partitions out for now; all if none is named."""
        for assigned in self._named(partitions):
            assigned.pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Take partitions in again; all if none is named."""
        for assigned in self._named(partitions):
            assigned.resume()

    # ---------------------------------------------------------------------------------- positions

    def position(self, partition: TopicPartition) -> int:
        """
        Return the offset behind the last record that was handed out.

        Raises:
            NoOffsetForPartitionError: there is none, and `auto.offset.reset` is `none`.
        """
        (assigned,) = self._named([partition])
        return self._position_of(assigned)

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions of all partitions, for `commit` or a producer's transaction."""
        self._ensure_own()
        return {
            where: CommittedOffset(self._position_of(assigned))
            for where, assigned in self._assigned.items()
        }

    def lag(self, partition: TopicPartition) -> int:
        """Return how many offsets lie between the position and the end of what may be read."""
        (assigned,) = self._named([partition])
        return max(assigned.end_offset - self._position_of(assigned), 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset; whether it is there shows with the next `poll`."""
        if offset < 0:
            raise ValueError(f"{offset} is no offset")
        for assigned in self._named([partition]):
            assigned.seek(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log's start; in all partitions if none is named."""
        for assigned in self._named(partitions):
            assigned.seek(assigned.log.log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of what may be read; in all partitions if none is named."""
        for assigned in self._named(partitions):
            assigned.seek(assigned.end_offset)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record of that time or later, or at the end."""
        for assigned in self._named(partitions):
            found = assigned.log.offset_for_timestamp(timestamp_ms)
            assigned.seek(assigned.end_offset if found is None else found.offset)

    def committed(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return where the group stands, None where it committed nothing."""
        self._require_group()
        return self._offsets.committed(self.group).get(TopicPartition(*partition))

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None] | None = None,
        *,
        wait: Wait = "written",
    ) -> None:
        """
        Put positions of the group, all of them or none.

        To put them together with records, see `Producer.send_offsets_to_transaction`.

        Args:
            offsets: next offset of each partition, None to forget where the group stood; the
                present positions if None is all that is given.
            wait: as for `Log.append`.

        Raises:
            DiskFullError, LogOfflineError: as for an append.
        """
        self._ensure_open()
        self._require_group()
        wanted: Mapping[TopicPartition, CommittedOffset | int | None]
        wanted = self.positions() if offsets is None else offsets
        self._offsets.commit(self.group, wanted, now_ms=self._clock.now_ms(), wait=wait)
        self._committed_ms = self._clock.monotonic_ms()

    # ------------------------------------------------------------------------------------ reading

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """
        Return the next records of the partitions that have any, and move the positions behind them.

        Args:
            timeout_ms: time to wait for the first one; whatever comes first ends it.
            max_records: at most so many; `max.poll.records` if None.

        Raises:
            OffsetOutOfRangeError: the position is not in the log, and `auto.offset.reset` is
                `none`.
            NoOffsetForPartitionError: as for `position`.
            CorruptRecordError: the position is in a damaged range; `seek` behind it.
            ClientClosedError: the consumer is closed.
        """
        self._ensure_open()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            self._changed.clear()
            found = self._fetch(max_records)
            wait_ms = self._wait_ms(deadline_ms)
            if found or wait_ms <= 0:
                return found
            self._changed.wait(min(wait_ms / 1000, threading.TIMEOUT_MAX))

    async def poll_async(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """As `poll`, for a coroutine: other tasks run while this waits."""
        # Who runs a coroutine has it; to everyone else it would be a sixth of importing kafkalog.
        import asyncio

        self._ensure_open()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        changed = asyncio.Event()
        self._async_waiter = asyncio.get_running_loop(), changed
        try:
            while True:
                changed.clear()
                found = self._fetch(max_records)
                wait_ms = self._wait_ms(deadline_ms)
                if found or wait_ms <= 0:
                    return found
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), wait_ms / 1000)
        finally:
            self._async_waiter = None

    def records(self, timeout_ms: int | None = None) -> Iterator[ConsumerRecord]:
        """
        Yield records as they come; `position` is behind the one that was yielded last.

        Args:
            timeout_ms: end when none came for so long; None to end with `close` or `wakeup`.
        """
        self._ensure_own()
        while not self._closed:
            found = self.poll(2**62 if timeout_ms is None else timeout_ms)
            if not found:
                return
            yield from self._one_by_one(found)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records as they come, until the consumer is closed or woken."""
        return self.records()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records as they come, until the consumer is closed or woken."""
        self._ensure_own()
        while not self._closed:
            found = await self.poll_async(2**62)
            if not found:
                return
            for each in self._one_by_one(found):
                yield each

    def wakeup(self) -> None:
        """Let a `poll` that waits, or the next one that would, return nothing; from any thread."""
        self._woken = True
        self._wake()

    def close(self) -> None:
        """Let go of the logs; with `enable.auto.commit` the positions are committed. Idempotent."""
        if self._closed:
            return
        try:
            if self.config.enable_auto_commit and self.group:
                self._commit_positions()
        finally:
            self._closed = True
            self._wake()
            self._assign(())

    # ------------------------------------------------------------------------------------ private

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and only its parent may use the consumer."""
        self._is_inherited = self._closed = True
        self._changed = threading.Event()
        self._async_waiter = None

    def _ensure_own(self) -> None:
        if self._is_inherited:
            raise forked_error(self)

    def _ensure_open(self) -> None:
        self._ensure_own()
        if self._closed:
            raise ClientClosedError(f"{self} was used after close")

    def _require_group(self) -> None:
        self._ensure_own()
        if not self.group:
            raise ValueError("a consumer without a group has no positions to keep")

    def _named(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Return what is assigned of partitions, or everything where none is named."""
        self._ensure_own()
        wanted = [TopicPartition(*each) for each in partitions] or list(self._assigned)
        for where in wanted:
            if where not in self._assigned:
                raise ValueError(f"{where} is not assigned to {self}")
        return [self._assigned[where] for where in wanted]

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        leaving, self._assigned = self._assigned, {}
        for assigned in leaving.values():
            assigned.close()
        for where in partitions:
            self._add_records(where)

    def _add_records(self, where: TopicPartition) -> AssignedPartition:
        log = self._source.log(*where)
        isolation: Isolation = self.config.isolation_level  # type: ignore[assignment]
        if self._coordinator is not None:
            try:
                self._coordinator.resolve(where, log)
            except LogStorageError as error:
                # It can be read all the same, up to where the transaction began.
                logger.warning("%s: a transaction cannot be undone now: %s", where, error)
        assigned = AssignedPartition(where, log, isolation, self._on_corrupt, self._wake)
        self._assigned[where] = assigned
        return assigned

    def _discover_partitions(self) -> None:
        self._discovered_ms = self._clock.monotonic_ms()
        present = self._source.topics()
        for topic in self._topics:
            for number in sorted(present.get(topic, ())):
                where = TopicPartition(topic, number)
                if where not in self._assigned:
                    self._try_add_records(where)

    def _try_add_records(self, where: TopicPartition) -> None:
        """Take in a partition, or look for it again later: the others go on."""
        try:
            self._add_records(where)
        except LogStorageError as error:
            if where not in self._unreachable:
                self._unreachable.add(where)
                logger.warning("%s does without %s for now: %s", self, where, error)
        else:
            self._unreachable.discard(where)

    def _position_of(self, assigned: AssignedPartition) -> int:
        if assigned.position is None:
            assigned.seek(self._first_position(assigned))
        assert assigned.position is not None
        return assigned.position

    def _first_position(self, assigned: AssignedPartition) -> int:
        if self.group:
            committed = self._offsets.committed(self.group).get(assigned.where)
            if committed is not None:
                return committed.offset
        if self.config.auto_offset_reset == "none":
            raise NoOffsetForPartitionError(
                f"group {self.group!r} has no position in {assigned.where}"
            )
        return self._reset_position(assigned)

    def _reset_position(self, assigned: AssignedPartition) -> int:
        if self.config.auto_offset_reset == "earliest":
            return assigned.log.log_start_offset
        return assigned.end_offset

    def _fetch(self, max_records: int | None) -> dict[TopicPartition, list[Record]]:
        now_ms = self._clock.monotonic_ms()
        if self._topics and now_ms - self._discovered_ms >= self.config.poll_interval_ms:
            self._discover_partitions()
        due = now_ms - self._committed_ms >= self.config.auto_commit_interval_ms
        if self.config.enable_auto_commit and self.group and due:
            self._commit_positions()
        left = self.config.max_poll_records if max_records is None else max_records
        found: dict[TopicPartition, list[Record]] = {}
        for where, assigned in list(self._assigned.items()):
            if left <= 0:
                break
            if assigned.is_paused:
                continue
            records = self._fetch_from(assigned, left)
            if records:
                found[where] = records
                left -= len(records)
                # Whoever had a turn waits for the others.
                self._assigned[where] = self._assigned.pop(where)
        return found

    def _fetch_from(self, assigned: AssignedPartition, count: int) -> list[Record]:
        position = self._position_of(assigned)
        try:
            return assigned.fetch(count)
        except OffsetOutOfRangeError:
            if self.config.auto_offset_reset == "none":
                raise
            assigned.seek(self._reset_position(assigned))
            assert assigned.position is not None
            self._report_lost(LostRecords(assigned.where, position, assigned.position))
            return assigned.fetch(count)
        except LogClosedError:
            try:
                if self._source.log(*assigned.where) is assigned.log:
                    raise
            except LogOfflineError:
                # Until its directory is back nothing more can come.
                return []
            # The directory was opened again since.
            paused = assigned.is_paused
            assigned.close()
            fresh = self._add_records(assigned.where)
            fresh.seek(position)
            if paused:
                fresh.pause()
            return fresh.fetch(count)

    def _report_lost(self, lost: LostRecords) -> None:
        logger.warning(
            "%s: %s does not hold offset %d; goes on at %d",
            self,
            lost.partition,
            lost.requested_offset,
            lost.resumed_offset,
        )
        del self.lost[:-999]
        self.lost.append(lost)
        if self._on_lost is not None:
            self._on_lost(lost)

    def _one_by_one(self, found: dict[TopicPartition, list[Record]]) -> Iterator[ConsumerRecord]:
        """Yield what a poll returned, with the positions as if it had returned one at a time."""
        turns = {where: self._assigned[where].turn for where in found}
        for where, records in found.items():
            self._assigned[where].step_back(records[0].offset)
        try:
            for where, records in found.items():
                assigned = self._assigned.get(where)
                if assigned is None:
                    continue
                for record in assigned.hand_out(records, turns[where]):
                    yield ConsumerRecord(where, record)
        finally:
            # What was not yielded is fetched again.
            for where in found:
                if where in self._assigned:
                    self._assigned[where].rewind()

    def _commit_positions(self) -> None:
        """Commit the positions that are known, of what was read at all."""
        known = {
            where: CommittedOffset(assigned.position)
            for where, assigned in self._assigned.items()
            if assigned.position is not None
        }
        if known:
            self.commit(known)

    def _wait_ms(self, deadline_ms: int) -> int:
        """Return how long to wait for an append; 0 where there is no more waiting."""
        if self._closed or self._woken:
            self._woken = False
            return 0
        left = deadline_ms - self._clock.monotonic_ms()
        if self._topics or any(each.log.is_read_only for each in self._assigned.values()):
            return min(left, self.config.poll_interval_ms)
        return left

    def _wake(self) -> None:
        self._changed.set()
        waiter = self._async_waiter
        if waiter is not None:
            loop, changed = waiter
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)
