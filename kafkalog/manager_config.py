"""Settings of a log manager: those of a broker that an embedded manager uses, and of compaction.

Names, types, defaults and ranges are Kafka 4.1's broker settings; every difference is listed in
`docs/configuration.md`. `ManagerConfig.log` has the defaults of all topics, for which a broker has
separate names (`kafkalog.broker_keys`).

Thread-safety: a config is immutable and may be shared. This module never reads files or the
environment.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

from kafkalog.broker_keys import LOG_KEYS, log_properties, reason_without_use, resolve
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError
from kafkalog.settings import (
    LONG_MAX,
    ConfigChange,
    change_between,
    check_config,
    names_unknown_fields,
    replace_fields,
    setting,
    settings_of,
    to_properties,
    unknown_name,
)

__all__ = [
    "BACKGROUND",
    "CLEANER",
    "DIRECTORIES",
    "HEALTH",
    "LOG_DIR",
    "MANAGER_CLASSES",
    "PRODUCERS",
    "CleanerConfig",
    "HealthConfig",
    "ManagerConfig",
    "changeable_keys",
    "ensure_used",
    "used_keys",
]

DIRECTORIES: Final = "Data directories"
BACKGROUND: Final = "Background work"
PRODUCERS: Final = "Producers and transactions"
CLEANER: Final = "Compaction"
HEALTH: Final = "Health"

_CLEANER_PREFIX: Final = "log.cleaner."
_HEALTH_PREFIX: Final = "kafkalog.health."
# Smallest size of the key map of each cleaner thread.
_DEDUPE_BYTES_MIN: Final = 1 << 20
# The older name, for a single directory; counts if `log.dirs` is not set.
LOG_DIR: Final = "log.dir"


@names_unknown_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """
    Settings of compaction, for all logs of a manager together.

    Raises:
        ConfigError: a value is not of its key's type or out of its range.
    """

    enable: bool = setting(
        "log.cleaner.enable", "boolean", True,
        "Compact topics with `compact` in their policy. Without it they only grow.",
        group=CLEANER, effect="reopening", prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    threads: int = setting(
        "log.cleaner.threads", "int", 1,
        "Number of logs that are compacted at the same time.",
        group=CLEANER, lower=0, unit="threads", prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", "double", sys.float_info.max,
        "Bytes that compaction may read and write in a second, over all threads.",
        group=CLEANER, unit="bytes", prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", "long", 128 << 20,
        "Memory for the maps of keys, over all threads; 24 bytes a key. Each thread must have "
        "more than 1 MiB.",
        group=CLEANER, unit="bytes", prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size", "int", 512 << 10,
        "Memory for reading and writing, over all threads. Leave it alone.",
        group=CLEANER, lower=0, unit="bytes", prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", "double", 0.9,
        "Share of a map of keys that may be used: a fuller map has more keys and finds them "
        "slower. The name is Kafka's; the setting does not concern buffers of reading and "
        "writing.",
        group=CLEANER, prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    hash_algorithm: str = setting(
        "log.cleaner.hash.algorithm", "string", "siphash",
        "Comparison of keys. `siphash` uses a hash of 128 bits with a secret that is drawn for "
        "each cleaning, so that equal hashes cannot be chosen. `exact` also reads the keys of one "
        "hash from the log and compares them. `md5` uses MD5 like a broker, so that chosen keys "
        "may count as equal.",
        group=CLEANER, choices=("md5", "siphash", "exact"), prefix=_CLEANER_PREFIX,
    )  # fmt: skip
    backoff_ms: int = setting(
        "log.cleaner.backoff.ms", "long", 15_000,
        "Pause of a thread after a round without work.",
        group=CLEANER, lower=0, unit="ms", prefix=_CLEANER_PREFIX,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_config(self)
        if self.threads and self.dedupe_buffer_size // self.threads <= _DEDUPE_BYTES_MIN:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size = {self.dedupe_buffer_size}: must be more than "
                f"{_DEDUPE_BYTES_MIN} for each of log.cleaner.threads = {self.threads}"
            )

    def replace(self, **changes: Any) -> CleanerConfig:
        """Return a config with some fields changed; ConfigError as the constructor."""
        return replace_fields(self, changes)


@names_unknown_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """
    Thresholds of `LogManager.health`; 0 switches a rule off.

    Raises:
        ConfigError: a value is not of its key's type or out of its range.
    """

    sync_ms: int = setting(
        "kafkalog.health.sync.ms", "long", 1_000,
        "A disk is slow if one in ten of the last 100 syncs of the last five minutes took longer, "
        "or a sync that has not ended.",
        group=HEALTH, lower=0, unit="ms", prefix=_HEALTH_PREFIX,
    )  # fmt: skip
    free_bytes: int = setting(
        "kafkalog.health.free.bytes", "long", 1 << 30,
        "A disk is full if less is free; on a smaller file system, if less than a tenth of it is.",
        group=HEALTH, lower=0, unit="bytes", prefix=_HEALTH_PREFIX,
    )  # fmt: skip
    cleaner_delay_ms: int = setting(
        "kafkalog.health.cleaner.delay.ms", "long", 3_600_000,
        "Compaction is stuck if no log was selected for so long, or if a log is late by more after "
        "`max.compaction.lag.ms`. It should be above the time of the longest cleaning.",
        group=HEALTH, lower=0, unit="ms", prefix=_HEALTH_PREFIX,
    )  # fmt: skip
    retention_delay_ms: int = setting(
        "kafkalog.health.retention.delay.ms", "long", 3_600_000,
        "Retention is overdue if a segment of an open log is still there so long after "
        "`retention.ms`, or if the task is late by more. It should be above "
        "`log.retention.check.interval.ms`.",
        group=HEALTH, lower=0, unit="ms", prefix=_HEALTH_PREFIX,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_config(self)

    def replace(self, **changes: Any) -> HealthConfig:
        """Return a config with some fields changed; ConfigError as the constructor."""
        return replace_fields(self, changes)


@names_unknown_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """
    Settings of a log manager.

    >>> config = ManagerConfig.from_properties({"log.retention.hours": "24"})
    >>> config.log.retention_ms
    86400000

    Attributes:
        log: defaults of all topics.
        cleaner: settings of compaction.
        health: thresholds of `LogManager.health`.

    Raises:
        ConfigError: a value is not of its key's type or out of its range, or two keys contradict
            each other; the message names the key, the value and the rule.
    """

    log_dirs: tuple[str, ...] = setting(
        "log.dirs", "list", (),
        "Data directories. A manager with directories as an argument does not need it.",
        group=DIRECTORIES, effect="reopening",
    )  # fmt: skip
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", "int", 2,
        "Number of logs of one directory that are recovered, or closed, at the same time.",
        group=DIRECTORIES, lower=1, unit="threads",
    )  # fmt: skip
    background_threads: int = setting(
        "background.threads", "int", 10,
        "Number of background tasks that may run at the same time. Threads start when they are "
        "needed. A manager with a scheduler as an argument does not need it.",
        group=BACKGROUND, lower=1, unit="threads",
    )  # fmt: skip
    commit_threads: int = setting(
        "kafkalog.commit.threads", "int", 16,
        "Number of logs of one directory that are synced at the same time, where several are "
        "flushed together. Threads start when they are needed. A manager with a scheduler of the "
        "caller's own class as an argument syncs one log after another.",
        group=BACKGROUND, lower=1, unit="threads", effect="reopening",
    )  # fmt: skip
    commit_syncfs_logs: int = setting(
        "kafkalog.commit.syncfs.logs", "int", 0,
        "Number of logs of one directory from which a flush of several, or a checkpoint of its "
        "commit journal, is one sync of the whole file system (`syncfs`). 0 means never; 100 is a "
        "good value for a directory that has a file system to itself, and no logs with large "
        "appends that are not flushed: the call writes everything that other programs and other "
        "logs have on the file system, too. If it fails, all logs of the flush go offline, since "
        "the system does not name a file. Used on ext4 with Linux 6.12 or later, where `syncfs` "
        "reports every error, and if `kafkalog.commit.threads` is above 1.",
        group=BACKGROUND, lower=0, unit="logs", effect="reopening",
    )  # fmt: skip
    journal_enable: bool = setting(
        "kafkalog.journal.enable", "boolean", False,
        "Let a flush of several logs, and the durable producers, write what they commit to one "
        "commit journal of the data directory and sync that alone; the logs are synced later. "
        "After a power cut the directory must be opened with kafkalog before a broker uses it: "
        "its recovery applies the journal. A close in order removes the journal.",
        group=BACKGROUND, effect="reopening",
    )  # fmt: skip
    journal_bytes: int = setting(
        "kafkalog.journal.bytes", "long", 64 << 20,
        "Size of the commit journal of a data directory, in two files that are written ahead with "
        "zeros. Commits that do not fit sync the logs instead.",
        group=BACKGROUND, lower=1 << 18, upper=1 << 32, unit="bytes", effect="reopening",
    )  # fmt: skip
    journal_log_max_bytes: int = setting(
        "kafkalog.journal.log.max.bytes", "int", 1 << 20,
        "A log with more to commit is synced itself, in the same commit.",
        group=BACKGROUND, lower=0, unit="bytes", effect="reopening",
    )  # fmt: skip
    journal_linger_ms: int = setting(
        "kafkalog.journal.linger.ms", "int", 0,
        "With a commit journal: longest time after which the records of `send_many` of a durable "
        "producer, which are acknowledged when the journal has them, are appended to their logs "
        "and can be read. They are then appended in larger batches, without producer ids; 1,000 "
        "partitions take a fraction of the time. 0: they are appended at once.",
        group=BACKGROUND, lower=0, upper=60_000, unit="ms", effect="reopening",
    )  # fmt: skip
    journal_checkpoint_interval_ms: int = setting(
        "kafkalog.journal.checkpoint.interval.ms", "long", 10_000,
        "Time between two syncs of the logs whose commits are in the journal alone. They are also "
        "synced when half of the journal is full.",
        group=BACKGROUND, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", "long", 30_000,
        "Time from the start to the first run of each periodic task.",
        group=BACKGROUND, lower=0, unit="ms", effect="reopening",
    )  # fmt: skip
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", "long", 300_000,
        "Time between two checks for segments to delete.",
        group=BACKGROUND, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", "long", LONG_MAX,
        "Time between two looks for logs whose `flush.ms` is over; also the default of `flush.ms` "
        f"where `log.flush.interval.ms` is not given. {LONG_MAX} means never.",
        group=BACKGROUND, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", "int", 60_000,
        "Time between two writes of the recovery points: recovery begins there after a crash.",
        group=BACKGROUND, lower=0, unit="ms", effect="reopening",
    )  # fmt: skip
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", "int", 60_000,
        "Time between two writes of the log start offsets.",
        group=BACKGROUND, lower=0, unit="ms", effect="reopening",
    )  # fmt: skip
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", "long", 5_000,
        "Time between two writes of the high watermarks.",
        group=BACKGROUND, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", "int", 86_400_000,
        "Time without an append after which the state of a producer is removed, and it may start "
        "again.",
        group=PRODUCERS, lower=1, unit="ms",
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", "int", 600_000,
        "Time between two checks for such producers.",
        group=PRODUCERS, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", "int", 900_000,
        "Age at which an open transaction counts as hanging (five minutes are added).",
        group=PRODUCERS, lower=1, unit="ms", effect="reopening",
    )  # fmt: skip
    log: LogConfig = field(default_factory=LogConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", "int", 50,
        "Partitions with which `__consumer_offsets` is created. A broker that takes the "
        "directories over must have the same number, because it finds a group by it. An existing "
        "topic keeps its number. The exception is a topic with a single partition that kafkalog "
        "made: its groups move.",
        group=PRODUCERS, lower=1, unit="partitions", effect="reopening",
    )  # fmt: skip
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", "int", 50,
        "The same for `__transaction_state` and transactional ids.",
        group=PRODUCERS, lower=1, unit="partitions", effect="reopening",
    )  # fmt: skip

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_dirs", _as_texts(self.log_dirs))
        check_config(self)
        parts = (("log", LogConfig), ("cleaner", CleanerConfig), ("health", HealthConfig))
        for name, kind in parts:
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name} must be a {kind.__name__}")
        if self.log.retention_ms == 0:
            raise ConfigError("log.retention.ms = 0: must be -1 (keep for ever) or at least 1")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ManagerConfig:
        """
        Return the config that a broker's keys and their texts describe.

        Every key must have a meaning here; `kafkalog.read_server_properties` accepts the file of a
        real broker, and lists the lines that have none.

        Raises:
            ConfigError: a key is unknown (the message has the nearest known one) or has no
                meaning here, or a value is wrong.
        """
        return cls().with_overrides(properties)

    def with_overrides(self, properties: Mapping[str, str]) -> ManagerConfig:
        """
        Return a config with other values of some of a broker's keys.

        Raises:
            ConfigError: as `from_properties`.
        """
        for key in properties:
            ensure_used(key)
        arguments = _own_arguments(ManagerConfig, properties)
        if LOG_DIR in properties:
            directories = settings_of(ManagerConfig)["log_dirs"].parse(properties[LOG_DIR])
            arguments.setdefault("log_dirs", directories)
        return self.replace(
            **arguments,
            cleaner=self.cleaner.replace(**_own_arguments(CleanerConfig, properties)),
            health=self.health.replace(**_own_arguments(HealthConfig, properties)),
            log=self.log.replace(**resolve(properties).arguments),
        )

    def to_properties(self) -> dict[str, str]:
        """Return every setting as a broker's key and text; `from_properties` takes it back."""
        own = to_properties(self) | to_properties(self.cleaner) | to_properties(self.health)
        return own | log_properties(self.log)

    def replace(self, **changes: Any) -> ManagerConfig:
        """
        Return a config with some fields changed.

        Raises:
            ConfigError: a field is unknown, or a value is wrong.
        """
        return replace_fields(self, changes)

    def change_to(self, other: ManagerConfig) -> ConfigChange:
        """Return the differences of `other`, and when they take effect for an open manager."""
        return (
            change_between(self, other)
            + change_between(self.cleaner, other.cleaner)
            + change_between(self.health, other.health)
            + self.log.change_to(other.log)
        )


