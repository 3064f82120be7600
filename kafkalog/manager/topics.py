"""Topics and partitions of a manager: created, deleted, told other settings.

Order of making a topic: what it says otherwise is on the disk first, then its partitions. Of
deleting: the partitions, then what it said. Where there are several partitions it is noted before
that this is begun, and afterwards that it has ended. Settings of a topic without partitions count
for nobody, and go with the next topic of that name.

Crash points, beside those of one partition (`creating`) and of a note (`overrides`): before the
note nothing was begun. After it the next start makes the partitions that are missing, unless there
is none, or deletes those that are there. A topic that was made may have records already, so nothing
of one is undone. A directory that is offline then may have the partition that seems to be missing:
the end waits for it. On a full disk there is no note of a deletion, and a crash may leave some of
the partitions; the call can be made again.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

from kafkalog.errors import (
    DiskFullError,
    LogOfflineError,
    LogStorageError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalog.manager.creating import (
    make_partition,
    rename_doomed,
    topic_id_of,
    undo_partition,
)
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.doomed import DoomedDirectories
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.placement import by_partition_count, ensure_new_topic_name
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import Ledger
from kafkalog.manager.twice import look_again
from kafkalog.model import TopicPartition
from kafkalog.settings import ConfigChange

__all__ = ["TopicAdministration"]

logger = logging.getLogger(__name__)


class TopicAdministration:
    """
    Changes which partitions there are, and what their topics say.

    Args:
        directories: all data directories.
        registry: the partitions.
        settings: what topics say.
        opener: lets logs go.
        doomed: removes directories later.
        ledger: what does not go well.
        on_error: called with a directory and an error that its disk answered with.
    """

    def __init__(
        self,
        directories: Sequence[DataDirectory],
        registry: PartitionRegistry,
        settings: TopicSettings,
        opener: LogOpener,
        doomed: DoomedDirectories,
        ledger: Ledger,
        on_error: Callable[[DataDirectory, BaseException], object],
    ) -> None:
        self._directories = directories
        self._registry = registry
        self._settings = settings
        self._opener = opener
        self._doomed = doomed
        self._ledger = ledger
        self._on_error = on_error

    def create_topic(
        self, topic: str, partition_count: int, config: Mapping[str, str] | None
    ) -> None:
        """See `LogManager.create_topic`."""
        if partition_count < 1:
            raise ValueError(f"a topic of {partition_count} partitions")
        ensure_new_topic_name(topic, self._registry.topic_names())
        if self._registry.of_topic(topic):
            raise TopicExistsError(f"topic {topic} exists")
        self._ensure_not_going(topic)
        # What an earlier topic of this name said does not count.
        configs = self._settings.configs.without_topic(topic)
        if config:
            configs = configs.with_topic(topic, dict(config))
        creating = {topic: partition_count} if partition_count > 1 else {}
        self._settings.change(
            configs, self._directories, creating=dict(self._settings.creating) | creating
        )
        topic_id = topic_id_of([])
        made: list[ManagedPartition] = []
        try:
            for number in range(partition_count):
                partition = self._make(TopicPartition(topic, number), topic_id)
                made.append(partition)
        except BaseException:
            for partition in made:
                self._registry.remove(partition)
                undo_partition(partition)
            self._forget_settings(topic)
            raise
        self._settings.settle(topic, self._settings.configs, self._directories)

    def create_partition(self, name: TopicPartition) -> ManagedPartition:
        """See `LogManager.create_partition`."""
        ensure_new_topic_name(name.topic, self._registry.topic_names())
        if name in self._registry:
            raise TopicExistsError(f"partition {name} exists")
        self._ensure_not_going(name.topic)
        return self._make(name, topic_id_of(self._registry.of_topic(name.topic)))

    def delete_topic(self, topic: str) -> None:
        """See `LogManager.delete_topic`."""
        partitions = self._partitions_of(topic)
        for partition in partitions:
            _ensure_usable(partition)
        if len(partitions) > 1:
            self._note_deletion(topic)
        for partition in partitions:
            self._delete(partition)
        self._forget_settings(topic)

    def delete_partition(self, name: TopicPartition) -> None:
        """See `LogManager.delete_partition`."""
        found = self._seen_again(self._registry.get(name))
        _ensure_usable(found)
        # Or the next start could think that its topic is still being made.
        with contextlib.suppress(DiskFullError):
            self._settings.catch_up(self._directories)
        self._delete(found)
        if not self._registry.of_topic(name.topic):
            self._forget_settings(name.topic)

    def reconfigure(self, topic: str, changes: Mapping[str, str | None]) -> ConfigChange:
        """See `LogManager.reconfigure`."""
        partitions = self._partitions_of(topic)
        before = self._settings.config_of(topic)
        self._settings.change(self._settings.changed(topic, changes), self._directories)
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
                    log.forget_producers_after(after.producer_id_expiration_ms)
        return before.change_to(after)

    def _partitions_of(self, topic: str) -> list[ManagedPartition]:
        found = self._registry.of_topic(topic)
        if not found:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
        return [self._seen_again(each) for each in found]

    def _seen_again(self, partition: ManagedPartition) -> ManagedPartition:
        """Return a partition, or the copy of it that is left of two."""
        return look_again(partition, self._registry, self._ledger)

    def touched_by(self, directory: DataDirectory) -> list[ManagedPartition]:
        """Return the partitions that may go when a directory comes back, with `finish`."""
        deleted = [
            each for topic in self._settings.deleting for each in self._registry.of_topic(topic)
        ]
        return self._registry.in_directory(directory) + deleted

    def finish(self) -> list[TopicPartition]:
        """
        Bring to an end what was begun before a crash, when the directories have been taken up.

        Returns the partitions that were deleted.
        """
        deleted: list[TopicPartition] = []
        if not all(directory.is_online for directory in self._directories):
            return deleted
        for topic, count in list(self._settings.creating.items()):
            with self._finishing(topic):
                present = self._registry.of_topic(topic)
                numbers = {each.topic_partition.partition for each in present}
                for number in sorted(set(range(count)) - numbers) if present else ():
                    self._make(TopicPartition(topic, number), topic_id_of(present))
                self._settings.settle(topic, self._settings.configs, self._directories)
        for topic in sorted(self._settings.deleting):
            with self._finishing(topic):
                for partition in self._registry.of_topic(topic):
                    self._delete(partition)
                    deleted.append(partition.topic_partition)
                self._forget_settings(topic)
        return deleted

    @contextlib.contextmanager
    def _finishing(self, topic: str) -> Iterator[None]:
        """Around what is tried once more after the next start, or `bring_online`."""
        try:
            yield
        except LogStorageError as error:
            logger.warning("topic %s was not made, or deleted, to the end: %s", topic, error)

    def _ensure_not_going(self, topic: str) -> None:
        """Raise TopicExistsError while partitions of a deleted topic may come back online."""
        if topic in self._settings.deleting:
            raise TopicExistsError(
                f"topic {topic} is being deleted: a part of it is in a directory that is offline,"
                " or refused to go; delete it again"
            )

    def _note_deletion(self, topic: str) -> None:
        settings = self._settings
        creating = {name: count for name, count in settings.creating.items() if name != topic}
        # A full disk must not keep anybody from making room on it.
        with contextlib.suppress(DiskFullError):
            settings.change(
                settings.configs,
                self._directories,
                creating=creating,
                deleting=settings.deleting | {topic},
            )

    def _forget_settings(self, topic: str) -> None:
        self._settings.settle(topic, self._settings.configs.without_topic(topic), self._directories)

    def _make(self, name: TopicPartition, topic_id: uuid.UUID) -> ManagedPartition:
        """Make a partition in the first directory that can take it."""
        failure: LogStorageError | None = None
        for directory in by_partition_count(self._directories, self._registry.counts()):
            try:
                make_partition(directory, name, topic_id)
            except LogStorageError as error:
                failure = error
                self._on_error(directory, error)
                continue
            made = ManagedPartition(name, directory)
            self._registry.add_new(made)
            return made
        raise failure or LogOfflineError("no data directory is online")

    def _delete(self, partition: ManagedPartition) -> None:
        """Let a partition's log go, rename its directory, and remove that later."""
        name = partition.topic_partition
        delay_ms = self._settings.config_of(name.topic).file_delete_delay_ms
        with partition.lock:
            partition.is_gone = True
            self._opener.let_go(partition, UnknownTopicOrPartitionError(f"{name} was deleted"))
            try:
                doomed = rename_doomed(partition)
            except LogStorageError as error:
                partition.is_gone = False
                self._on_error(partition.directory, error)
                raise
        self._registry.remove(partition)
        self._ledger.forget(name)
        self._doomed.add(doomed, delay_ms=delay_ms)
        try:
            partition.directory.checkpoints.forget(name)
        except LogStorageError as error:
            # It is gone all the same, and the next one of its name waits for this.
            logger.warning("the checkpoints still speak of %s: %s", name, error)
            self._on_error(partition.directory, error)


def _ensure_usable(partition: ManagedPartition) -> None:
    if not partition.directory.is_online:
        raise partition.directory.refusal()
    if partition.is_blocked and partition.error is not None:
        raise partition.error
