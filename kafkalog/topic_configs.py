"""Settings of many topics: defaults of all topics, and overrides of single topics.

Overrides are kept unchanged, so that a change of the defaults applies to every setting that a topic
does not override. Each topic's config is resolved and checked when the value is made.

Thread-safety: immutable; a change gives a new value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError

__all__ = ["TopicConfigs"]


class TopicConfigs:
    """
    Defaults, and overrides by topic.

    >>> configs = TopicConfigs(LogConfig(), {"orders": {"retention.ms": "-1"}})
    >>> configs.config_of("orders").retention_ms
    -1

    Args:
        defaults: settings that a topic does not override.
        overrides: topic -> dotted key -> text.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or contradicts a default; the message
            names the topic.
    """

    __slots__ = ("_defaults", "_overrides", "_resolved")

    def __init__(
        self,
        defaults: LogConfig | None = None,
        overrides: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self._defaults = LogConfig() if defaults is None else defaults
        self._overrides = {topic: dict(texts) for topic, texts in overrides.items() if texts}
        self._resolved = {
            topic: _resolve(topic, self._defaults, texts)
            for topic, texts in self._overrides.items()
        }

    def __repr__(self) -> str:
        return f"TopicConfigs({self._defaults!r}, {self._overrides!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicConfigs):
            return NotImplemented
        return self._defaults == other._defaults and self._overrides == other._overrides

    def __hash__(self) -> int:
        return hash((self._defaults, frozenset(self._overrides)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._defaults, self._overrides))

    @property
    def defaults(self) -> LogConfig:
        """Settings that a topic does not override."""
        return self._defaults

    @property
    def topics(self) -> frozenset[str]:
        """Topics with overrides."""
        return frozenset(self._overrides)

    def overrides_of(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of a topic."""
        return MappingProxyType(self._overrides.get(topic, {}))

    def config_of(self, topic: str) -> LogConfig:
        """Return the config of a topic."""
        return self._resolved.get(topic, self._defaults)

    def with_topic(self, topic: str, changes: Mapping[str, str | None]) -> TopicConfigs:
        """
        Return configs with other overrides of a topic.

        Args:
            topic: name of the topic.
            changes: dotted key -> text, or None to go back to the default.

        Raises:
            ConfigError: as the constructor; also for an unknown key that is None in `changes`.
        """
        texts = dict(self._overrides.get(topic, {}))
        for key, text in changes.items():
            if text is not None:
                texts[key] = text
            elif texts.pop(key, None) is None:
                # No override, which is allowed; but an unknown key is an error.
                _resolve(topic, self._defaults, {key: LogConfig().to_properties().get(key, "")})
        return TopicConfigs(self._defaults, self._overrides | {topic: texts})

    def without_topic(self, topic: str) -> TopicConfigs:
        """Return configs without the overrides of a topic, which was deleted."""
        return TopicConfigs(
            self._defaults, {name: s for name, s in self._overrides.items() if name != topic}
        )

    def with_defaults(self, defaults: LogConfig) -> TopicConfigs:
        """Return configs with other defaults and the same overrides."""
        return TopicConfigs(defaults, self._overrides)


def _resolve(topic: str, defaults: LogConfig, texts: Mapping[str, str]) -> LogConfig:
    try:
        return defaults.with_overrides(texts)
    except ConfigError as error:
        raise ConfigError(f"topic {topic}: {error}") from error
