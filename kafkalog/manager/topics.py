"""Creation, deletion and reconfiguration of topics; placement; duplicate partitions.

Order of a creation: the settings are on the disk before the partitions. Order of a deletion: the
partitions, then the settings. With several partitions, a note is written before the first one, and
removed after the last one. Settings of a topic without partitions have no effect, and are removed
with the creation of the next topic of that name.

A topic name is legal as in Kafka, and differs from every other name in more than '.' against '_',
because names of metrics have '_' for both. A partition goes to the online directory with the fewest
partitions.

A partition in two data directories is opened from neither until an operator has moved one copy out
of its data directory. The next use of the partition notices that. Nothing is written: checkpoint
lines of the removed copy are dropped by the next write or the next start.

Crash points, besides those of one partition (`DataDirectory`) and of a note (`overrides`): before
the note, nothing was begun. After the note of a creation, the next start creates the missing
partitions, unless all are missing. After the note of a deletion, it deletes the remaining
partitions, unless a broker used the topic in the meantime (`deletion_marks`), which ends the
deletion. A created topic may have records already, so a creation is never undone by a start. A
directory that is offline then may have the missing partition, so the completion waits for it. On a
full disk, a deletion has no note, and a crash may leave some of the partitions; the call can be
repeated.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafkalog.errors import (
    DiskFullError,
    InvalidTopicError,
    LogOfflineError,
    LogStorageError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.names import (
    CLUSTER_METADATA_TOPIC,
    ensure_topic_name,
    partition_directory_name,
    topics_collide,
)
from kafkalog.log.log import partition_of
from kafkalog.manager.deleted_directories import DeletedDirectories
from kafkalog.manager.deletion_marks import PartitionMark, read_marks
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.directory_group import DirectoryGroup
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.overrides import ANY_ID, EVERYWHERE, NO_ID, Deletion
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.settings import ConfigChange
from kafkalog.state.kafka_uuid import format_id, new_id, parse_id

__all__ = ["TopicAdministration"]

logger = logging.getLogger(__name__)


class TopicAdministration:
    """
    Creates, deletes and reconfigures topics and partitions.

    Args:
        group: the data directories.
        registry: the partitions.
        settings: settings of topics.
        opener: closes logs.
        deleted_directories: removes directories after a delay.
        faults: the fault registry.
    """

    def __init__(
        self,
        group: DirectoryGroup,
        registry: PartitionRegistry,
        settings: TopicSettings,
        opener: LogOpener,
        deleted_directories: DeletedDirectories,
        faults: FaultRegistry,
    ) -> None:
        self._group = group
        self._directories = group.all
        self._registry = registry
        self._settings = settings
        self._opener = opener
        self._deleted_directories = deleted_directories
        self._faults = faults
        self._on_error = group.on_error

    def create_topic(
        self,
        topic: str,
        partition_count: int,
        config: Mapping[str, str] | None,
        directory: DataDirectory | None = None,
    ) -> None:
        """See `LogManager.create_topic`."""
        if partition_count < 1:
            raise ValueError(f"partition_count must be >= 1, got {partition_count}")
        _ensure_new_topic_name(topic, self._registry.topic_names())
        if self._registry.of_topic(topic):
            raise TopicExistsError(f"topic {topic} exists")
        self._ensure_not_deleting(topic)
        self._ensure_not_offline(topic)
        # Settings of an earlier topic of this name are dropped.
        configs = self._settings.configs.without_topic(topic)
        if config:
            configs = configs.with_topic(topic, dict(config))
        creating = {topic: partition_count} if partition_count > 1 else {}
        topic_id = new_id()
        self._settings.change(
            configs,
            self._directories,
            creating=dict(self._settings.creating) | creating,
            ids=dict(self._settings.ids) | {topic: format_id(topic_id)},
        )
        made: list[ManagedPartition] = []
        try:
            for number in range(partition_count):
                partition = self._make(TopicPartition(topic, number), topic_id, directory)
                made.append(partition)
        except BaseException:
            for partition in made:
                self._registry.remove(partition)
                partition.directory.undo_partition(partition.topic_partition)
            self._remove_settings(topic)
            raise
        self._settings.resolve(
            topic,
            self._settings.configs,
            self._directories,
            deletions=self._settings.deleting.get(topic, ()),
        )

    def create_partition(
        self, name: TopicPartition, directory: DataDirectory | None = None
    ) -> ManagedPartition:
        """See `LogManager.create_partition`."""
        _ensure_new_topic_name(name.topic, self._registry.topic_names())
        if name in self._registry:
            raise TopicExistsError(f"partition {name} exists")
        self._ensure_not_deleting(name.topic)
        if not self._registry.of_topic(name.topic):
            self._ensure_not_offline(name.topic)
        return self._make(name, self._id_for(name.topic), directory)

    def _id_for(self, topic: str) -> uuid.UUID:
        """Return the topic id of a new partition of a topic."""
        found = self._registry.topic_id(topic)
        noted = self._settings.ids.get(topic)
        if found is None and noted is not None and self._registry.of_topic(topic):
            with contextlib.suppress(ValueError):
                found = parse_id(noted)
        return new_id() if found is None else found

    def _ensure_not_offline(self, topic: str) -> None:
        """
        Raise unless a topic without partitions may be created.

        Raises:
            InconsistentTopicIdError: a stray partition has its name.
            LogOfflineError: it is known, and its partitions are in a directory that is offline.
        """
        self._group.ensure_not_stray(topic)
        unread = [each for each in self._directories if not each.was_read]
        if topic in self._settings.ids and unread:
            raise LogOfflineError(
                f"topic {topic} exists, and its partitions are in a directory that is offline:"
                f" {unread[0].path}: {unread[0].error}",
                path=unread[0].path,
            )

    def delete_topic(self, topic: str) -> None:
        """See `LogManager.delete_topic`."""
        partitions = self._partitions_of(topic)
        for partition in partitions:
            if partition.is_duplicate and partition.error is not None:
                raise partition.error
        away = self._group.offline_keys()
        if len(partitions) > 1 or away:
            self._record_deletion(topic, away)
        for partition in partitions:
            if partition.directory.is_online:
                self._delete(partition)
            else:
                self._unregister(partition)
        self._remove_settings(topic)

    def delete_partition(self, name: TopicPartition) -> None:
        """See `LogManager.delete_partition`."""
        found = self.recheck(self._registry.get(name))
        _ensure_usable(found)
        # Otherwise the next start could continue the creation of its topic.
        with contextlib.suppress(DiskFullError):
            self._settings.catch_up(self._directories)
        self._delete(found)
        # An offline directory may have other partitions of the topic.
        if not self._registry.of_topic(name.topic) and not self._group.offline_keys():
            self._remove_settings(name.topic)

    def reconfigure(self, topic: str, changes: Mapping[str, str | None]) -> ConfigChange:
        """See `LogManager.reconfigure`."""
        partitions = self._partitions_of(topic)
        before = self._settings.config_of(topic)
        self._settings.change(self._settings.with_changes(topic, changes), self._directories)
        after = self._settings.config_of(topic)
        for partition in partitions:
            with partition.lock:
                log = partition.usable_log
                if log is not None:
                    log.reconfigure(after)
        return before.change_to(after)

    def reconfigure_defaults(self, changes: Mapping[str, str | None]) -> ConfigChange:
        """See `LogManager.reconfigure_defaults`."""
        before = self._settings.config
        self._settings.change_defaults(changes, self._directories)
        after = self._settings.config
        for partition in self._registry.all():
            with partition.lock:
                log = partition.usable_log
                if log is not None:
                    log.reconfigure(self._settings.config_of(partition.topic_partition.topic))
                    partition_of(log).expire_producers_after(after.producer_id_expiration_ms)
        return before.change_to(after)

    def _partitions_of(self, topic: str) -> list[ManagedPartition]:
        found = self._registry.of_topic(topic)
        if not found:
            raise UnknownTopicOrPartitionError(f"topic not found: {topic}")
        return [self.recheck(each) for each in found]

    def recheck(self, partition: ManagedPartition) -> ManagedPartition:
        """
        Return a partition, or the copy that replaced it; usable if it is the only copy now.

        Raises:
            UnknownTopicOrPartitionError: it was deleted in the meantime.
        """
        registry = self._registry
        with partition.lock:
            name = partition.topic_partition
            if partition.is_gone:
                return registry.get(name)
            if not partition.is_duplicate:
                return partition
            copies = (partition.directory, *partition.rivals)
            left = [directory for directory in copies if _may_have(directory, name)]
            if len(left) != 1 or not left[0].is_online:
                return partition
            for directory in copies:
                if directory is not left[0]:
                    directory.unregister_partition(name)
            self._faults.remove(name)
            if left[0] is partition.directory:
                partition.free()
                return partition
            partition.mark_gone()
            moved = ManagedPartition(name, left[0], partition.topic_id)
            registry.replace(partition, moved)
        return moved

    def partitions_affected_by(self, directory: DataDirectory) -> list[ManagedPartition]:
        """Return the partitions that `finish` may delete when a directory returns."""
        deleted = [
            each for topic in self._settings.deleting for each in self._registry.of_topic(topic)
        ]
        return self._registry.in_directory(directory) + deleted

    def finish(self) -> list[TopicPartition]:
        """
        Finish creations and deletions that a crash interrupted, after directories were registered.

        Returns the partitions that were deleted.
        """
        deleted: list[TopicPartition] = []
        if all(directory.is_online for directory in self._directories):
            self._finish_making()
        for topic in sorted(self._settings.deleting):
            with self._finishing(topic):
                for partition in self._registry.of_topic(topic):
                    if partition.directory.is_online and self._is_deleted(partition):
                        self._delete(partition)
                        deleted.append(partition.topic_partition)
                self._resolve_deletion(topic)
        return deleted

    def _finish_making(self) -> None:
        for topic, count in list(self._settings.creating.items()):
            with self._finishing(topic):
                present = self._registry.of_topic(topic)
                numbers = {each.topic_partition.partition for each in present}
                for number in sorted(set(range(count)) - numbers) if present else ():
                    self._make(TopicPartition(topic, number), self._id_for(topic))
                is_gone = not present and not self._group.offline_keys()
                self._settings.resolve(
                    topic,
                    self._settings.configs,
                    self._directories,
                    deletions=self._settings.deleting.get(topic, ()),
                    is_gone=is_gone,
                )

    def _is_deleted(self, partition: ManagedPartition) -> bool:
        text = None if partition.topic_id is None else format_id(partition.topic_id)
        notes = self._settings.deleting.get(partition.topic_partition.topic, ())
        return any(note.is_of(text, partition.directory.keys) for note in notes)

    def _resolve_deletion(self, topic: str) -> None:
        """Remove finished parts from the notes of a topic's deletion."""
        settings = self._settings
        left = self._left_to_delete(topic)
        if left == settings.deleting.get(topic, ()):
            return
        deleted = {note.topic_id for note in settings.deleting.get(topic, ())} | {NO_ID}
        # True if the topic was created again, perhaps in a directory that is offline.
        is_again = ANY_ID not in deleted and settings.ids.get(topic, NO_ID) not in deleted
        in_use = bool(self._registry.of_topic(topic)) or is_again
        configs = settings.configs if in_use else settings.configs.without_topic(topic)
        settings.resolve(topic, configs, self._directories, deletions=left, is_gone=not in_use)

    def _left_to_delete(self, topic: str) -> tuple[Deletion, ...]:
        """Return the notes of a topic's deletion, limited to directories that are still offline."""
        waiting = self._group.offline_keys() | {
            key for each in self._group.unfinished if each.is_online for key in each.keys
        }
        left = []
        for note in self._settings.deleting.get(topic, ()):
            directories = note.directories
            if EVERYWHERE in directories:
                directories = waiting
            if directories & waiting:
                left.append(note.within(directories & waiting))
        return tuple(left)

    @contextlib.contextmanager
    def _finishing(self, topic: str) -> Iterator[None]:
        """Log a storage error; the next start or `bring_online` tries again."""
        try:
            yield
        except LogStorageError as error:
            logger.warning("the creation or deletion of topic %s is not finished: %s", topic, error)

    def _ensure_not_deleting(self, topic: str) -> None:
        """Raise TopicExistsError while a partition of a deleted topic could not be deleted."""
        if any(map(self._is_deleted, self._registry.of_topic(topic))):
            raise TopicExistsError(
                f"topic {topic} is being deleted: a partition could not be deleted; delete it again"
            )

    def _record_deletion(self, topic: str, away: frozenset[str]) -> None:
        settings = self._settings
        creating = {name: count for name, count in settings.creating.items() if name != topic}
        used = self._registry.topic_id(topic)
        noted = settings.ids.get(topic, NO_ID)
        note = Deletion(
            noted if used is None else format_id(used),
            self._group.known_keys(),
            self._marks_of(topic),
        )
        notes = tuple(
            each for each in settings.deleting.get(topic, ()) if each.topic_id != note.topic_id
        )
        try:
            settings.change(
                settings.configs,
                self._directories,
                creating=creating,
                deleting={**settings.deleting, topic: (*notes, note)},
            )
        except DiskFullError:
            # A full disk must not prevent a deletion, which frees space. But without the note,
            # partitions in offline directories would return.
            if away:
                raise

    def _marks_of(self, topic: str) -> dict[str, dict[int, PartitionMark]]:
        """Return the marks of a topic's partitions in online directories, by directory."""
        found: dict[str, dict[int, PartitionMark]] = {}
        keys = self._group.known_keys()
        for directory in self._group.online:
            present = [
                each for each in self._registry.of_topic(topic) if each.directory is directory
            ]
            try:
                marks = read_marks(present)
            except LogStorageError as error:
                self._on_error(directory, error)
                raise
            numbered = {each.topic_partition.partition: mark for each, mark in marks.items()}
            found |= dict.fromkeys(directory.keys & keys, numbered)
        return found

    def _remove_settings(self, topic: str) -> None:
        configs = self._settings.configs.without_topic(topic)
        left = self._left_to_delete(topic)
        self._settings.resolve(topic, configs, self._directories, deletions=left, is_gone=True)

    def _unregister(self, partition: ManagedPartition) -> None:
        """Remove a partition in an offline directory; its files are removed when that returns."""
        with partition.lock:
            partition.mark_gone()
            self._opener.release(partition, partition.directory.error)
        self._registry.remove(partition)
        self._faults.remove(partition.topic_partition)

    def _make(
        self, name: TopicPartition, topic_id: uuid.UUID, target: DataDirectory | None = None
    ) -> ManagedPartition:
        """Create a partition in the given directory, else in the first that can store it."""
        failure: LogStorageError | None = None
        directories = self._directories if target is None else (target,)
        if target is not None and not target.is_online:
            raise target.refusal()
        for directory in _by_partition_count(directories, self._registry.counts()):
            try:
                directory.make_partition(name, topic_id)
            except LogStorageError as error:
                failure = error
                self._on_error(directory, error)
                continue
            made = ManagedPartition(name, directory, topic_id)
            self._registry.add_new(made)
            return made
        raise failure or LogOfflineError("no data directory is online")

    def _delete(self, partition: ManagedPartition) -> None:
        """Close a partition's log, rename its directory, and remove that after a delay."""
        name = partition.topic_partition
        delay_ms = self._settings.config_of(name.topic).file_delete_delay_ms
        with partition.lock:
            partition.mark_gone()
            self._opener.release(partition, UnknownTopicOrPartitionError(f"{name} was deleted"))
            try:
                deleted_path = partition.directory.rename_deleted(name)
            except LogStorageError as error:
                partition.mark_present()
                self._on_error(partition.directory, error)
                raise
        self._registry.remove(partition)
        self._faults.remove(name)
        self._deleted_directories.add(deleted_path, delay_ms=delay_ms)
        try:
            partition.directory.checkpoints.remove(name)
        except LogStorageError as error:
            # The partition is deleted; a new one of its name waits for this write.
            logger.warning("the checkpoints still have an entry of %s: %s", name, error)
            self._on_error(partition.directory, error)


