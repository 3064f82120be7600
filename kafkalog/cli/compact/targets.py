"""Selection of the logs of a command, and their settings.

A broker keeps the settings of its topics in the log of its controllers; a partition directory does
not have them. The sources, each overrides the one before:

    Kafka's defaults
    --properties FILE            a broker's server.properties
    .kafkalog_topics             in the data directory, if a manager of kafkalog has written it
    --set KEY=VALUE              a topic's settings, for all logs of the command

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError, NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.conversion.data_directory import convertible_partitions, is_data_directory
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.startup_cleanup import live_bases
from kafkalog.manager.overrides import SavedOverrides, read_overrides
from kafkalog.manager_config import CleanerConfig, ManagerConfig
from kafkalog.server_properties import read_server_properties
from kafkalog.topic_configs import TopicConfigs

__all__ = ["LogTarget", "LogTargets", "TargetRequest", "find_targets", "select_compacted"]

_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """
    Arguments of the command line.

    Attributes:
        directory: a partition directory or a data directory.
        partitions: names of partitions of a data directory; all of them if empty.
        properties: a broker's file.
        settings: KEY=VALUE, of topics.
        key_hash: `log.cleaner.hash.algorithm`; as in the settings if None.
    """

    directory: Path
    partitions: Sequence[str] = ()
    properties: Path | None = None
    settings: Sequence[str] = ()
    key_hash: str | None = None


@dataclass(frozen=True, slots=True)
class LogTarget:
    """
    A log.

    Attributes:
        path: its partition directory.
        config: its settings.
    """

    path: Path
    config: LogConfig

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class LogTargets:
    """
    The logs of a command.

    Attributes:
        directory: as it was given.
        is_data_directory: True for a data directory.
        logs: its logs.
        cleaner: settings of compaction.
    """

    directory: Path
    is_data_directory: bool
    logs: tuple[LogTarget, ...]
    cleaner: CleanerConfig


def find_targets(filesystem: FileSystem, request: TargetRequest) -> LogTargets:
    """
    Return the requested logs, whatever their policy.

    Raises:
        ConfigError: a setting is wrong, or a partition does not exist.
        NotALogError: nothing there is a log.
        LogStorageError: the disk refused.
    """
    directory = request.directory.absolute()
    overrides = _settings(request.settings)
    with storage_errors(directory, doing="opening"):
        if filesystem.stat(directory) is None:
            raise NotALogError(f"no such directory: {directory}", path=directory)
        is_whole = is_data_directory(filesystem, directory)
        if is_whole:
            partitions = convertible_partitions(filesystem, directory)
            if missing := [name for name in request.partitions if name not in partitions]:
                raise ConfigError(f"{directory} has no partition {missing[0]}")
            # A partition without any write may have no segment yet.
            names = request.partitions or [
                name for name in partitions if live_bases(filesystem, directory / name)
            ]
            topics = {directory / name: partitions[name].topic for name in names}
            state = directory
        else:
            if request.partitions:
                raise ConfigError(
                    f"not a data directory, so --partition cannot be used: {directory}"
                )
            paths = find_partition_paths(filesystem, directory)
            topics, state = {directory: paths.topic_partition.topic}, paths.state_directory
        saved = read_overrides(filesystem, state) or SavedOverrides()
    manager_config = ManagerConfig()
    if request.properties is not None:
        manager_config = read_server_properties(request.properties, filesystem=filesystem).config
    manager_config = manager_config.with_overrides(saved.defaults)
    configs = TopicConfigs(manager_config.log, saved.topics)
    logs = tuple(
        LogTarget(path, configs.config_of(topic).with_overrides(overrides))
        for path, topic in topics.items()
    )
    cleaner = manager_config.cleaner
    if request.key_hash is not None:
        cleaner = replace(cleaner, hash_algorithm=request.key_hash)
    return LogTargets(directory, is_whole, logs, cleaner)


def select_compacted(targets: LogTargets, request: TargetRequest) -> tuple[LogTarget, ...]:
    """
    Return the logs whose policy includes compact.

    Raises:
        ConfigError: no log has the policy, or a named one does not have it; or a policy given for
            all logs together would compact a whole data directory.
    """
    by_word = _POLICY in _settings(request.settings)
    if targets.is_data_directory and by_word and not request.partitions:
        raise ConfigError(
            f"--set {_POLICY} counts for every log of the command: name the partitions of"
            f" {targets.directory} that are meant with --partition"
        )
    is_named = bool(request.partitions) or not targets.is_data_directory
    for target in targets.logs:
        if is_named and not target.config.is_compacted:
            policy = ",".join(target.config.cleanup_policy)
            raise ConfigError(
                f"{target.path} has {_POLICY}={policy} by the settings given here: compaction would"
                f" remove records that its topic may need. If its topic is compacted, give"
                f" --set {_POLICY}=compact"
            )
    chosen = tuple(target for target in targets.logs if target.config.is_compacted)
    if not chosen:
        raise ConfigError(
            f"no partition of {targets.directory} has compact in its {_POLICY} by the settings"
            f" given here: name partitions with --partition, and give --set {_POLICY}=compact"
        )
    return chosen


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set must be KEY=VALUE, got {pair}")
        settings[key.strip()] = value.strip()
    return settings
