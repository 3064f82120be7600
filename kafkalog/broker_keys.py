"""Broker settings of logs: their names, and the settings without a meaning here.

A broker's settings are the defaults of all its topics. Most topic settings have one broker name;
times have several names in several units, of which the first set name counts: `log.roll.ms` comes
before `log.roll.hours`. Names, their order, types, defaults and ranges are Kafka 4.1's.

Thread-safety: immutable values and pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from kafkalog.config import KEYS_WITHOUT_USE, LogConfig
from kafkalog.errors import ConfigError
from kafkalog.settings import OWN_PREFIX, Setting, settings_of

__all__ = [
    "FAMILIES_WITHOUT_USE",
    "LOG_KEYS",
    "SINGLE_KEYS_WITHOUT_USE",
    "BrokerKey",
    "ResolvedProperties",
    "log_properties",
    "reason_without_use",
    "resolve",
]

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """
    A broker's name of a topic setting.

    Attributes:
        setting: as the broker defines it; its default is None where the broker has none.
        factor: what its value is multiplied by to be the topic's.
    """

    setting: Setting
    factor: int = 1

    def value_of(self, text: str) -> Any:
        """Return the value that `text` gives the topic setting; raise ConfigError if it may not."""
        value = self.setting.check(self.setting.parse(text))
        return value * self.factor if self.factor != 1 else value


def _same(field: str, key: str, **changes: Any) -> BrokerKey:
    """Return a broker's name of a field of LogConfig, defined as that but for `changes`."""
    return BrokerKey(replace(settings_of(LogConfig)[field], key=key, **changes))


def _time(field: str, key: str, factor: int, default: int | None, lower: int | None) -> BrokerKey:
    """Return a broker's name for a time in minutes or hours."""
    unit = "hours" if factor == _HOUR_MS else "minutes"
    changes: dict[str, Any] = {"kind": "int", "default": default, "lower": lower, "unit": unit}
    return BrokerKey(_same(field, key, **changes).setting, factor)


def _log_keys() -> dict[str, tuple[BrokerKey, ...]]:
    unset: dict[str, Any] = {"default": None, "lower": None}
    keys = {
        "cleanup_policy": (_same("cleanup_policy", "log.cleanup.policy"),),
        "retention_ms": (
            _same("retention_ms", "log.retention.ms", **unset),
            _time("retention_ms", "log.retention.minutes", _MINUTE_MS, None, None),
            _time("retention_ms", "log.retention.hours", _HOUR_MS, 168, None),
        ),
        "segment_ms": (
            _same("segment_ms", "log.roll.ms", **unset),
            _time("segment_ms", "log.roll.hours", _HOUR_MS, 168, 1),
        ),
        "segment_jitter_ms": (
            _same("segment_jitter_ms", "log.roll.jitter.ms", **unset),
            _time("segment_jitter_ms", "log.roll.jitter.hours", _HOUR_MS, 0, 0),
        ),
        "flush_ms": (
            _same("flush_ms", "log.flush.interval.ms", **unset),
            _same("flush_ms", "log.flush.scheduler.interval.ms", lower=1),
        ),
    }
    for field, key in (
        ("retention_bytes", "log.retention.bytes"),
        ("delete_retention_ms", "log.cleaner.delete.retention.ms"),
        ("min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms"),
        ("max_compaction_lag_ms", "log.cleaner.max.compaction.lag.ms"),
        ("file_delete_delay_ms", "log.segment.delete.delay.ms"),
        ("max_message_bytes", "message.max.bytes"),
        ("message_timestamp_type", "log.message.timestamp.type"),
        ("message_timestamp_before_max_ms", "log.message.timestamp.before.max.ms"),
        ("message_timestamp_after_max_ms", "log.message.timestamp.after.max.ms"),
        ("flush_messages", "log.flush.interval.messages"),
        ("segment_bytes", "log.segment.bytes"),
        ("segment_index_bytes", "log.index.size.max.bytes"),
        ("index_interval_bytes", "log.index.interval.bytes"),
        ("preallocate", "log.preallocate"),
        ("min_cleanable_dirty_ratio", "log.cleaner.min.cleanable.ratio"),
        ("compression_type", "compression.type"),
        ("compression_gzip_level", "compression.gzip.level"),
        ("compression_lz4_level", "compression.lz4.level"),
        ("compression_zstd_level", "compression.zstd.level"),
    ):
        keys[field] = (_same(field, key),)
    # Settings of our own are called the same everywhere.
    own = [each for each in settings_of(LogConfig).values() if each.key.startswith(OWN_PREFIX)]
    return keys | {each.name: (BrokerKey(each),) for each in own}


# Field of LogConfig -> what a broker calls it, the name that counts first.
LOG_KEYS: Final[Mapping[str, tuple[BrokerKey, ...]]] = MappingProxyType(_log_keys())