def _as_texts(paths: object) -> object:
    """Return paths as texts, a single path as a tuple; other values are left to the check."""
    if isinstance(paths, str | PathLike):
        paths = (paths,)
    if not isinstance(paths, Iterable) or isinstance(paths, bytes):
        return paths
    texts = [os.fspath(each) if isinstance(each, PathLike) else each for each in paths]
    return set(texts) if isinstance(paths, set | frozenset) else texts


# The classes with settings of a manager itself.
MANAGER_CLASSES: Final = (ManagerConfig, CleanerConfig, HealthConfig)


@functools.cache
def used_keys() -> frozenset[str]:
    """Return every broker's key that has a meaning here."""
    own = {each.key for cls in MANAGER_CLASSES for each in settings_of(cls).values()}
    logs = {each.setting.key for keys in LOG_KEYS.values() for each in keys}
    return frozenset(own | logs | {LOG_DIR})


def ensure_used(key: str) -> None:
    """Raise ConfigError unless a broker's key has a meaning here."""
    if key not in used_keys():
        reason = reason_without_use(key)
        if reason is not None:
            raise ConfigError(f"{key} has no meaning here: {reason}")
        raise unknown_name("setting", key, used_keys())


@functools.cache
def changeable_keys() -> frozenset[str]:
    """
    Return every broker's key that may be changed while a manager runs.

    As with a broker, only the first of several names of one setting can be changed.
    """
    own = {
        each.key
        for cls in MANAGER_CLASSES
        for each in settings_of(cls).values()
        if each.effect != "reopening"
    }
    logs = {
        LOG_KEYS[name][0].setting.key
        for name, each in settings_of(LogConfig).items()
        if name in LOG_KEYS and each.effect != "reopening"
    }
    return frozenset(own | logs)


def _own_arguments(cls: type[Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the keyword arguments for `cls` among a broker's settings."""
    settings = settings_of(cls).values()
    return {
        each.name: each.parse(properties[each.key]) for each in settings if each.key in properties
    }
