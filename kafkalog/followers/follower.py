"""Follower of logs that another process writes: waits for new records, and returns them in order.

It takes no lock and changes nothing in the data directory. It sees the records of each partition
once, in the order of their offsets, over rolls, compactions and restarts of the writer; what a
retention or a truncation has removed is reported as lost, as by a consumer.

Thread-safety: one thread at a time; `wakeup`, `close` and `positions` from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Unpack

from kafkalog._core.record import Record
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.closing import ClosingContextManager, warn_unless_closed
from kafkalog.errors import ClientClosedError, ConfigError, KafkaLogError
from kafkalog.files.directories import Paths, as_paths
from kafkalog.files.filesystem import FileNotifications, FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.followers.change_signal import ChangeSignal
from kafkalog.followers.discovery import PartitionDiscovery
from kafkalog.followers.followed_set import FollowedSet
from kafkalog.followers.options import FollowArguments, FollowedRecords, FollowOptions, make_options
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.model import TopicPartition

__all__ = ["Follower", "follow"]

logger = logging.getLogger(__name__)

_LOST_MAX = 1_000


class Follower(ClosingContextManager):
    """
    Reader of the new records of many partitions; made by `kafkalog.follow`.

    >>> with kafkalog.follow("/data", "orders") as follower:
    ...     for partition, records, next_offset in follower:
    ...         process(records)

    Args:
        directories: the data directories.
        options: see `follow`.

    Attributes:
        lost: the last ranges that were lost, at most a thousand.

    Raises:
        ConfigError: no directory is named.
        LogStorageError: the disk refused.
    """

    def __init__(self, directories: Paths, options: FollowOptions) -> None:
        paths = as_paths(directories)
        if not paths:
            raise ConfigError("a follower needs a data directory, got none")
        filesystem = PosixFileSystem() if options.filesystem is None else options.filesystem
        self.lost: list[LostRecords] = []
        self._options = options
        self._paths = paths
        # Of the thread that reads, and a signal handler within it may close.
        self._busy = threading.RLock()
        self._is_reading = False
        self._is_closing = self._is_released = self._is_inherited = False
        self._is_woken = False
        self._notifications = _open_notifications(filesystem)
        self._signal = ChangeSignal(self._notifications)
        self._set = FollowedSet(
            filesystem,
            PartitionDiscovery(filesystem, paths, options.follows),
            options,
            self._notifications,
            self._report_lost,
        )
        refuse_in_children(self)
        try:
            self._set.start()
            self._stop_events()
        except BaseException:
            self._release()
            raise
        self._end_warning = warn_unless_closed(self, f"{self}", has_written=False)

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else f"{len(self._set.partitions)} partitions"
        return f"<Follower {state} in {', '.join(map(str, self._paths))}>"

    @property
    def is_closed(self) -> bool:
        """True if the follower was closed."""
        return self._is_closing

    # ------------------------------------------------------------------------------ positions

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are there now, in order."""
        self._ensure_open()
        return tuple(sorted(self._set.partitions.copy()))

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """
        Return the offset after the last record that was returned.

        None if no record was read, and the start is that of the log.

        Raises:
            ValueError: the partition is not followed.
        """
        self._ensure_open()
        found = self._set.partitions.get(TopicPartition(*partition))
        if found is None:
            raise ValueError(f"{TopicPartition(*partition)} is not followed by {self}")
        return found.position

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """
        Return the positions of all partitions, as `start` of a later follower.

        The leader epoch of a position lets the later follower find a truncation in between. A
        partition without a position is left out: it begins at its log start.
        """
        return {
            where: part.committed_offset
            for where, part in list(self._set.partitions.items())
            if part.position is not None
        }

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Continue at an offset, as after a corrupt range; by the thread that reads."""
        if type(offset) is not int or offset < 0:
            raise ValueError(f"offset must be an int >= 0, got {offset!r}")
        self.position(partition)
        part = self._set.partitions[TopicPartition(*partition)]
        part.seek(CommittedOffset(offset))
        self._set.mark_changed(part)

    # -------------------------------------------------------------------------------- reading

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """
        Return the next records by partition, and set the positions after them.

        Args:
            timeout_ms: time to wait for the first record.
            max_records: their largest number; that of the follower if None.

        Raises:
            CorruptRecordError: a position is in a corrupt range; `seek` to an offset after it.
            LogStorageError: the disk refused.
            ClientClosedError: the follower is closed.
        """
        count = self._count(max_records)
        found = self._poll(timeout_ms, lambda: self._collect(count))
        result: dict[TopicPartition, list[Record]] = {}
        for each in found:
            result.setdefault(each.partition, []).extend(each.records)
        return result

    def pieces(self, timeout_ms: int | None = None) -> Iterator[FollowedRecords]:
        """
        Yield records as they arrive, some of one partition at a time.

        `positions` is after the piece that was yielded last.

        Args:
            timeout_ms: end after this time without a record; None to end with `close` or `wakeup`.

        Raises:
            CorruptRecordError, LogStorageError: as for `poll`.
        """
        self._ensure_own()
        while not self._is_closing:
            try:
                found = self._poll(
                    2**62 if timeout_ms is None else timeout_ms,
                    lambda: self._collect(self._options.max_records, pieces_max=1),
                )
            except ClientClosedError:
                return
            if not found:
                return
            yield from found

    def __iter__(self) -> Iterator[FollowedRecords]:
        """Yield records as they arrive, until the follower is closed or woken."""
        return self.pieces()

    def collect(
        self, max_records: int | None = None, pieces_max: int = 64
    ) -> list[FollowedRecords]:
        """
        Return the next records without a wait, for a thread of an event loop.

        Args:
            max_records: their largest number; that of the follower if None.
            pieces_max: largest number of pieces.

        Raises:
            CorruptRecordError, LogStorageError, ClientClosedError: as for `poll`.
        """
        count = self._count(max_records)
        with self._reading():
            self._ensure_open()
            self._signal.clear()
            return self._collect(count, pieces_max)

    def clear_wakeup(self) -> bool:
        """Return whether `wakeup` was called since the last call of this or of `poll`."""
        was_woken, self._is_woken = self._is_woken, False
        return was_woken

    def fileno(self) -> int:
        """
        Return a descriptor that is readable when `collect` may find something, for an event loop.

        The loop must call `collect` at least every `seconds_to_sweep`, too.
        """
        self._ensure_open()
        return self._signal.fileno()

    def seconds_to_sweep(self) -> float:
        """Return the time to the next safety poll, which finds changes without an event."""
        return self._set.seconds_to_sweep()

    def wakeup(self) -> None:
        """Make the current or the next waiting `poll` return nothing; from any thread."""
        self._is_woken = True
        self._signal.wake()

    def close(self) -> None:
        """End a waiting `poll` and release all files; from any thread. Idempotent."""
        if self._is_inherited:
            return
        self._is_closing = True
        self._signal.wake()
        with self._busy:
            # A callback or a signal handler within `poll`, which releases the files at its end.
            if not self._is_reading:
                self._release()

    # -------------------------------------------------------------------------------- private

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and only its parent may use the follower."""
        self._is_inherited = True
        self._busy = threading.RLock()

    def _ensure_own(self) -> None:
        if self._is_inherited:
            raise forked_error(self)

    def _ensure_open(self) -> None:
        self._ensure_own()
        if self._is_closing:
            raise ClientClosedError(f"{self} was used after close")

    def _poll(
        self, timeout_ms: int, collect: Callable[[], list[FollowedRecords]]
    ) -> list[FollowedRecords]:
        """Wait until something was collected, the time is over, or the follower is woken."""
        self._ensure_open()
        deadline = time.monotonic() + timeout_ms / 1000
        with self._reading():
            while True:
                self._ensure_open()
                self._signal.clear()
                found = collect()
                seconds = self._seconds_to_wait(deadline)
                if found or seconds <= 0:
                    return found
                self._signal.wait(seconds)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Exclude other threads; release the files at the end if the follower was closed."""
        with self._busy:
            self._is_reading = True
            try:
                yield
            finally:
                self._is_reading = False
                if self._is_closing:
                    self._release()

    def _count(self, max_records: int | None) -> int:
        count = self._options.max_records if max_records is None else max_records
        if count < 1:
            raise ValueError(f"max_records must be 1 or more, got {count}")
        return count

    def _seconds_to_wait(self, deadline: float) -> float:
        if self.clear_wakeup() or self._is_closing:
            return 0.0
        left = deadline - time.monotonic()
        return left if left <= 0 else min(left, max(self._set.seconds_to_sweep(), 0.0005))

    def _collect(self, count: int, pieces_max: int | None = None) -> list[FollowedRecords]:
        """Return the next records of marked partitions; look for marks first."""
        self._set.apply_events()
        self._stop_events()
        if self._set.seconds_to_sweep() <= 0:
            self._set.sweep()
        found: list[FollowedRecords] = []
        size_bytes = self._options.max_bytes
        while count > 0 and size_bytes > 0 and not self._is_closing:
            if pieces_max is not None and len(found) >= pieces_max:
                break
            part = self._set.next_changed()
            if part is None:
                break
            try:
                records = self._set.read(part, count, size_bytes)
            except KafkaLogError:
                # Records that were read are returned first; the next call raises.
                self._set.mark_changed(part, first=bool(found))
                if found:
                    break
                raise
            except BaseException:
                # Interrupted: the next call reads these records again.
                self._set.rewind(part, found)
                raise
            if records:
                assert part.position is not None
                found.append(FollowedRecords(part.where, records, part.position))
                count -= len(records)
                size_bytes -= sum(len(record.value or b"") for record in records)
        return found

    def _stop_events(self) -> None:
        """Wait for no events where a directory could not be watched: its changes have none."""
        notifications = self._notifications
        if notifications is not None and not self._set.has_events:
            self._notifications = None
            self._signal.stop_events(notifications)
            notifications.close()

    def _report_lost(self, lost: LostRecords) -> None:
        logger.warning(
            "%s: %s does not hold offset %d; continues at %d",
            self,
            lost.partition,
            lost.requested_offset,
            lost.resumed_offset,
        )
        del self.lost[: 1 - _LOST_MAX]
        self.lost.append(lost)
        if self._options.on_lost is not None:
            self._options.on_lost(lost)

    def _release(self) -> None:
        if self._is_released:
            return
        self._is_closing = self._is_released = True
        self._set.close()
        self._signal.close()
        if self._notifications is not None:
            self._notifications.close()
        end_warning = getattr(self, "_end_warning", None)
        if end_warning is not None:
            end_warning()


def _open_notifications(filesystem: FileSystem) -> FileNotifications | None:
    try:
        return filesystem.open_notifications()
    except OSError as error:
        logger.warning("changes are found by a poll and not by events: %s", error)
        return None


def follow(
    directories: Paths,
    topics: str | Iterable[str] | None = None,
    **arguments: Unpack[FollowArguments],
) -> Follower:
    """
    Follow the logs of data directories that another process writes.

    Nothing is locked or changed. Topics and partitions may appear and disappear; a directory need
    not exist yet.

    Args:
        directories: data directories, one path or several.
        topics: name or names of topics; all topics but those of Kafka itself if None.
        partitions: partitions instead of topics.
        start: "end" for records that are appended from now on, "start" for all records, or the
            offset of each partition, as `Follower.positions` returns them. Partitions that appear
            later, or have no offset, begin at their log start.
        durable: return only records that the writer has on the disk. It needs a writer of kafkalog
            on this machine; of other writers, records follow with the recovery point.
        isolation: "read_uncommitted", or "read_committed" without open and aborted transactions.
        on_corrupt: "raise" at damage, or "skip" it, as for `Log.records`.
        on_lost: called with each LostRecords: offsets that a log does not have any more.
        on_partition: called with each PartitionChange after the start.
        max_records: largest number of records that are returned at once.
        max_bytes: size of their values from which no more are added.
        poll_interval_ms: time between two looks for changes where the system has no events.
        filesystem: the disk; the file system of the machine if None.

    Raises:
        ValueError, TypeError: an argument is wrong.
        ConfigError: no directory is named.
        LogStorageError: the disk refused.
    """
    return Follower(directories, make_options(topics, **arguments))
