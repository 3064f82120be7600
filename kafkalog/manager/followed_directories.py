"""Partitions in directories that another process writes: topics that come, go and are made again.

A look compares the names in each data directory, and the topic id of each partition, with the
partitions that the manager has:

| found | result |
|---|---|
| a partition directory that is new | a new partition |
| the name is gone, or became `-delete`, `-stray` or `-future` | deleted; its log is closed |
| the same name with another topic id, or without one in another directory file | deleted, and new |
| the same partition in another data directory, with the note of a move | moved: a new log |
| a partition directory with neither a segment nor a topic id | left out until it has one |
| a data directory that cannot be read | offline; its partitions stay, open logs can be read |

Which partitions are served is decided by the rules of a start (`incarnations`). Settings of topics
are read again when their file has changed. Nothing is written, created or locked.

A look at an unchanged directory is one look-up of its attributes. Its change mark must be old
enough to show the next change on any file system. Until it is, the directory is listed again: at
each look if its attributes differ, or if it was listed within TICK_MS of its last change; else
after LISTING_SHARE times the duration of a listing. It is listed at least every LISTED_SECONDS, for
systems whose marks cannot be trusted.

Thread-safety: `refresh` from any thread; looks exclude each other. The lock is taken before the
locks of partitions. A callback of a log that is closed by a look may call the manager.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkalog.errors import (
    ConfigError,
    CorruptStateError,
    KafkaLogError,
    LogStorageError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.errors import has_missed_file, storage_errors
from kafkalog.files.filesystem import FileFacts
from kafkalog.files.names import PARTITION_METADATA, TOPIC_OVERRIDES, partition_directory_name
from kafkalog.log.startup_cleanup import live_bases
from kafkalog.manager.deletion_marks import PartitionMark, read_marks
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.directory_group import DirectoryGroup, Identity, agree, block_duplicate
from kafkalog.manager.incarnations import METADATA, sort_partitions, stray_error
from kafkalog.manager.move_notes import MoveNotes, read_note
from kafkalog.manager.opening import OPEN, LogOpener
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["NO_CLUSTER", "NO_NODE", "FollowedDirectories"]

logger = logging.getLogger(__name__)

# No longer is a directory believed to be as it was because its mark is.
LISTED_SECONDS: Final = 10.0
# A directory that has just changed is listed again after this many times the duration of a listing.
LISTING_SHARE: Final = 10
# Longer than the clock of a local file system needs to show another time.
TICK_MS: Final = 20
# Time after which a directory that could not be read is read again.
RETRY_SECONDS: Final = 1.0
# Listings of one look while names change between a listing and the reading of a partition.
ATTEMPTS: Final = 5
# Identity of directories without `meta.properties`.
NO_CLUSTER: Final = ""
NO_NODE: Final = -1
# Names of the faults of a directory that cannot be read, and of its file of settings.
LIST: Final = "list"
SETTINGS: Final = "settings"

Mark = tuple[int, ...] | None


class _Seen:
    """One partition directory as it was read: its file number, its topic id, and their mark."""

    __slots__ = ("file_id", "mark", "topic_id")

    def __init__(self, file_id: int, topic_id: uuid.UUID | None, mark: Mark) -> None:
        self.file_id = file_id
        self.topic_id = topic_id
        self.mark = mark


class _Look:
    """
    The last listing of one data directory.

    Attributes:
        partitions: what was found, by the names of the partition directories.
        settings_mark: change mark of the file of settings before it was read.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.partitions: dict[str, _Seen] = {}
        self.settings_mark: Mark = None
        self._mark: Mark = None
        self._facts: FileFacts | None = None
        self._listed_at = float("-inf")
        self._took_seconds = 0.0
        # True if the last change was long enough before the listing: the next has another time.
        self._is_settled = False
        # Partition directories that were empty, with their attributes.
        self._pending: dict[Path, FileFacts | None] = {}

    def set_settings_mark(self, mark: Mark) -> None:
        """Record the change mark of the file of settings before it was read."""
        self.settings_mark = mark

    def state(self) -> tuple[object, ...]:
        """Return a value that is equal while nothing that decides about partitions differs."""
        directory = self.directory
        notes = tuple(directory.inventory.move_notes)
        return directory.is_online, directory.was_read, notes, self.partitions

    def is_current(self) -> bool:
        """Return whether the directory is as it was listed, if one look-up can show that."""
        age = time.monotonic() - self._listed_at
        if not self.directory.is_online:
            return age < RETRY_SECONDS
        if age > LISTED_SECONDS:
            return False
        filesystem, path = self.directory.filesystem, self.directory.path
        try:
            if self._pending and any(
                filesystem.stat(each) != facts for each, facts in self._pending.items()
            ):
                return False
            if self._mark is not None:
                return filesystem.change_mark(path) == self._mark
            is_early = self._is_settled and age < self._took_seconds * LISTING_SHARE
            return is_early and filesystem.stat(path) == self._facts
        except OSError:
            return False

    def list(self, faults: FaultRegistry) -> None:
        """
        Read the directory and the topic ids of its partitions.

        Raises:
            LogStorageError, CorruptStateError, NotALogError: the directory cannot be read; or a
                name was removed since the listing, and the next call may see a later state.
        """
        directory, began_at = self.directory, time.monotonic()
        filesystem, path = directory.filesystem, directory.path
        self._listed_at, self._mark, self._is_settled = began_at, None, False
        now_ms = time.time_ns() // 1_000_000
        with storage_errors(path, doing="listing"):
            mark, facts = filesystem.change_mark(path), filesystem.stat(path)
        directory.read()
        found: dict[str, _Seen] = {}
        pending: dict[Path, FileFacts | None] = {}
        for name, partition in directory.inventory.partitions.items():
            inside = path / name
            with storage_errors(inside, doing="reading"):
                before = None if name in self.partitions else filesystem.stat(inside)
                seen = self._read_partition(inside, partition, faults)
            if seen is None:
                pending[inside] = before
            else:
                found[name] = seen
        self.partitions, self._pending = found, pending
        self._mark, self._facts = mark, facts
        self._is_settled = facts is not None and now_ms - facts.modified_ms > TICK_MS
        self._took_seconds = time.monotonic() - began_at

    def _read_partition(
        self, path: Path, partition: TopicPartition, faults: FaultRegistry
    ) -> _Seen | None:
        """Return what a partition directory has; None if it has no segment and no topic id."""
        directory, name = self.directory, path.name
        filesystem = directory.filesystem
        file_id = directory.inventory.file_ids.get(name, 0)
        mark = filesystem.change_mark(path / PARTITION_METADATA)
        seen = self.partitions.get(name)
        if seen is not None and seen.file_id == file_id and mark is not None and seen.mark == mark:
            return seen
        topic_id = None
        try:
            topic_id = read_partition_metadata(filesystem, path)
            faults.clear_error(METADATA, partition)
        except (CorruptStateError, LogStorageError) as error:
            faults.record_failure(METADATA, partition, error)
        else:
            if topic_id is None and not live_bases(filesystem, path):
                return None
        return _Seen(file_id, topic_id, mark)


