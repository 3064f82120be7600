"""Tests of `TopicConfigs`: overrides of topics, over defaults that change."""

from __future__ import annotations

import pickle

import pytest

from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError
from kafkalog.topic_configs import TopicConfigs


def test_config_of_topic_overrides_defaults() -> None:
    """A topic has its overrides, and the defaults for all other keys."""
    configs = TopicConfigs(LogConfig(segment_bytes=4096), {"orders": {"retention.ms": "-1"}})
    assert LogConfig(segment_bytes=4096, retention_ms=-1) == configs.config_of("orders")
    assert configs.defaults is configs.config_of("others")
    assert {"orders"} == configs.topics
    assert {"retention.ms": "-1"} == configs.overrides_of("orders")
    assert {} == configs.overrides_of("others")
    assert LogConfig() == TopicConfigs().config_of("orders")


def test_with_defaults_changes_keys_without_override() -> None:
    """An override equal to the old default stays."""
    configs = TopicConfigs(LogConfig(retention_ms=5), {"orders": {"retention.ms": "5"}})
    changed = configs.with_defaults(LogConfig(retention_ms=9, segment_bytes=4096))
    assert (5, 4096) == (
        changed.config_of("orders").retention_ms,
        changed.config_of("orders").segment_bytes,
    )
    assert 9 == changed.config_of("others").retention_ms
    assert 5 == configs.config_of("others").retention_ms


def test_with_topic_changes_adds_and_removes_overrides() -> None:
    """A value of None removes an override; a topic without overrides is not in `topics`."""
    configs = TopicConfigs(LogConfig(), {"orders": {"retention.ms": "5", "flush.ms": "6"}})
    changed = configs.with_topic("orders", {"retention.ms": None, "segment.bytes": "99"})
    assert {"flush.ms": "6", "segment.bytes": "99"} == changed.overrides_of("orders")
    assert {"retention.ms": "5", "flush.ms": "6"} == configs.overrides_of("orders")
    cleared = changed.with_topic("orders", dict.fromkeys(["flush.ms", "segment.bytes", "flush.ms"]))
    assert frozenset() == cleared.topics
    assert cleared == TopicConfigs()
    assert TopicConfigs() == configs.without_topic("orders")
    assert TopicConfigs() == TopicConfigs().with_topic("orders", {"flush.ms": None})


@pytest.mark.parametrize("text", ["5", None])
def test_with_topic_unknown_key_is_refused(text: str | None) -> None:
    """To be set or to be removed; the message names the topic."""
    with pytest.raises(ConfigError, match="topic orders: unknown setting 'retention'"):
        TopicConfigs().with_topic("orders", {"retention": text})


def test_with_defaults_contradicting_a_topic_is_refused() -> None:
    """Before any change: the lag of the topic and the new maximum."""
    configs = TopicConfigs(LogConfig(), {"orders": {"min.compaction.lag.ms": "50"}})
    with pytest.raises(ConfigError, match=r"topic orders: min\.compaction\.lag\.ms = 50"):
        configs.with_defaults(LogConfig(max_compaction_lag_ms=9))


def test_topic_configs_compare_and_pickle() -> None:
    """They are values."""
    configs = TopicConfigs(LogConfig(retention_ms=5), {"orders": {"flush.ms": "6"}})
    copy = pickle.loads(pickle.dumps(configs))
    assert configs == copy
    assert hash(configs) == hash(copy)
    assert configs != TopicConfigs(LogConfig(retention_ms=5), {"orders": {"flush.ms": "7"}})
    assert configs != 5
    assert "flush.ms" in repr(configs)
