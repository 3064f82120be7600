"""The partitions of a follower, and which of them may have new records.

A change is found by an event of the disk, or by the sweep (`sweep.py`). An event marks its
partition as changed; a read removes the mark first, and then looks at the log, so that no change is
missed. Without a mark no file of a partition is opened, read or listed.

A follower of durable records watches no writes of segments: a sync of the writer is an event of the
file of durable offsets.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from uuid import UUID

from kafkalog._core.record import Record
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clock import SystemClock
from kafkalog.errors import KafkaLogError, LogStorageError, NotALogError
from kafkalog.files.errors import has_missed_file, storage_errors
from kafkalog.files.filesystem import FileEvent, FileNotifications, FileSystem
from kafkalog.files.machine import LocalMachine
from kafkalog.files.names import (
    DURABLE_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    FileKind,
)
from kafkalog.files.pool import FilePool
from kafkalog.followers.checkpoint_cache import CheckpointCache
from kafkalog.followers.discovery import DiscoveredPartition, PartitionDiscovery, followed_name
from kafkalog.followers.durable_limits import NO_LIMIT, DirectoryLimits, DurableLimit
from kafkalog.followers.followed_partition import FollowedPartition, ReadRules
from kafkalog.followers.options import FollowedRecords, FollowOptions, PartitionChange
from kafkalog.followers.sweep import LOOKS_WITH_EVENTS, Sweep
from kafkalog.log.partition import LogEnvironment
from kafkalog.model import TopicPartition

__all__ = ["FollowedSet"]

logger = logging.getLogger(__name__)

# Time between two sweeps where there are events.
SWEEP_SECONDS: Final = 1.0
# Time between two lists of a data directory that is watched.
LISTED_SECONDS: Final = 10.0
_SEGMENT: Final = FileKind.LOG.value
_OF_LIMITS: Final = frozenset({DURABLE_OFFSETS, RECOVERY_POINT_CHECKPOINT})
# Positions of removed partitions that are kept for a partition that is moved to another disk.
_DEPARTED_MAX: Final = 1_000
# A log that is open read-only holds a descriptor, and the fast path another.
_OPEN_LEAST: Final = 16
_OPEN_MOST: Final = 4_096


class FollowedSet:
    """
    All partitions of one follower.

    Args:
        filesystem: the disk.
        discovery: finds the partitions.
        options: options of the follower.
        notifications: events of the disk; None if there are none.
        on_lost: called with each lost range.

    Attributes:
        partitions: the partitions that are there now.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        discovery: PartitionDiscovery,
        options: FollowOptions,
        notifications: FileNotifications | None,
        on_lost: Callable[[LostRecords], object],
    ) -> None:
        self.partitions: dict[TopicPartition, FollowedPartition] = {}
        self._filesystem = filesystem
        self._discovery = discovery
        self._options = options
        self._notifications = notifications
        pool = FilePool(filesystem)
        environment = LogEnvironment(clock=SystemClock(), pool=pool)
        cache = CheckpointCache(filesystem)
        self._rules = ReadRules(environment, cache, options.isolation, options.on_corrupt, on_lost)
        self._sweep = Sweep(filesystem, None if notifications is None else LOOKS_WITH_EVENTS)
        self._swept_at = self._listed_at = time.monotonic()
        # Watches of data directories, by number, and of partitions.
        self._directories: dict[int, Path] = {}
        self._watches: dict[int, FollowedPartition] = {}
        self._by_path: dict[Path, FollowedPartition] = {}
        self._by_digest: dict[bytes, FollowedPartition] = {}
        self._limits: dict[Path, DirectoryLimits] = {}
        # True while events are applied, and after an error in that.
        self._has_missed_events = False
        # Marked partitions in order. One operation changes it, as a signal may come between two.
        self._changed: OrderedDict[FollowedPartition, None] = OrderedDict()
        # The one whose mark was taken last; marked again if its read was interrupted.
        self._in_hand: FollowedPartition | None = None
        # Partitions that could not be opened, because they have no segment yet or were removed.
        self._not_ready: set[TopicPartition] = set()
        self._departed: OrderedDict[TopicPartition, tuple[UUID | None, CommittedOffset | None]]
        self._departed = OrderedDict()
        self._open_logs: OrderedDict[TopicPartition, FollowedPartition] = OrderedDict()
        self._open_max = _open_log_limit()

    # ---------------------------------------------------------------------------------- changes

    @property
    def has_events(self) -> bool:
        """True if the disk reports changes."""
        return self._notifications is not None

    def start(self) -> None:
        """
        Find the partitions, and set their positions.

        Raises:
            LogStorageError: the disk refused.
        """
        for directory in self._discovery.directories:
            self._watch_directory(directory)
            for where in self._discovery.names_in(directory):
                found = None
                if where not in self.partitions:
                    found = self._discovery.find(directory, where)
                if found is not None:
                    self._set_start(self._add(found))

    def apply_events(self) -> None:
        """Read the events of the disk, and mark the partitions that they concern."""
        if self._in_hand is not None:
            self.mark_changed(self._in_hand)
        if self._notifications is None:
            return
        if self._has_missed_events:
            self._mark_all()
        self._has_missed_events = True
        self._apply(self._notifications.read())
        self._has_missed_events = False

    def _apply(self, events: Iterable[FileEvent]) -> None:
        moves: dict[tuple[Path, TopicPartition], bool] = {}
        limits: set[Path] = set()
        for event in events:
            if event.watch < 0:
                logger.info("events of the disk were lost, all partitions are looked at")
                self._mark_all()
                continue
            directory = self._directories.get(event.watch)
            if not event.name:
                # The directory was removed; the sweep watches another one of its name.
                self._directories.pop(event.watch, None)
                self._watches.pop(event.watch, None)
            elif directory is not None:
                where = followed_name(event.name)
                if where is not None:
                    moves[directory, where] = moves.get((directory, where), False) or (
                        event.is_removed
                    )
                elif event.name in _OF_LIMITS:
                    limits.add(directory)
            elif event.watch in self._watches:
                self._apply_event(self._watches[event.watch], event, limits)
        for directory in limits:
            self._refresh_limits(directory)
        for (directory, where), was_removed in moves.items():
            self._recheck(directory, where, was_removed=was_removed)

    def seconds_to_sweep(self) -> float:
        """Return the time to the next sweep."""
        interval = self._options.poll_interval_ms / 1000
        if self._notifications is not None:
            interval = SWEEP_SECONDS
        return max(self._swept_at + interval - time.monotonic(), 0.0)

    def sweep(self) -> None:
        """
        Find changes without an event.

        Raises:
            LogStorageError: the disk refused.
        """
        self._swept_at = now = time.monotonic()
        watched = self._directories.values()
        lost = [each for each in self._discovery.directories if each not in watched]
        for directory in lost:
            self._watch_directory(directory)
        is_due = now - self._listed_at >= (LISTED_SECONDS if self.has_events else 0)
        if is_due:
            self._listed_at = now
        for directory in list(self._discovery.changed_directories()):
            # A broker replaces files there every few seconds.
            if is_due or directory in lost:
                self._rescan(directory)
        for directory in list(self._limits):
            self._limits[directory].verify_writer()
            self._refresh_limits(directory)
        for path in self._sweep.changed():
            if path in self._by_path:
                self._by_path[path].end_fast_path()
                self.mark_changed(self._by_path[path])
        for where in self._not_ready:
            part = self.partitions.get(where)
            if part is not None:
                self.mark_changed(part)
        self._not_ready.clear()

    def mark_changed(self, part: FollowedPartition, *, first: bool = False) -> None:
        """
        Mark a partition: it may have new records.

        Args:
            part: the partition.
            first: whether it is read before others that are marked.
        """
        self._changed.setdefault(part)
        if first:
            self._changed.move_to_end(part, last=False)

    def next_changed(self) -> FollowedPartition | None:
        """Return a marked partition, without its mark; None if there is none."""
        while self._changed:
            part = self._in_hand = next(iter(self._changed))
            self._changed.pop(part, None)
            if self.partitions.get(part.where) is part:
                return part
        self._in_hand = None
        return None

    # ------------------------------------------------------------------------------------ reads

    def read(self, part: FollowedPartition, count: int, size_bytes: int) -> list[Record]:
        """
        Return the next records of a partition; see `FollowedPartition.read`.

        Raises:
            CorruptRecordError: the position is in a corrupt range.
            LogStorageError: the disk refused.
        """
        before = part.position
        try:
            if part.position is None:
                part.seek_to_start()
            limit = self._known_limit(part)
            if not part.has_more and not part.may_have_more(limit):
                self._in_hand = None
                return []
            with storage_errors(part.directory, doing="reading"):
                found = part.read(
                    count,
                    size_bytes,
                    limit,
                    lambda: self._limit(part),
                    lambda at: self._holds(part, at),
                )
        except (NotALogError, LogStorageError) as error:
            part.release()
            if not isinstance(error, NotALogError) and not has_missed_file(error):
                raise
            # It has no segment yet, or was removed.
            self._not_ready.add(part.where)
            self._recheck(part.directory.parent, part.where, was_removed=False)
            return []
        except KafkaLogError:
            raise
        except BaseException:
            if before is not None:
                part.seek(CommittedOffset(before))
            raise
        finally:
            self._count_open(part)
        if found or part.has_more:
            # Until a read finds nothing: the next segment may have records that no event announces.
            self.mark_changed(part)
        self._in_hand = None
        return found

    def rewind(self, part: FollowedPartition, found: Iterable[FollowedRecords]) -> None:
        """Read records again that were not returned, and a partition whose read was interrupted."""
        self.mark_changed(part)
        for piece in found:
            other = self.partitions.get(piece.partition)
            if other is not None:
                other.seek(CommittedOffset(piece.records[0].offset))
                self.mark_changed(other)

    def close(self) -> None:
        """Release all logs and files. Idempotent."""
        for part in self.partitions.values():
            part.release()
        for limits in self._limits.values():
            limits.close()

    # ---------------------------------------------------------------------------------- private

    def _apply_event(self, part: FollowedPartition, event: FileEvent, limits: set[Path]) -> None:
        name = event.name
        if name in _OF_LIMITS:
            limits.add(part.directory)
        elif event.is_written:
            # Each append writes its segment; indexes and journals do not matter.
            if name.endswith(_SEGMENT):
                if name != part.tail_name:
                    part.end_fast_path()
                self.mark_changed(part)
        elif _SEGMENT in name or name == PARTITION_METADATA:
            part.end_fast_path()
            self.mark_changed(part)

    def _mark_all(self) -> None:
        for directory in self._discovery.directories:
            self._rescan(directory)
        for directory in list(self._limits):
            self._refresh_limits(directory)
        for part in self.partitions.values():
            part.end_fast_path()
            self.mark_changed(part)

    def _rescan(self, directory: Path) -> None:
        """Compare the names in a data directory with the partitions there."""
        names = set(self._discovery.names_in(directory))
        present = {
            where: part
            for where, part in self.partitions.items()
            if part.directory.parent == directory
        }
        for where, part in present.items():
            if where in names and self._discovery.has_directory(part.directory, part.file_id):
                names.discard(where)
            else:
                names.add(where)
        for where in sorted(names):
            self._recheck(directory, where, was_removed=False)

    def _recheck(self, directory: Path, where: TopicPartition, *, was_removed: bool) -> None:
        """Compare a partition with its directory; add or remove it."""
        part = self.partitions.get(where)
        if part is not None and part.directory.parent != directory:
            # A copy in another data directory counts when this one is removed.
            return
        found = self._discovery.find(directory, where)
        if part is not None:
            if found is not None and found.facts.file_id == part.file_id and not was_removed:
                return
            self._remove(part)
            found = self._discovery.find_anywhere(where) if found is None else found
        if found is not None:
            fresh = self._add(found)
            self._set_later_start(fresh)
            self._report(PartitionChange(where, "added"))

    def _add(self, found: DiscoveredPartition) -> FollowedPartition:
        part = FollowedPartition(found.where, found.paths, found.facts, found.topic_id, self._rules)
        self.partitions[part.where] = part
        self._by_path[part.directory] = part
        self._by_digest[part.digest] = part
        self._sweep.add(part.directory)
        if self._options.durable and part.paths.state_directory not in self._limits:
            directory = part.paths.state_directory
            self._limits[directory] = DirectoryLimits(self._filesystem, directory)
            self._refresh_limits(directory)
        # Before the log is looked at: a later change has an event.
        with_writes = not self._options.durable or part.paths.is_standalone
        watch = self._watch(part.directory, with_writes=with_writes)
        if watch is not None:
            self._watches[watch] = part
        self.mark_changed(part)
        return part

    def _remove(self, part: FollowedPartition) -> None:
        part.release()
        for watch in [number for number, each in self._watches.items() if each is part]:
            del self._watches[watch]
            if self._notifications is not None:
                self._notifications.remove(watch)
        del self.partitions[part.where]
        self._by_path.pop(part.directory, None)
        self._by_digest.pop(part.digest, None)
        self._open_logs.pop(part.where, None)
        self._sweep.remove(part.directory)
        if part.paths.is_standalone:
            limits = self._limits.pop(part.directory, None)
            if limits is not None:
                limits.close()
        position = None if part.position is None else part.committed_offset
        self._departed[part.where] = part.topic_id, position
        if len(self._departed) > _DEPARTED_MAX:
            self._departed.popitem(last=False)
        self._report(PartitionChange(part.where, "removed"))

    def _set_start(self, part: FollowedPartition) -> None:
        """Set the position of a partition that is there when the follower starts."""
        offset = self._options.start_of(part.where)
        if offset is not None:
            part.seek(offset)
        elif self._options.start == "end":
            try:
                part.seek_to_end(self._limit(part))
            except (NotALogError, LogStorageError) as error:
                part.release()
                if not isinstance(error, NotALogError) and not has_missed_file(error):
                    raise
                self._not_ready.add(part.where)
            self._count_open(part)

    def _set_later_start(self, part: FollowedPartition) -> None:
        """Set the position of a partition that appeared: all of its records are new."""
        topic_id, position = self._departed.pop(part.where, (None, None))
        if topic_id is not None and topic_id == part.topic_id:
            # The same partition, on another disk.
            if position is not None:
                part.seek(position)
        elif topic_id is None and position is None:
            offset = self._options.start_of(part.where)
            if offset is not None:
                part.seek(offset)

    def _report(self, change: PartitionChange) -> None:
        logger.info("partition %s was %s", change.partition, change.kind)
        if self._options.on_partition is not None:
            self._options.on_partition(change)

    def _count_open(self, part: FollowedPartition) -> None:
        """Release the log that was read least recently, if too many are open."""
        if not part.is_open or self.partitions.get(part.where) is not part:
            self._open_logs.pop(part.where, None)
            return
        self._open_logs[part.where] = part
        self._open_logs.move_to_end(part.where)
        if len(self._open_logs) > self._open_max:
            _where, oldest = self._open_logs.popitem(last=False)
            oldest.release()

    # ----------------------------------------------------------------------------------- limits

    def _known_limit(self, part: FollowedPartition) -> DurableLimit:
        """Return the limit as of the last refresh."""
        limits = self._limits.get(part.paths.state_directory)
        return NO_LIMIT if limits is None else limits.limit_of(part.where, part.digest)

    def _limit(self, part: FollowedPartition) -> DurableLimit:
        if not self._options.durable:
            return NO_LIMIT
        self._refresh_limits(part.paths.state_directory, except_for=part)
        return self._known_limit(part)

    def _holds(self, part: FollowedPartition, limit: DurableLimit) -> bool:
        if limit is NO_LIMIT:
            return True
        limits = self._limits.get(part.paths.state_directory)
        return limits is not None and limits.is_unchanged(part.digest, limit)

    def _refresh_limits(self, directory: Path, except_for: FollowedPartition | None = None) -> None:
        limits = self._limits.get(directory)
        if limits is None:
            return
        changed = limits.refresh()
        if changed is None:
            parts = [
                part for part in self.partitions.values() if part.paths.state_directory == directory
            ]
        else:
            parts = [self._by_digest[digest] for digest in changed if digest in self._by_digest]
        for part in parts:
            if part is not except_for:
                if changed is None:
                    part.end_fast_path()
                self.mark_changed(part)

    # ---------------------------------------------------------------------------------- watches

    def _watch_directory(self, directory: Path) -> None:
        watch = self._watch(directory, with_writes=self._options.durable)
        if watch is not None:
            self._directories[watch] = directory

    def _watch(self, directory: Path, *, with_writes: bool) -> int | None:
        """Watch a directory; without any events from now on if there are too many watches."""
        if self._notifications is None:
            return None
        try:
            return self._notifications.add(directory, with_writes=with_writes)
        except FileNotFoundError:
            # Not made yet, or removed in between: the sweep finds out.
            return None
        except OSError as error:
            logger.warning(
                "changes are found every %d ms and not by events: %s",
                self._options.poll_interval_ms,
                error,
            )
            self._stop_events()
            return None

    def _stop_events(self) -> None:
        self._notifications = None
        self._directories.clear()
        self._watches.clear()
        self._sweep.look_at_all()


def _open_log_limit() -> int:
    """Return the number of logs that may be open, a quarter of the descriptors."""
    soft, _hard = LocalMachine().descriptor_limits()
    return _OPEN_MOST if soft is None else min(max(soft // 8, _OPEN_LEAST), _OPEN_MOST)
