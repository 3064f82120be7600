"""The settings of many topics: defaults of all, and what single topics say otherwise.

Overrides are kept as they were given, so that a change of the defaults reaches every topic in all
that it does not say itself. Each topic's config is resolved, and checked, when the value is made.

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
        defaults: what counts where a topic says nothing.
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
        """What counts where a topic says nothing."""
        return self._defaults

    @property
    def topics(self) -> frozenset[str]:
        """The topics that say something."""
        return frozenset(self._overrides)

    def overrides_of(self, topic: str) -> Mapping[str, str]:
        """Return what a topic says itself."""
        return MappingProxyType(self._overrides.get(topic, {}))

    def config_of(self, topic: str) -> LogConfig:
        """Return the config of a topic."""
        return self._resolved.get(topic, self._defaults)

    def with_topic(self, topic: str, changes: Mapping[str, str | None]) -> TopicConfigs:
        """
        Return configs in which a topic says some things otherwise than now.

        Args:
            topic: its name.
            changes: dotted key -> text, or None to go back to the default.

        Raises:
            ConfigError: as the constructor; also for an unknown key that is to go back.
        """
        texts = dict(self._overrides.get(topic, {}))
        for key, text in changes.items():
            if text is not None:
                texts[key] = text
            elif texts.pop(key, None) is None:
                # Not said, which is right; but a key that nothing has is a mistake.
                _resolve(topic, self._defaults, {key: LogConfig().to_properties().get(key, "")})
        return TopicConfigs(self._defaults, self._overrides | {topic: texts})

    def without_topic(self, topic: str) -> TopicConfigs:
        """Return configs in which a topic says nothing: it was deleted."""
        return TopicConfigs(
            self._defaults, {name: s for name, s in self._overrides.items() if name != topic}
        )

    def with_defaults(self, defaults: LogConfig) -> TopicConfigs:
        """Return configs with other defaults, which count where a topic says nothing."""
        return TopicConfigs(defaults, self._overrides)


def _resolve(topic: str, defaults: LogConfig, texts: Mapping[str, str]) -> LogConfig:
    try:
        return defaults.with_overrides(texts)
    except ConfigError as error:
        raise ConfigError(f"topic {topic}: {error}") from error