_CLUSTER: Final = "it belongs to the brokers of a cluster, and a manager here is one process"
_REMOTE: Final = "all data of a log here is local"
_METADATA: Final = "it belongs to the metadata log of a cluster"
_COORDINATOR: Final = "it belongs to a coordinator's own topics"
_NETWORK: Final = "kafkalog uses no network"

# Broker settings about logs, or near them, that mean nothing here; by name, or by how names begin.
SINGLE_KEYS_WITHOUT_USE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dir.failure.timeout.ms": "kafkalog has no controller to report to",
        "log.message.downconversion.enable": "a reader requests each conversion",
        "log.message.format.version": (
            "removed from Kafka 4: use message.format.version for logs in an old format"
        ),
        "log.message.timestamp.difference.max.ms": (
            "removed from Kafka 4: use log.message.timestamp.before.max.ms and .after.max.ms"
        ),
        "message.timestamp.difference.max.ms": (
            "a topic's name, removed from Kafka 4: use log.message.timestamp.before.max.ms and"
            " .after.max.ms"
        ),
        "log.local.retention.bytes": _REMOTE,
        "log.local.retention.ms": _REMOTE,
        "num.replica.alter.log.dirs.threads": _CLUSTER,
        "transaction.partition.verification.enable": (
            "the appending program asks the coordinator: use kafkalog.verify.transactions"
        ),
        "transaction.two.phase.commit.enable": _COORDINATOR,
        "transactional.id.expiration.ms": _COORDINATOR,
    }
)
FAMILIES_WITHOUT_USE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alter.log.dirs.": _CLUSTER,
        "auto.": _CLUSTER,
        "broker.": _CLUSTER,
        "controller.": _CLUSTER,
        "group.": _COORDINATOR,
        "internal.metadata.": _METADATA,
        "metadata.": _METADATA,
        "offsets.": _COORDINATOR,
        "remote.": _REMOTE,
        "replica.": _CLUSTER,
        "sasl.": _NETWORK,
        "share.": _COORDINATOR,
        "socket.": _NETWORK,
        "ssl.": _NETWORK,
        "transaction.abort.": _COORDINATOR,
        "transaction.remove.": _COORDINATOR,
        "transaction.state.": _COORDINATOR,
        "unclean.": _CLUSTER,
    }
)


# Settings with a meaning here, although other settings with their prefixes have none.
_USED: Final = frozenset({"offsets.topic.num.partitions", "transaction.state.log.num.partitions"})


def reason_without_use(key: str) -> str | None:
    """Return why a setting of a broker has no meaning here, None if it has one or is unknown."""
    if key in _USED:
        return None
    own_reason = SINGLE_KEYS_WITHOUT_USE.get(key) or KEYS_WITHOUT_USE.get(key)
    if own_reason is not None:
        return own_reason
    for beginning, reason in FAMILIES_WITHOUT_USE.items():
        if key.startswith(beginning):
            return reason
    return None


@dataclass(frozen=True, slots=True)
class ResolvedProperties:
    """
    The settings of logs among a broker's settings.

    Attributes:
        arguments: keyword arguments for LogConfig.
        overruled: key that is set and does not count -> the key that counts instead.
    """

    arguments: dict[str, Any]
    overruled: dict[str, str]


def resolve(properties: Mapping[str, str]) -> ResolvedProperties:
    """
    Return the settings of logs among a broker's settings; other keys are ignored.

    Raises:
        ConfigError: a value is not of its key's type or out of its range, also of a key that does
            not count.
    """
    arguments: dict[str, Any] = {}
    overruled: dict[str, str] = {}
    for field, keys in LOG_KEYS.items():
        present_keys = [each for each in keys if each.setting.key in properties]
        values = [each.value_of(properties[each.setting.key]) for each in present_keys]
        if not present_keys:
            continue
        first = present_keys[0].setting
        arguments[field] = _topic_value(field, first, values[0])
        overruled |= {each.setting.key: first.key for each in present_keys[1:]}
    return ResolvedProperties(arguments, overruled)


def _topic_value(field: str, setting: Setting, value: Any) -> Any:
    """Return the topic's value; an invalid one raises an error with the broker's key."""
    if field == "retention_ms":
        if value == 0:
            # Allowed for a topic; as a default of a broker it would delete all records.
            raise ConfigError(f"{setting.key} = 0: must be -1 (keep for ever) or at least 1")
        value = max(value, -1)
    try:
        return settings_of(LogConfig)[field].check(value)
    except ConfigError as error:
        topic = settings_of(LogConfig)[field]
        raise ConfigError(f"{setting.key} = {value}: {topic.key} must be {topic.rule}") from error


def log_properties(config: LogConfig) -> dict[str, str]:
    """Return every setting of a config under the name that counts first for a broker."""
    texts = {}
    for field, each in settings_of(LogConfig).items():
        if field in LOG_KEYS:
            texts[LOG_KEYS[field][0].setting.key] = each.format(getattr(config, field))
    return texts
