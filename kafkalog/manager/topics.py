"""Topics and partitions of a manager: created, deleted, told other settings.

Order of making a topic: what it says otherwise is on the disk first, then its partitions. Of
deleting: the partitions, then what it said. What a crash leaves between is told in `creating` and
`overrides`; settings of a topic without partitions count for nobody, and go with the next topic of
that name.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence

from kafkalog.errors import (
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
        # What an earlier topic of this name said does not count.
        configs = self._settings.configs.without_topic(topic)
        if config:
            configs = configs.with_topic(topic, dict(config))
        self._settings.change(configs, self._directories)
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
            with contextlib.suppress(LogStorageError):
                self._forget_settings(topic)
            raise

    def create_partition(self, name: TopicPartition) -> ManagedPartition:
        """See `LogManager.create_partition`."""
        ensure_new_topic_name(name.topic, self._registry.topic_names())
        if name in self._registry:
            raise TopicExistsError(f"partition {name} exists")
        return self._make(name, topic_id_of(self._registry.of_topic(name.topic)))

    def delete_topic(self, topic: str) -> None:
        """See `LogManager.delete_topic`."""
        partitions = self._partitions_of(topic)
        for partition in partitions:
            _ensure_usable(partition)
        for partition in partitions:
            self._delete(partition)
        self._forget_settings(topic)

    def delete_partition(self, name: TopicPartition) -> None:
        """See `LogManager.delete_partition`."""
        found = self._seen_again(self._registry.get(name))
        _ensure_usable(found)
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

    def _forget_settings(self, topic: str) -> None:
        self._settings.change(self._settings.configs.without_topic(topic), self._directories)

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


def _ensure_usable(partition: ManagedPartition) -> None:
    if not partition.directory.is_online:
        raise partition.directory.refusal()
    if partition.is_blocked and partition.error is not None:
        raise partition.error
