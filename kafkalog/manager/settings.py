"""Settings of topics and changed defaults of a manager, stored in every directory.

Changed defaults override the config of the manager, as a broker's dynamic settings override its
file: a later manager with another config uses it for the unchanged defaults.

A change is on the disk of at least one online directory before it takes effect; see `overrides` for
the files and their crash points.

Thread-safety: reading from any thread, without a lock; changes under the manager's lock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError, LogOfflineError, LogStorageError
from kafkalog.files.names import TOPIC_OVERRIDES
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.overrides import (
    Deletion,
    SavedOverrides,
    read_overrides,
    write_overrides,
)
from kafkalog.manager_config import ManagerConfig, changeable_keys, ensure_used
from kafkalog.topic_configs import TopicConfigs

__all__ = ["TopicSettings"]

logger = logging.getLogger(__name__)


class TopicSettings:
    """
    The settings of a manager and of all its topics.

    Args:
        config: the config of the manager; its `log` has the defaults of topics.
        clock: time of the files.
        on_error: called with a directory and an error of its disk.

    Attributes:
        config: the settings of the manager, with changed defaults.
        configs: the settings of the topics.
    """

    def __init__(
        self,
        config: ManagerConfig,
        clock: Clock,
        on_error: Callable[[DataDirectory, BaseException], object],
    ) -> None:
        self.config = config
        self.configs = TopicConfigs(config.log)
        self._manager_config = config
        self._saved = SavedOverrides()
        # True if no file has the present settings: see `resolve`.
        self._is_unwritten = False
        self._clock = clock
        self._on_error = on_error

    @property
    def changed_defaults(self) -> Mapping[str, str]:
        """The changed defaults: a broker's key -> text."""
        return MappingProxyType(dict(self._saved.defaults))

    @property
    def creating(self) -> Mapping[str, int]:
        """Topics whose creation was begun -> their partition counts."""
        return self._saved.creating

    @property
    def deleting(self) -> Mapping[str, tuple[Deletion, ...]]:
        """Deleted topics of which partitions may be left."""
        return self._saved.deleting

    @property
    def ids(self) -> Mapping[str, str]:
        """The stored topic ids, as text."""
        return self._saved.ids

    @property
    def known_directories(self) -> Mapping[str, str]:
        """Directory id, as text -> path, of all directories that were ever in use."""
        return self._saved.directories

    def config_of(self, topic: str) -> LogConfig:
        """Return the config of a topic."""
        return self.configs.config_of(topic)

    def load(self, directories: Iterable[DataDirectory]) -> None:
        """
        Read the files of directories and use the latest one; `save` updates the older ones.

        Raises:
            CorruptStateError: the file of a directory is damaged.
            ConfigError: a key in the file is unknown, or its value is wrong; the file is named.
            LogStorageError: the file cannot be read.
        """
        latest, path = self._saved, None
        for directory in directories:
            found = read_overrides(directory.filesystem, directory.path)
            if found is not None and found.generation > latest.generation:
                latest, path = found, directory.path / TOPIC_OVERRIDES
        if path is None:
            return
        try:
            config = self._manager_config.with_overrides(latest.defaults)
            self.configs = TopicConfigs(config.log, latest.topics)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}", path=path) from error
        self.config, self._saved = config, latest

    def save(self, directories: Iterable[DataDirectory]) -> None:
        """Write the file of every directory where it is older or missing; failures are logged."""
        for directory in directories:
            if not directory.is_online:
                continue
            try:
                found = read_overrides(directory.filesystem, directory.path)
                if (found or SavedOverrides()).generation < self._saved.generation:
                    self._write(directory, self._saved)
            except LogStorageError as error:
                self._on_failure(directory, error)

    def change(
        self,
        configs: TopicConfigs,
        directories: Iterable[DataDirectory],
        *,
        creating: Mapping[str, int] | None = None,
        deleting: Mapping[str, tuple[Deletion, ...]] | None = None,
        ids: Mapping[str, str] | None = None,
    ) -> None:
        """
        Change settings, once one of the directories has them on its disk.

        Args:
            configs: the settings of all topics.
            directories: directories that store them.
            creating, deleting: topics that are being created or deleted; unchanged if None.
            ids: topic ids, as text; unchanged if None.

        Raises:
            LogStorageError: no directory could store them; nothing was changed.
        """
        saved = self._saved_with(configs, creating=creating, deleting=deleting, ids=ids)
        if saved != self._saved or self._is_unwritten:
            self._keep(saved, directories)
            self.configs = configs

    def resolve(
        self,
        topic: str,
        configs: TopicConfigs,
        directories: Iterable[DataDirectory],
        *,
        deletions: tuple[Deletion, ...] = (),
        is_gone: bool = False,
    ) -> None:
        """
        Record that a topic was created or deleted, and use `configs`.

        If no directory can store that now, it is written with the next change; until then a restart
        repeats the check for unfinished work.

        Args:
            topic: its name.
            configs: the settings of all topics.
            directories: directories that store them.
            deletions: unfinished deletions of topics of this name.
            is_gone: whether it was deleted, so that its id is removed.
        """
        creating = {name: count for name, count in self._saved.creating.items() if name != topic}
        deleting = {name: each for name, each in self._saved.deleting.items() if name != topic}
        if deletions:
            deleting[topic] = deletions
        ids = {name: each for name, each in self._saved.ids.items() if name != topic or not is_gone}
        saved = self._saved_with(configs, creating=creating, deleting=deleting, ids=ids)
        if saved == self._saved:
            return
        self.configs = configs
        try:
            self._keep(saved, directories)
        except LogStorageError:
            self._saved, self._is_unwritten = self._next(saved), True

    def keep_ids(self, ids: Mapping[str, str], directories: Sequence[DataDirectory]) -> None:
        """
        Store topic ids and directories if there are several directories; failures are logged.

        With one directory, they are stored with the next change: no directory can be offline.
        """
        directory_ids = set(self._saved.directories)
        fresh = (
            {each.directory_id for each in directories if each.is_online} - directory_ids - {None}
        )
        merged = {**self._saved.ids, **ids}
        if len(directories) + len(directory_ids - {each.directory_id for each in directories}) < 2:
            self._saved = replace(self._saved, ids=merged)
        elif fresh or merged != self._saved.ids:
            with contextlib.suppress(LogStorageError):
                self._keep(replace(self._saved, ids=merged), directories)

    def catch_up(self, directories: Iterable[DataDirectory]) -> None:
        """
        Write settings that no file has yet.

        Raises:
            LogStorageError: no directory could store them.
        """
        if self._is_unwritten:
            self._keep(self._saved, directories)

    def change_defaults(
        self, changes: Mapping[str, str | None], directories: Iterable[DataDirectory]
    ) -> None:
        """
        Change defaults, once one of the directories has them on its disk.

        Args:
            changes: a broker's key -> text, or None for the value of the manager's config.
            directories: directories that store them.

        Raises:
            ConfigError: a key is unknown or is read only when a manager is made, or a value is
                wrong; nothing was changed.
            LogStorageError: as `change`.
        """
        defaults = dict(self._saved.defaults)
        for key, text in changes.items():
            ensure_used(key)
            if key not in changeable_keys():
                raise ConfigError(
                    f"{key} is read only when a manager is made; keys that can be changed later:"
                    f" {', '.join(sorted(changeable_keys()))}"
                )
            defaults.pop(key, None)
            if text is not None:
                defaults[key] = text
        if defaults == self._saved.defaults:
            return
        config = self._manager_config.with_overrides(defaults)
        configs = self.configs.with_defaults(config.log)
        self._keep(replace(self._saved, defaults=defaults), directories)
        self.config, self.configs = config, configs

    def _saved_with(
        self,
        configs: TopicConfigs,
        *,
        creating: Mapping[str, int] | None,
        deleting: Mapping[str, tuple[Deletion, ...]] | None,
        ids: Mapping[str, str] | None,
    ) -> SavedOverrides:
        return replace(
            self._saved,
            topics={topic: dict(configs.overrides_of(topic)) for topic in configs.topics},
            creating=self._saved.creating if creating is None else creating,
            deleting=self._saved.deleting if deleting is None else deleting,
            ids=self._saved.ids if ids is None else ids,
        )

    def _next(self, content: SavedOverrides) -> SavedOverrides:
        return self._saved.followed_by(content, now_ms=self._clock.now_ms())

    def _keep(self, content: SavedOverrides, directories: Iterable[DataDirectory]) -> None:
        """Write content to every directory; LogStorageError if no directory could store it."""
        directories = list(directories)
        paths = dict(content.directories)
        for directory in directories:
            if directory.directory_id is not None:
                paths[directory.directory_id] = str(directory.path)
        saved = self._next(replace(content, directories=paths))
        written, failure = 0, None
        for directory in directories:
            if not directory.is_online:
                continue
            try:
                self._write(directory, saved)
                written += 1
            except LogStorageError as error:
                failure = error
                self._on_failure(directory, error)
        if not written:
            raise failure or LogOfflineError("no data directory is online")
        self._saved, self._is_unwritten = saved, False

    def with_changes(self, topic: str, changes: Mapping[str, str | None]) -> TopicConfigs:
        """Return the configs with changed settings of a topic; ConfigError if they are wrong."""
        return self.configs.with_topic(topic, changes)

    def _write(self, directory: DataDirectory, saved: SavedOverrides) -> None:
        directory.ensure_there()
        write_overrides(directory.filesystem, directory.path, saved, now_ms=self._clock.now_ms())

    def _on_failure(self, directory: DataDirectory, error: LogStorageError) -> None:
        logger.warning("settings of topics were not written to %s: %s", directory.path, error)
        self._on_error(directory, error)