class FollowedDirectories:
    """
    Keeps the partitions of a read-only manager in step with its directories.

    Args:
        group: the directories; none has been opened.
        registry: gets the partitions.
        settings: settings of topics.
        opener: closes logs of partitions that are gone.
        faults: gets failures.
    """

    def __init__(
        self,
        group: DirectoryGroup,
        registry: PartitionRegistry,
        settings: TopicSettings,
        opener: LogOpener,
        faults: FaultRegistry,
    ) -> None:
        self._group = group
        self._registry = registry
        self._settings = settings
        self._opener = opener
        self._faults = faults
        self._lock = threading.RLock()
        self._is_looking = False
        self._looks = [_Look(directory) for directory in group.all]
        # State of the looks and the settings that the registry has.
        self._applied: object = None
        # Each partition of the registry as it was found.
        self._served: dict[TopicPartition, _Seen] = {}

    def open(self, *, cluster_id: str | None, node_id: int | None) -> Identity:
        """
        Read all directories; return cluster and node. A directory that fails is offline afterwards.

        Raises:
            ConfigError: the directories contradict each other or the arguments.
            LogStorageError, CorruptStateError, NotALogError: no directory can be read.
        """
        self.refresh()
        first = self._group.all[0].error
        if first is not None and not self._group.online:
            raise first
        metas = {each.path: each.meta for each in self._group.online}
        cluster, node = agree(metas, cluster_id=cluster_id, node_id=node_id)
        present = [meta for meta in metas.values() if meta is not None]
        if cluster_id is None and not any(meta.cluster_id for meta in present):
            cluster = NO_CLUSTER
        if node_id is None and all(meta.node_id is None for meta in present):
            node = NO_NODE
        return cluster, node

    def refresh(self) -> None:
        """Update the partitions, if a directory has changed since the last look."""
        if all(look.is_current() for look in self._looks):
            return
        with self._lock:
            if self._is_looking:
                return
            self._is_looking = True
            try:
                self._update()
            finally:
                self._is_looking = False

    def _update(self) -> None:
        for look in self._looks:
            if not look.is_current():
                self._list(look)
        settings = self._settings
        state = [look.state() for look in self._looks], settings.ids, settings.deleting
        # Checkpoints that a writer replaces change a directory, too.
        if state != self._applied:
            self._apply()
            self._applied = state

    def _list(self, look: _Look) -> None:
        """List one directory; if it cannot be read, it is offline, and keeps its partitions."""
        directory = look.directory
        for attempt in range(ATTEMPTS):
            try:
                look.list(self._faults)
            except KafkaLogError as error:
                if attempt + 1 < ATTEMPTS and has_missed_file(error):
                    continue
                if directory.is_online:
                    logger.warning("%s cannot be read now: %s", directory.path, error)
                directory.keep_offline(error)
                self._faults.record_failure(LIST, directory.path, error)
                return
            break
        directory.mark_read()
        self._faults.clear_error(LIST, directory.path)
        self._read_settings(look)

    def _read_settings(self, look: _Look) -> None:
        """Read the settings of topics, if their file has changed."""
        directory = look.directory
        mark = directory.filesystem.change_mark(directory.path / TOPIC_OVERRIDES)
        if mark is not None and mark == look.settings_mark:
            return
        try:
            self._settings.load([directory])
        except (ConfigError, CorruptStateError, LogStorageError) as error:
            # Records can be read without it.
            self._faults.record_failure(SETTINGS, directory.path, error)
        else:
            look.set_settings_mark(mark)
            self._faults.clear_error(SETTINGS, directory.path)

    def _apply(self) -> None:
        """Compare what the listings found with the registry, and change that."""
        desired = self._desired()
        for partition in self._registry.all():
            name = partition.topic_partition
            fresh = desired.get(name)
            if fresh is not None and self._is_same(partition, fresh):
                seen = self._seen(fresh)
                if seen.topic_id is not None:
                    self._served[name] = seen
                    partition.set_topic_id(seen.topic_id)
                self._update_block(partition, fresh)
                del desired[name]
            else:
                self._remove(partition)
        for name, partition in desired.items():
            self._served[name] = self._seen(partition)
            self._registry.add_new(partition)

    def _desired(self) -> dict[TopicPartition, ManagedPartition]:
        """Return the partitions to serve, by name, by the rules of a start."""
        found: list[ManagedPartition] = []
        marks: dict[ManagedPartition, PartitionMark] = {}
        moves = MoveNotes(self._group.all)
        for look in self._looks:
            directory = look.directory
            partitions = [
                ManagedPartition(directory.inventory.partitions[name], directory, seen.topic_id)
                for name, seen in look.partitions.items()
                if name in directory.inventory.partitions
            ]
            found += partitions
            self._add_moves(moves, directory)
            for each in partitions:
                if each.topic_partition.topic in self._settings.deleting:
                    marks |= self._marks_of(each)
        deleting = {
            topic: notes
            for topic, notes in self._settings.deleting.items()
            if all(each in marks for each in found if each.topic_partition.topic == topic)
        }
        result = sort_partitions(
            found,
            PartitionRegistry(),
            self._settings.ids,
            deleting,
            marks,
            all_read=all(each.was_read for each in self._group.all),
        )
        reported = set(self._group.strays)
        for stray in result.strays:
            if stray not in reported:
                logger.error("%s", stray_error(stray))
        self._group.set_strays(result.strays)
        return self._without_copies(result.live, moves)

    def _without_copies(
        self, live: list[ManagedPartition], moves: MoveNotes
    ) -> dict[TopicPartition, ManagedPartition]:
        """Return the partitions by name; of two copies the valid one, or a blocked partition."""
        desired: dict[TopicPartition, ManagedPartition] = {}
        for partition in live:
            name = partition.topic_partition
            other = desired.setdefault(name, partition)
            if other is partition:
                continue
            loser = moves.loser(partition, other)
            if loser is None:
                block_duplicate(other, partition.directory, self._faults)
            elif loser is other:
                desired[name] = partition
        return desired

    def _add_moves(self, moves: MoveNotes, directory: DataDirectory) -> None:
        """Read the notes of committed moves of a directory; they are left to its writer."""
        for name in directory.inventory.move_notes:
            try:
                note = read_note(directory.filesystem, directory.path / name)
            except OSError as error:
                logger.warning("%s is ignored: %s", directory.path / name, error)
                continue
            if note is not None:
                moves.add(directory, note)

    def _marks_of(self, partition: ManagedPartition) -> Mapping[ManagedPartition, PartitionMark]:
        try:
            return read_marks([partition])
        except LogStorageError:
            # Deleted in the meantime, or unreadable: the next listing decides.
            return {}

    def _is_same(self, partition: ManagedPartition, fresh: ManagedPartition) -> bool:
        """Return whether a served partition is the same that a listing found."""
        if partition.directory is not fresh.directory:
            return False
        before, now = self._served[partition.topic_partition], self._seen(fresh)
        if before.topic_id is not None and now.topic_id is not None:
            return before.topic_id == now.topic_id
        return before.file_id == now.file_id

    def _seen(self, partition: ManagedPartition) -> _Seen:
        name = partition_directory_name(partition.topic_partition)
        look = next(each for each in self._looks if each.directory is partition.directory)
        return look.partitions[name]

    def _update_block(self, partition: ManagedPartition, fresh: ManagedPartition) -> None:
        """Block a partition that has a copy now, or free it when it has none any more."""
        if fresh.is_duplicate and fresh.error is not None:
            partition.block(fresh.error, *fresh.rivals[:1])
        elif partition.is_duplicate:
            partition.free()
            self._faults.clear_error(OPEN, partition.topic_partition)

    def _remove(self, partition: ManagedPartition) -> None:
        """Close the log of a partition that is gone; its readers get an error."""
        name = partition.topic_partition
        with partition.lock:
            # A thread that waits for the lock to open it raises, or finds its replacement.
            partition.mark_gone()
            self._opener.release(partition, UnknownTopicOrPartitionError(f"{name} was deleted"))
        self._faults.remove(name)
        self._registry.remove(partition)
        self._served.pop(name, None)