def _ensure_usable(partition: ManagedPartition) -> None:
    if not partition.directory.is_online:
        raise partition.directory.refusal()
    if partition.is_duplicate and partition.error is not None:
        raise partition.error


def _ensure_new_topic_name(topic: str, topics: Iterable[str]) -> None:
    """
    Raise unless a topic name is allowed next to the present topics, which may include it.

    Raises:
        InvalidTopicError: the name breaks a rule, is reserved, or collides with another name.
    """
    try:
        ensure_topic_name(topic)
    except ValueError as error:
        raise InvalidTopicError(str(error)) from error
    if topic == CLUSTER_METADATA_TOPIC:
        raise InvalidTopicError(f"topic name {topic} is reserved for the log of a controller")
    for other in topics:
        if other != topic and topics_collide(topic, other):
            raise InvalidTopicError(f"topic {topic!r} collides with {other!r}: '.' counts as '_'")


def _by_partition_count(
    directories: Sequence[DataDirectory], counts: Mapping[DataDirectory, int]
) -> list[DataDirectory]:
    """Return the online directories by ascending number of partitions, else in their order."""
    online = [directory for directory in directories if directory.is_online]
    return sorted(online, key=lambda directory: counts.get(directory, 0))


def _may_have(directory: DataDirectory, name: TopicPartition) -> bool:
    if not directory.is_online:
        return True
    try:
        path = directory.path / partition_directory_name(name)
        return directory.filesystem.stat(path) is not None
    except OSError:
        return True
