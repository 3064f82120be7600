"""Tests of `ManagerConfig` and `CleanerConfig`: broker names, priorities, golden definitions."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.broker_keys import LOG_KEYS, reason_without_use, resolve
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError
from kafkalog.manager_config import LOG_DIR, CleanerConfig, ManagerConfig, used_keys
from kafkalog.settings import INT_MAX, LONG_MAX, OWN_PREFIX, Setting, settings_of
from tests.support.golden import GOLDEN

HOUR_MS = 3_600_000
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

MANAGER_SETTINGS = {**settings_of(ManagerConfig), **settings_of(CleanerConfig)}
BY_KEY = {each.key: each for each in MANAGER_SETTINGS.values()}

# Intended differences from Kafka 4.1: (key, member) -> (ours, reason).
DIFFERENCES = {
    ("log.segment.bytes", "min"): (14, "embedded logs are small"),
    ("log.flush.scheduler.interval.ms", "min"): (1, "a task that never comes back is no task"),
    ("log.dirs", "type"): ("list", "Kafka parts the text by commas itself"),
    ("log.dirs", "default"): ([], "a manager is given its directories"),
}
# Missing in the golden file, which leaves out names of other subjects; from Kafka's definitions.
BEYOND_GOLDEN = {
    LOG_DIR,
    "background.threads",
    "replica.high.watermark.checkpoint.interval.ms",
    "offsets.topic.num.partitions",
    # Always MD5 in a broker; here a setting of the cleaner.
    "log.cleaner.hash.algorithm",
}


def golden_definitions(level: str = "broker") -> dict[str, dict[str, Any]]:
    """Name -> definition of Kafka's broker or topic settings."""
    path = GOLDEN / "config" / f"kafka-4.1-{level}-configs.json"
    return {each["name"]: each for each in json.loads(path.read_text("utf-8"))["configs"]}


def assert_equals_golden(setting: Setting) -> None:
    """Type, default, bounds and choices are Kafka's, but for the differences listed above."""
    golden = golden_definitions()[setting.key]

    def expected(member: str, value: object) -> object:
        return DIFFERENCES.get((setting.key, member), (value, ""))[0]

    default = list(setting.default) if setting.kind == "list" else setting.default
    assert expected("type", golden["type"].lower()) == setting.kind
    assert expected("default", golden["default"]) == default
    assert expected("valid", sorted(golden.get("valid", []))) == sorted(setting.choices)
    if setting.extra is None:
        assert expected("min", golden.get("min")) == setting.lower
        assert expected("max", golden.get("max")) == setting.upper


@pytest.mark.parametrize("key", sorted(golden_definitions()))
def test_broker_key_of_kafka_is_used_or_has_a_reason(key: str) -> None:
    """All of Kafka's names about logs are known here, and each is either used or refused."""
    assert (key in used_keys()) != (reason_without_use(key) is not None)


def test_used_keys_are_kafkas_or_our_own() -> None:
    """A key without an equal in a broker has our prefix."""
    ours = {key for key in used_keys() if not key.startswith(OWN_PREFIX)}
    assert BEYOND_GOLDEN == ours - set(golden_definitions())


OWN = {key for key in BY_KEY if key.startswith(OWN_PREFIX)}


@pytest.mark.parametrize("key", sorted(set(BY_KEY) - BEYOND_GOLDEN - OWN))
def test_manager_setting_definition_equals_kafkas(key: str) -> None:
    """Type, default and range; a setting that a broker changes at run time is dynamic here."""
    assert not OWN & set(golden_definitions())
    assert_equals_golden(BY_KEY[key])
    assert golden_definitions()[key]["dynamic"] == (BY_KEY[key].effect == "at once")


@pytest.mark.parametrize("field", sorted(LOG_KEYS))
def test_broker_names_of_topic_setting_equal_kafkas(field: str) -> None:
    """The names, their order, their units, and each one's own type, default and range."""
    topic = settings_of(LogConfig)[field]
    names = LOG_KEYS[field]
    if topic.key.startswith(OWN_PREFIX):
        assert [topic.key] == [each.setting.key for each in names]
        return
    factors = {"identity": 1, "minutes_to_ms": 60_000, "hours_to_ms": HOUR_MS}
    synonyms = golden_definitions("topic")[topic.key]["synonyms"]
    expected = [(each["broker"], factors[each["conversion"]]) for each in synonyms]
    assert expected == [(each.setting.key, each.factor) for each in names]
    for each in names:
        assert_equals_golden(each.setting)


