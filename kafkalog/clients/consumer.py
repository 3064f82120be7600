"""Consumer of topics: reads records from the position of a group on.

A group is only a name for positions: partitions are not divided among its members, so consumers
that share the work assign partitions by hand. Positions are committed only by `commit`, a
transaction of a producer, or `enable.auto.commit`.

An append in this process wakes a waiting consumer. A log that another process writes to is checked
every `kafkalog.poll.interval.ms`. A partition that was deleted and made again, with another topic
id, is read from its beginning, and the records before it count as lost.

Thread-safety: one thread at a time, without a lock; `wakeup` and `close` from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._core.record import Record
from kafkalog.clients.config import ConsumerConfig
from kafkalog.clients.fetching import AssignedPartition
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.group_positions import GroupPositions
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.source import LogSource
from kafkalog.clients.transactions import Coordinators
from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import ClosingContextManager
from kafkalog.errors import (
    ClientClosedError,
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
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
    Offsets that a consumer requested and that the log does not hold, or not yet.

    Attributes:
        partition: the partition.
        requested_offset: the position of the consumer.
        resumed_offset: the new position, by `auto.offset.reset`.
    """

    partition: TopicPartition
    requested_offset: int
    resumed_offset: int


class Consumer(ClosingContextManager):
    """
    Reader of the records of topics or partitions, made by `LogManager.consumer`.

    >>> with manager.consumer("billing", auto_offset_reset="earliest") as consumer:
    ...     consumer.subscribe("orders")
    ...     for partition, record in consumer.records(timeout_ms=0):
    ...         charge(record.value)
    ...     consumer.commit()

    Args:
        source: the logs.
        group: name of the group; "" for a consumer without committed positions.
        config: its settings.
        coordinators: the positions of groups, and the transaction coordinator, which undoes
            abandoned transactions.
        clock: source of time.
        on_corrupt: "raise" at damage, or "skip" it, as for `Log.records`.
        on_lost: called with each LostRecords; they are also logged, and added to `lost`.

    Attributes:
        group: name of the group.
        lost: records lost so far, at most the last thousand.
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
        self._offsets: GroupPositions = coordinators.positions or coordinators.groups
        self._coordinator = coordinators.transactions
        self._clock = SystemClock() if clock is None else clock
        self._on_corrupt: OnCorrupt = on_corrupt
        self._on_lost = on_lost
        self._topics: tuple[str, ...] = ()
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        # Partitions of the topics that could not be opened at the last discovery.
        self._unreachable: set[TopicPartition] = set()
        self._discovered_ms = 0
        self._committed_ms = self._clock.monotonic_ms()
        self._closed = False
        self._is_inherited = False
        self._woken = False
        self._changed = threading.Event()
        self._async_waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._on_change: Callable[[], object] | None = None
        refuse_in_children(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Consumer {self.group!r} {state}, {len(self._assigned)} partitions>"

    # --------------------------------------------------------------------------------- assignment

    def subscribe(self, *topics: str | Iterable[str]) -> None:
        """
        Read all partitions of topics, also later ones; replaces the assignment.

        Args:
            topics: names, or lists of names.

        Raises:
            ValueError: no topic is named.
            TypeError: a name is not a str.
        """
        self._ensure_open()
        names: list[str] = []
        for each in topics:
            names += [each] if isinstance(each, str) else each
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"a topic must be a str, got {name!r}")
        if not names:
            raise ValueError("topics must be at least one name, got none")
        self._assign(())
        self._topics = tuple(dict.fromkeys(names))
        self._discover_partitions()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """
        Read these partitions; replaces the assignment.

        Raises:
            KafkaLogError: a partition does not exist, or its log does not open.
        """
        self._ensure_open()
        self._topics = ()
        self._assign([TopicPartition(*each) for each in partitions])

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions."""
        return tuple(self._assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading partitions until `resume`; all if none is named."""
        for assigned in self._named(partitions):
            assigned.pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Read partitions again; all if none is named."""
        for assigned in self._named(partitions):
            assigned.resume()

    # ---------------------------------------------------------------------------------- positions

    def position(self, partition: TopicPartition) -> int:
        """
        Return the offset after the last record that was returned.

        Raises:
            NoOffsetForPartitionError: no position is known, and `auto.offset.reset` is `none`.
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
        """Return the number of offsets from the position to the end of readable records."""
        (assigned,) = self._named([partition])
        return max(assigned.end_offset - self._position_of(assigned), 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position; the next `poll` finds out whether the log has this offset."""
        if offset < 0:
            raise ValueError(f"offset must be >= 0, got {offset}")
        for assigned in self._named([partition]):
            assigned.seek(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start; in all partitions if none is named."""
        for assigned in self._named(partitions):
            assigned.seek(assigned.log.log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of readable records; in all partitions if none is named."""
        for assigned in self._named(partitions):
            assigned.seek(assigned.end_offset)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record of that time or later, or at the end."""
        for assigned in self._named(partitions):
            found = assigned.log.offset_for_timestamp(timestamp_ms)
            assigned.seek(assigned.end_offset if found is None else found.offset)

    def committed(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed position of the group; None if it has none."""
        self._require_group()
        return self._offsets.committed(self.group).get(TopicPartition(*partition))

    def all_committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed positions of the group, also of partitions that are not assigned."""
        self._require_group()
        return self._offsets.committed(self.group)

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None] | None = None,
        *,
        wait: Wait = "written",
    ) -> None:
        """
        Commit positions of the group, all of them or none.

        To commit them together with records, see `Producer.send_offsets_to_transaction`.

        Args:
            offsets: next offset of each partition, or None to remove the position of the group;
                the current positions if the whole argument is None.
            wait: as for `Log.append`.

        Raises:
            DiskFullError, LogOfflineError: as for an append.
        """
        self._ensure_open()
        self._require_group()
        positions: Mapping[TopicPartition, CommittedOffset | int | None]
        positions = self.positions() if offsets is None else offsets
        self._offsets.commit(self.group, positions, now_ms=self._clock.now_ms(), wait=wait)
        self._committed_ms = self._clock.monotonic_ms()

    # ------------------------------------------------------------------------------------ reading

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """
        Return the next records by partition, and set the positions after them.

        Args:
            timeout_ms: time to wait for the first record.
            max_records: largest number of records; `max.poll.records` if None.

        Raises:
            OffsetOutOfRangeError: the position is not in the log, and `auto.offset.reset` is
                `none`.
            NoOffsetForPartitionError: as for `position`.
            CorruptRecordError: the position is in a corrupt range; `seek` to an offset after it.
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
        """Run `poll` as a coroutine: other tasks run while it waits."""
        # Imported here: asyncio is a sixth of the import time of kafkalog, and a program with a
        # coroutine has imported it.
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

    def notify_with(self, on_change: Callable[[], object]) -> None:
        """
        Call a function when there may be new records, and after `wakeup` and `close`.

        For a program that does not wait in `poll`. The thread that appended the records
        calls it, so it must be quick, and must not raise.
        """
        self._on_change = on_change

    @property
    def look_interval_ms(self) -> int | None:
        """
        Longest time to wait before the next `poll`, None if there is none.

        New partitions of topics, and records of another process, are only found by a `poll`.
        """
        if self._topics or any(each.log.is_read_only for each in self._assigned.values()):
            return self.config.poll_interval_ms
        return None

    def hand_out(
        self, found: dict[TopicPartition, list[Record]]
    ) -> Generator[ConsumerRecord, None, None]:
        """
        Yield the records of the last `poll` one at a time, each with the position after it.

        If the iterator is closed before its end, the next `poll` returns the others again.
        """
        return self._one_by_one(found)

    def records(self, timeout_ms: int | None = None) -> Iterator[ConsumerRecord]:
        """
        Yield records as they arrive; `position` is after the record that was yielded last.

        Args:
            timeout_ms: end after this time without a record; None to end with `close` or `wakeup`.
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
        """Make the current or the next waiting `poll` return nothing; from any thread."""
        self._woken = True
        self._notify()

    def close(self) -> None:
        """Release the logs; with `enable.auto.commit` commit the positions. Idempotent."""
        if self._closed:
            return
        try:
            if self.config.enable_auto_commit and self.group:
                self._commit_positions()
        finally:
            self._closed = True
            self._notify()
            self._assign(())

    # ------------------------------------------------------------------------------------ private

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and only its parent may use the consumer."""
        self._is_inherited = self._closed = True
        self._changed = threading.Event()
        self._async_waiter = self._on_change = None

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
        """Return the named assigned partitions, or all if none is named."""
        self._ensure_own()
        names = [TopicPartition(*each) for each in partitions] or list(self._assigned)
        for where in names:
            if where not in self._assigned:
                raise ValueError(f"{where} is not assigned to {self}")
        return [self._assigned[where] for where in names]

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
                # It can still be read up to the start of the transaction.
                logger.warning("%s: a transaction cannot be undone now: %s", where, error)
        assigned = AssignedPartition(where, log, isolation, self._on_corrupt, self._notify)
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
        """Add a partition, or try again at the next discovery: the others continue."""
        try:
            self._add_records(where)
        except UnknownTopicOrPartitionError:
            # Deleted since the topics were listed.
            self._unreachable.discard(where)
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
        interval_ms = self.look_interval_ms
        if interval_ms is not None and now_ms - self._discovered_ms >= interval_ms:
            # Also notices that assigned partitions of another process's logs have gone.
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
            try:
                records = self._fetch_from(assigned, left)
            except KafkaLogError:
                if found:
                    # They are returned first: their positions were moved. A later call raises,
                    # because partitions with records are read after this one then.
                    break
                self._move_last(where)
                raise
            if records:
                found[where] = records
                left -= len(records)
                self._move_last(where)
        return found

    def _move_last(self, where: TopicPartition) -> None:
        """Read a partition after all others at the next fetch, also after an error."""
        if where in self._assigned:
            self._assigned[where] = self._assigned.pop(where)

    def _fetch_from(self, assigned: AssignedPartition, count: int) -> list[Record]:
        try:
            self._position_of(assigned)
            return assigned.fetch(count)
        except OffsetOutOfRangeError:
            if self.config.auto_offset_reset == "none" or assigned.position is None:
                raise
            retry = partial(self._fetch_after_reset, assigned, count)
        except (LogClosedError, LogStorageError) as error:
            # The files of another process's log are removed before its deletion is noticed.
            if isinstance(error, LogStorageError) and not assigned.log.is_read_only:
                raise
            try:
                if self._source.log(*assigned.where) is assigned.log:
                    raise
            except LogOfflineError:
                # No more records until its directory is online.
                return []
            retry = partial(self._fetch_reopened, assigned, count)
        try:
            return retry()
        except OffsetOutOfRangeError:
            if self.config.auto_offset_reset == "none":
                raise
        except LogClosedError:
            pass
        except LogStorageError:
            if not assigned.log.is_read_only:
                raise
        # Truncated, deleted or made again once more: the next fetch starts with the present log,
        # and raises the error of a disk.
        return []

    def _fetch_after_reset(self, assigned: AssignedPartition, count: int) -> list[Record]:
        """Fetch from where the log starts or ends now, and report the position that is lost."""
        position = assigned.position
        assert position is not None
        assigned.seek(self._reset_position(assigned))
        assert assigned.position is not None
        self._report_lost(LostRecords(assigned.where, position, assigned.position))
        return assigned.fetch(count)

    def _fetch_reopened(self, assigned: AssignedPartition, count: int) -> list[Record]:
        """Fetch from a log that was reopened or moved, or whose topic was made again."""
        paused = assigned.is_paused
        fresh = self._add_records(assigned.where)
        assigned.close()
        if paused:
            fresh.pause()
        try:
            if assigned.position is not None:
                ids = {assigned.topic_id, fresh.topic_id} - {None}
                self._resume(fresh, assigned.position, is_new=len(ids) == 2)
            self._position_of(fresh)
        except (LogClosedError, LogStorageError):
            # Deleted once more: the next fetch resumes from the same position.
            fresh.close()
            self._assigned[assigned.where] = assigned
            raise
        return fresh.fetch(count)

    def _resume(self, assigned: AssignedPartition, position: int, *, is_new: bool) -> None:
        """Continue at a position; at the beginning if it is of an earlier topic of this name."""
        if not is_new or position == 0:
            assigned.seek(position)
            return
        start = assigned.log.log_start_offset
        if self.config.auto_offset_reset == "none":
            raise OffsetOutOfRangeError(
                f"offset {position} is of a deleted topic: {assigned.where} was made again",
                requested=position,
                log_start_offset=start,
                log_end_offset=assigned.end_offset,
                path=assigned.log.directory,
            )
        assigned.seek(start)
        self._report_lost(LostRecords(assigned.where, position, start))

    def _report_lost(self, lost: LostRecords) -> None:
        logger.warning(
            "%s: %s does not hold offset %d; continues at %d",
            self,
            lost.partition,
            lost.requested_offset,
            lost.resumed_offset,
        )
        del self.lost[:-999]
        self.lost.append(lost)
        if self._on_lost is not None:
            self._on_lost(lost)

    def _one_by_one(
        self, found: dict[TopicPartition, list[Record]]
    ) -> Generator[ConsumerRecord, None, None]:
        """Yield the records of a poll one at a time, each with the position after it."""
        # Another thread may assign others, or close the consumer.
        assigned = [(where, self._assigned.get(where)) for where in found]
        turns = {where: each.turn for where, each in assigned if each is not None}
        for where, each in assigned:
            if each is not None:
                each.begin_hand_out(found[where][0].offset)
        try:
            for where, records in found.items():
                present = self._assigned.get(where)
                if present is None or where not in turns:
                    continue
                for record in present.hand_out(records, turns[where]):
                    yield ConsumerRecord(where, record)
        finally:
            # Records that were not yielded are fetched again.
            for where in found:
                present = self._assigned.get(where)
                if present is not None:
                    present.rewind()

    def _commit_positions(self) -> None:
        """Commit the known positions of partitions that were read."""
        positions = {
            where: CommittedOffset(assigned.position)
            for where, assigned in self._assigned.items()
            if assigned.position is not None
        }
        if positions:
            self.commit(positions)

    def _wait_ms(self, deadline_ms: int) -> int:
        """Return the time to wait for an append; 0 to return at once."""
        if self._closed or self._woken:
            self._woken = False
            return 0
        left = deadline_ms - self._clock.monotonic_ms()
        interval_ms = self.look_interval_ms
        return left if interval_ms is None else min(left, interval_ms)

    def _notify(self) -> None:
        self._changed.set()
        if self._on_change is not None:
            self._on_change()
        waiter = self._async_waiter
        if waiter is not None:
            loop, changed = waiter
            # A closed loop has no waiting task.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)
