"""What topics say, and the defaults, while a manager runs: kept in every directory.

Changed defaults lie over those that the manager was given, as a broker's dynamic settings lie over
its file: a manager that is given other ones later has those where nothing was changed.

A change is on the disk of at least one online directory before it counts; see `overrides` for the
files, and what a crash leaves.

Thread-safety: reading from any thread, without a lock; changes under the manager's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError, LogOfflineError, LogStorageError
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk
from kafkalog.manager.overrides import SavedOverrides, read_overrides, write_overrides
from kafkalog.manager_config import ManagerConfig, changeable_keys, ensure_used
from kafkalog.topic_configs import TopicConfigs

__all__ = ["TopicSettings"]

logger = logging.getLogger(__name__)


class TopicSettings:
    """
    The settings of a manager and of all its topics.

    Args:
        given: what the manager was given; its `log` counts where nobody says anything.
        clock: dates the files.
        on_failure: called with a directory whose disk has failed, and the error.

    Attributes:
        config: the settings of the manager, with the defaults that were changed.
        configs: those of the topics.
    """

    def __init__(
        self,
        given: ManagerConfig,
        clock: Clock,
        on_failure: Callable[[DataDirectory, BaseException], object],
    ) -> None:
        self.config = given
        self.configs = TopicConfigs(given.log)
        self._given = given
        self._saved = SavedOverrides()
        self._clock = clock
        self._on_failure = on_failure

    @property
    def changed_defaults(self) -> Mapping[str, str]:
        """The defaults that were changed: a broker's key -> text."""
        return MappingProxyType(dict(self._saved.defaults))

    def config_of(self, topic: str) -> LogConfig:
        """Return the config of a topic."""
        return self.configs.config_of(topic)

    def load(self, directories: Iterable[DataDirectory]) -> None:
        """
        Take what the directories say, the latest of it; those that say less get it with `save`.

        Raises:
            CorruptStateError: the file of a directory is damaged.
            ConfigError: a key of it is unknown, or its value wrong.
            LogStorageError: it cannot be read.
        """
        latest = self._saved
        for directory in directories:
            found = read_overrides(directory.filesystem, directory.path)
            if found is not None and found.generation > latest.generation:
                latest = found
        if latest is not self._saved:
            config = self._given.with_overrides(latest.defaults)
            self.configs = TopicConfigs(config.log, latest.topics)
            self.config, self._saved = config, latest

    def save(self, directories: Iterable[DataDirectory]) -> None:
        """Write the file of every directory that has an older one, or none; failures are logged."""
        for directory in directories:
            if not directory.is_online:
                continue
            try:
                found = read_overrides(directory.filesystem, directory.path)
                if (found or SavedOverrides()).generation < self._saved.generation:
                    self._write(directory, self._saved)
            except LogStorageError as error:
                self._failed(directory, error)

    def change(self, configs: TopicConfigs, directories: Iterable[DataDirectory]) -> None:
        """
        Let other settings count, once one of the directories has them on its disk.

        Raises:
            LogStorageError: none of them could take them; nothing counts then.
        """
        if configs != self.configs:
            self._keep(configs, self._saved.defaults, directories)

    def change_defaults(
        self, changes: Mapping[str, str | None], directories: Iterable[DataDirectory]
    ) -> None:
        """
        Let other defaults count, once one of the directories has them on its disk.

        Args:
            changes: a broker's key -> text, or None for what the manager was given.
            directories: where they are kept.

        Raises:
            ConfigError: a key is unknown or needs the manager to be opened again, or a value is
                wrong; nothing counts then.
            LogStorageError: as `change`.
        """
        defaults = dict(self._saved.defaults)
        for key, text in changes.items():
            ensure_used(key)
            if key not in changeable_keys():
                raise ConfigError(
                    f"{key} is read when a manager is made; what may be changed later is"
                    f" {', '.join(sorted(changeable_keys()))}"
                )
            defaults.pop(key, None)
            if text is not None:
                defaults[key] = text
        if defaults == self._saved.defaults:
            return
        config = self._given.with_overrides(defaults)
        self._keep(self.configs.with_defaults(config.log), defaults, directories)
        self.config = config

    def _keep(
        self,
        configs: TopicConfigs,
        defaults: Mapping[str, str],
        directories: Iterable[DataDirectory],
    ) -> None:
        said = {topic: configs.overrides_of(topic) for topic in configs.topics}
        saved = self._saved.followed_by(said, defaults, now_ms=self._clock.now_ms())
        written, failure = 0, None
        for directory in directories:
            if not directory.is_online:
                continue
            try:
                self._write(directory, saved)
                written += 1
            except LogStorageError as error:
                failure = error
                self._failed(directory, error)
        if not written:
            raise failure or LogOfflineError("no data directory is online")
        self.configs, self._saved = configs, saved

    def changed(self, topic: str, changes: Mapping[str, str | None]) -> TopicConfigs:
        """Return the configs with other settings of a topic; ConfigError where they are wrong."""
        return self.configs.with_topic(topic, changes)

    def _write(self, directory: DataDirectory, saved: SavedOverrides) -> None:
        write_overrides(directory.filesystem, directory.path, saved, now_ms=self._clock.now_ms())

    def _failed(self, directory: DataDirectory, error: LogStorageError) -> None:
        logger.warning("settings of topics were not written to %s: %s", directory.path, error)
        if is_failure_of_disk(error):
            self._on_failure(directory, error)