def test_topic_setting_without_broker_names_has_none_in_kafka() -> None:
    """A broker can set every field of LogConfig that a broker of Kafka can set."""
    golden = golden_definitions("topic")
    for field, each in settings_of(LogConfig).items():
        if field not in LOG_KEYS:
            assert [] == golden.get(each.key, {"synonyms": []})["synonyms"]


def test_differences_are_documented() -> None:
    """The documentation has every difference that is allowed here."""
    text = PAGE.read_text("utf-8").partition("## Differences from Kafka")[2]
    for key, _member in DIFFERENCES:
        assert f"`{key}`" in text


@pytest.mark.parametrize(
    ("properties", "field", "expected"),
    [
        ({}, "retention_ms", 168 * HOUR_MS),
        ({"log.retention.hours": "1"}, "retention_ms", HOUR_MS),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "retention_ms", 120_000),
        (
            {"log.retention.ms": "3", "log.retention.hours": "1", "log.retention.minutes": "2"},
            "retention_ms",
            3,
        ),
        ({"log.retention.minutes": "-1", "log.retention.hours": "5"}, "retention_ms", -1),
        ({"log.retention.hours": "-7"}, "retention_ms", -1),
        ({"log.retention.ms": "-9223372036854775808"}, "retention_ms", -1),
        ({"log.retention.hours": str(INT_MAX)}, "retention_ms", INT_MAX * HOUR_MS),
        ({}, "segment_ms", 168 * HOUR_MS),
        ({"log.roll.hours": "2"}, "segment_ms", 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "7"}, "segment_ms", 7),
        ({"log.roll.jitter.hours": "2"}, "segment_jitter_ms", 2 * HOUR_MS),
        ({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "0"}, "segment_jitter_ms", 0),
        ({}, "flush_ms", LONG_MAX),
        ({"log.flush.scheduler.interval.ms": "8"}, "flush_ms", 8),
        (
            {"log.flush.scheduler.interval.ms": "8", "log.flush.interval.ms": "9"},
            "flush_ms",
            9,
        ),
        ({"log.cleanup.policy": "compact, delete"}, "cleanup_policy", ("compact", "delete")),
        ({"message.max.bytes": "500"}, "max_message_bytes", 500),
        ({"log.segment.bytes": "4096"}, "segment_bytes", 4096),
        ({"kafkalog.batch.bytes": "77"}, "batch_bytes", 77),
        ({"compression.type": " lz4 "}, "compression_type", "lz4"),
    ],
)
def test_from_properties_first_name_by_priority_is_used(
    properties: dict[str, str], field: str, expected: object
) -> None:
    """Milliseconds before minutes before hours, each in its unit; else Kafka's default."""
    assert expected == getattr(ManagerConfig.from_properties(properties).log, field)


def test_resolve_names_overruled_keys() -> None:
    """A caller can report which of its lines are overruled, and by which."""
    found = resolve({"log.retention.hours": "1", "log.retention.ms": "5", "log.roll.hours": "1"})
    assert {"retention_ms": 5, "segment_ms": HOUR_MS} == found.arguments
    assert {"log.retention.hours": "log.retention.ms"} == found.overruled


def test_from_properties_sets_manager_and_cleaner() -> None:
    """Each key reaches its class."""
    config = ManagerConfig.from_properties(
        {
            "log.dirs": " /a , /b,,",
            "log.dir": "/c",
            "num.recovery.threads.per.data.dir": "4",
            "log.cleaner.threads": "2",
            "log.cleaner.io.max.bytes.per.second": "1.5E6",
            "log.flush.scheduler.interval.ms": "50",
        }
    )
    assert ("/a", "/b") == config.log_dirs
    assert 4 == config.num_recovery_threads_per_data_dir
    assert (2, 1.5e6) == (config.cleaner.threads, config.cleaner.io_max_bytes_per_second)
    assert (50, 50) == (config.log_flush_scheduler_interval_ms, config.log.flush_ms)
    assert ("/c",) == ManagerConfig.from_properties({"log.dir": "/c"}).log_dirs


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms = 0: must be -1"),
        ({"log.retention.hours": "0"}, "log.retention.hours = 0: must be -1"),
        ({"log.retention.hours": "x", "log.retention.ms": "5"}, "log.retention.hours = 'x'"),
        ({"log.retention.hours": str(INT_MAX + 1)}, "log.retention.hours = "),
        ({"log.roll.hours": "0"}, "log.roll.hours = 0: must be an integer from 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms = 0: segment.ms must be an integer from 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms = -1: segment.jitter.ms must be"),
        ({"log.flush.interval.ms": "-1"}, "log.flush.interval.ms = -1: flush.ms must be"),
        ({"log.flush.scheduler.interval.ms": "0"}, "log.flush.scheduler.interval.ms = 0: must"),
        ({"log.cleaner.threads": "200"}, "log.cleaner.dedupe.buffer.size = 134217728: must be"),
        ({"log.cleaner.io.max.bytes.per.second": "NaN"}, "log.cleaner.io.max.bytes.per.second"),
        ({"log.dirs": "/a", "log.dri": "/b"}, "unknown setting 'log.dri'; did you mean log.dir?"),
        ({"log.retention.seconds": "5"}, "did you mean log.retention."),
        ({"retention.ms": "5"}, "did you mean log.retention.ms?"),
        ({"listeners": "x"}, "unknown setting 'listeners'"),
        ({"min.insync.replicas": "1"}, "min.insync.replicas has no meaning here: it belongs"),
        ({"remote.log.reader.threads": "1"}, "remote.log.reader.threads has no meaning here"),
        ({"log.local.retention.ms": "1"}, "log.local.retention.ms has no meaning here"),
    ],
)
def test_from_properties_invalid_value_is_refused_under_its_key(
    properties: dict[str, str], message: str
) -> None:
    """The given key, the value, and the rule; also if another key overrules it."""
    with pytest.raises(ConfigError) as caught:
        ManagerConfig.from_properties(properties)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_recovery_threads_per_data_dir": 0},
        {"log_dirs": b"/a"},
        {"log_dirs": ""},
        {"log_dirs": ("/a", 5)},
        {"log_dirs": ("",)},
        {"log": {"retention.ms": 5}},
        {"cleaner": None},
        {"log": LogConfig(retention_ms=0)},
    ],
)
def test_manager_config_wrong_argument_is_refused(arguments: dict[str, Any]) -> None:
    """By the constructor and by `replace`."""
    with pytest.raises(ConfigError):
        ManagerConfig(**arguments)
    with pytest.raises(ConfigError):
        ManagerConfig().replace(**arguments)


def test_cleaner_config_threads_share_the_map_memory() -> None:
    """More than one mebibyte for each, unless the cleaner has no thread."""
    assert 2 == CleanerConfig(threads=2, dedupe_buffer_size=(2 << 20) + 2).threads
    assert 0 == CleanerConfig(threads=0, dedupe_buffer_size=1).threads
    with pytest.raises(ConfigError, match=r"dedupe\.buffer\.size = 2097152: must be more"):
        CleanerConfig().replace(threads=2, dedupe_buffer_size=2 << 20)
    with pytest.raises(ConfigError, match="unknown field 'thread'; did you mean threads"):
        CleanerConfig().replace(thread=2)


def test_change_to_covers_manager_cleaner_and_topics() -> None:
    """One result for the whole config."""
    old = ManagerConfig()
    new = old.replace(
        log_retention_check_interval_ms=5,
        cleaner=CleanerConfig(threads=2),
        log=LogConfig(retention_ms=5, preallocate=True),
    )
    change = old.change_to(new)
    assert ("log.cleaner.threads", "retention.ms") == change.at_once
    assert ("preallocate",) == change.next_segment
    assert ("log.retention.check.interval.ms",) == change.reopening
    assert not old.change_to(ManagerConfig())


def test_manager_config_pickles_and_hashes() -> None:
    """It is shared between threads and sent between processes."""
    config = ManagerConfig(log_dirs=("/a",), log=LogConfig(retention_ms=5))
    assert config == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))
    assert sys.float_info.max == config.cleaner.io_max_bytes_per_second


@given(
    st.builds(
        ManagerConfig,
        log_dirs=st.lists(st.sampled_from(["/a", "/b c", "d"])).map(tuple),
        log_flush_scheduler_interval_ms=st.integers(1, LONG_MAX),
        log=st.builds(
            LogConfig,
            retention_ms=st.one_of(st.just(-1), st.integers(1, LONG_MAX)),
            flush_ms=st.integers(0, LONG_MAX),
            segment_ms=st.integers(1, LONG_MAX),
            batch_bytes=st.integers(1, INT_MAX),
        ),
        cleaner=st.builds(
            CleanerConfig,
            io_max_bytes_per_second=st.floats(0, allow_nan=False, allow_infinity=False),
            threads=st.integers(0, 9),
        ),
    )
)
def test_manager_to_properties_round_trips(config: ManagerConfig) -> None:
    """Text and back is the same config, under a broker's names."""
    properties = config.to_properties()
    assert set(properties) <= used_keys()
    assert config == ManagerConfig.from_properties(properties)
