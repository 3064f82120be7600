"""Tests of `LogConfig`: parsing as in Kafka, ranges, cross rules, golden definitions."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import FrozenInstanceError
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config import KEYS_WITHOUT_USE, LogConfig
from kafkalog.errors import ConfigError
from kafkalog.settings import INT_MAX, LONG_MAX, OWN_PREFIX, Setting, settings_of
from tests.support.golden import GOLDEN

SETTINGS = settings_of(LogConfig)

# Intended differences from Kafka 4.1: (key, member) -> (ours, reason).
DIFFERENCES = {("segment.bytes", "min"): (14, "embedded logs are small")}
# Keys of older releases that Kafka 4 no longer has: old formats are still written here.
REMOVED_FROM_KAFKA = {"message.format.version"}


def golden_definitions() -> dict[str, dict[str, Any]]:
    """Name -> definition of Kafka's topic settings."""
    path = GOLDEN / "config" / "kafka-4.1-topic-configs.json"
    return {each["name"]: each for each in json.loads(path.read_text("utf-8"))["configs"]}


def bounds(setting: Setting) -> tuple[Any, Any]:
    """Lower and upper bound as Kafka's dump writes them; gzip's rule is not a plain range."""
    return (None, None) if setting.extra is not None else (setting.lower, setting.upper)


def test_config_keys_equal_kafkas_but_for_those_without_use() -> None:
    """Every topic key of Kafka 4.1 is either a field or listed with a reason, and none is both."""
    ours = {each.key for each in SETTINGS.values() if not each.key.startswith(OWN_PREFIX)}
    assert set(golden_definitions()) == (ours - REMOVED_FROM_KAFKA) | set(KEYS_WITHOUT_USE)
    assert ours >= REMOVED_FROM_KAFKA
    assert set() == ours & set(KEYS_WITHOUT_USE)
    assert all(KEYS_WITHOUT_USE.values())


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_setting_definition_equals_kafkas(name: str) -> None:
    """Type, default and range are those of the broker, but for the differences listed above."""
    setting = SETTINGS[name]
    if setting.key.startswith(OWN_PREFIX) or setting.key in REMOVED_FROM_KAFKA:
        assert setting.key not in golden_definitions()
        return
    golden = golden_definitions()[setting.key]
    default = list(setting.default) if setting.kind == "list" else setting.default
    assert golden["type"].lower() == setting.kind
    assert golden["default"] == default
    assert sorted(golden.get("valid", [])) == sorted(setting.choices)
    lower, upper = bounds(setting)
    expected, _reason = DIFFERENCES.get((setting.key, "min"), (golden.get("min"), ""))
    assert expected == lower
    assert golden.get("max") == upper


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_setting_field_is_named_after_its_key_and_documented(name: str) -> None:
    """A field is its key with underscores; its text is whole sentences."""
    setting = SETTINGS[name]
    assert setting.key.removeprefix(OWN_PREFIX).replace(".", "_") == name
    assert setting.doc.endswith(".")
    assert setting.default == getattr(LogConfig(), name)


def test_config_gzip_level_has_kafkas_hole() -> None:
    """The levels of gzip are 1 to 9 and -1, not 0."""
    assert "[1,...,9] or -1" == golden_definitions()["compression.gzip.level"]["validator"]
    allowed = []
    for level in range(-3, 12):
        try:
            allowed.append(LogConfig(compression_gzip_level=level).compression_gzip_level)
        except ConfigError:
            continue
    assert [-1, 1, 2, 3, 4, 5, 6, 7, 8, 9] == allowed


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("segment.bytes", " 1048576 ", 1 << 20),
        ("segment.bytes", "+14", 14),
        ("retention.bytes", "-5", -5),
        ("retention.bytes", "-9223372036854775808", -LONG_MAX - 1),
        ("flush.ms", "0009223372036854775807", LONG_MAX),
        ("preallocate", " TRUE", True),
        ("preallocate", "False", False),
        ("min.cleanable.dirty.ratio", " 1e-1 ", 0.1),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", " ", ()),
        ("compression.type", " zstd\t", "zstd"),
        ("kafkalog.batch.bytes", "1", 1),
        ("message.format.version", "0.10.2-IV0", "0.10.2"),
        ("message.format.version", "0.10.2.1", "0.10.2"),
        ("message.format.version", "2.8.1", "2.8"),
    ],
)
def test_from_properties_text_is_parsed_as_kafka_does(
    key: str, text: str, expected: object
) -> None:
    """Blanks, signs, letter case of booleans, lists."""
    config = LogConfig.from_properties({key: text})
    name = next(each.name for each in SETTINGS.values() if each.key == key)
    assert expected == getattr(config, name)
    assert type(expected) is type(getattr(config, name))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1_000"),
        ("segment.bytes", "1e6"),
        ("segment.bytes", "0x100"),
        ("segment.bytes", ""),
        ("segment.bytes", "9" * 10_000),
        ("segment.bytes", "\u0661\u0662\u0663\u0664"),
        ("retention.ms", "-2"),
        ("retention.bytes", "9223372036854775808"),
        ("preallocate", "yes"),
        ("preallocate", "1"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "Compact"),
        ("compression.type", "GZIP"),
        ("compression.type", "none"),
        ("compression.type", "\xa0zstd"),
        ("message.timestamp.type", "createtime"),
        ("message.format.version", "0.7.2"),
        ("message.format.version", "4.2"),
        ("message.format.version", "10.0"),
        ("message.format.version", "2.8-IV"),
        ("message.format.version", "2.8.1.1"),
        ("message.format.version", ""),
        ("kafkalog.batch.bytes", "0"),
        ("kafkalog.open.files.max", "0"),
    ],
)
def test_from_properties_wrong_value_is_refused(key: str, text: str) -> None:
    """The error names the key, what was given, and the rule."""
    with pytest.raises(ConfigError, match="must be ") as caught:
        LogConfig.from_properties({key: text})
    assert str(caught.value).startswith(f"{key} = ")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", [None, 5, b"5", True])
def test_from_properties_value_that_is_not_text_is_refused(value: Any) -> None:
    """Properties are texts; a number instead is a mistake of the caller."""
    with pytest.raises(ConfigError, match=r"segment\.ms = "):
        LogConfig.from_properties({"segment.ms": value})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("segment.byte", "segment.bytes"),
        ("retention.hours", "retention.ms"),
        ("kafkalog.batch.size", "kafkalog.batch.bytes"),
    ],
)
def test_from_properties_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    """An error in a key names the probable key."""
    with pytest.raises(ConfigError, match=f"unknown setting '{key}'; did you mean {nearest}"):
        LogConfig.from_properties({key: "1"})


def test_from_properties_key_without_similar_keys_gets_no_suggestion() -> None:
    """No nearest name is better than a silly one."""
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_properties({"zzzz": "1"})
    assert "unknown setting 'zzzz'" == str(caught.value)


@pytest.mark.parametrize("key", sorted(KEYS_WITHOUT_USE))
def test_from_properties_key_of_a_cluster_names_the_reason(key: str) -> None:
    """Kafka's keys without effect here are refused with the reason, not as unknown."""
    with pytest.raises(ConfigError, match=f"{key} has no meaning here: "):
        LogConfig.from_properties({key: "1"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"segment_bytes": 13},
        {"segment_bytes": INT_MAX + 1},
        {"segment_bytes": True},
        {"segment_bytes": "1048576"},
        {"segment_ms": 1.0},
        {"preallocate": 1},
        {"cleanup_policy": "remove"},
        {"cleanup_policy": ("delete", 3)},
        {"cleanup_policy": None},
        {"compression_type": None},
        {"min_cleanable_dirty_ratio": float("nan")},
        {"min_cleanable_dirty_ratio": "0.5"},
        {"min_compaction_lag_ms": 2, "max_compaction_lag_ms": 1},
        {"message_format_version": 2},
        {"message_format_version": "0.10.2", "compression_type": "zstd"},
    ],
)
def test_config_wrong_argument_is_refused(arguments: dict[str, Any]) -> None:
    """The constructor checks types and ranges too, and names the dotted key."""
    key = SETTINGS[next(iter(arguments))].key
    with pytest.raises(ConfigError, match=key):
        LogConfig(**arguments)
    with pytest.raises(ConfigError, match=key):
        LogConfig().replace(**arguments)


@pytest.mark.parametrize(
    ("release", "magic"),
    [("0.8.0", 0), ("0.9.0", 0), ("0.10.0", 1), ("0.10.2", 1), ("0.11.0", 2), ("2.8", 2)],
)
def test_config_message_format_version_selects_a_magic(release: str, magic: int) -> None:
    """The format changed with 0.10.0 and 0.11.0; the default is the newest."""
    config = LogConfig(message_format_version=release)
    assert magic == config.message_magic
    assert 2 == LogConfig().message_magic


def test_config_values_are_normalised() -> None:
    """Numbers of other libraries become plain ones, lists and sets become tuples."""
    config = LogConfig(
        segment_bytes=numpy.int64(4096),  # type: ignore[arg-type]
        cleanup_policy={"delete", "compact"},  # type: ignore[arg-type]
        min_cleanable_dirty_ratio=1,
    )
    assert type(config.segment_bytes) is int
    assert ("compact", "delete") == config.cleanup_policy
    assert type(config.min_cleanable_dirty_ratio) is float


def test_replace_known_field_keeps_the_others() -> None:
    """The rest stays, and the old config is untouched."""
    old = LogConfig(segment_bytes=4096)
    new = old.replace(retention_ms=-1)
    assert (4096, -1) == (new.segment_bytes, new.retention_ms)
    assert LogConfig(segment_bytes=4096) == old


def test_replace_unknown_field_names_the_nearest() -> None:
    """A ConfigError, not the TypeError of dataclasses."""
    with pytest.raises(ConfigError, match="unknown field 'segment_size'; did you mean segment_"):
        LogConfig().replace(segment_size=1)


def test_with_overrides_topic_replaces_given_settings() -> None:
    """The others come from the defaults of the broker; the errors are those of from_properties."""
    defaults = LogConfig(segment_bytes=4096, retention_ms=5)
    topic = defaults.with_overrides({"retention.ms": "-1"})
    assert defaults.replace(retention_ms=-1) == topic
    assert defaults == defaults.with_overrides({})
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        defaults.with_overrides({"retentoin.ms": "5"})


def test_change_to_sorts_keys_by_their_effect() -> None:
    """An empty change is false; keys have the order of the fields."""
    old = LogConfig()
    assert not old.change_to(LogConfig())
    change = old.change_to(
        old.replace(open_files_max=9, preallocate=True, retention_ms=5, segment_bytes=4096)
    )
    assert change
    assert ("retention.ms", "segment.bytes") == change.at_once
    assert ("preallocate",) == change.next_segment
    assert ("kafkalog.open.files.max",) == change.reopening


def test_config_is_frozen_and_pickles() -> None:
    """It is shared between threads and sent between processes."""
    config = LogConfig(cleanup_policy=("compact",))
    with pytest.raises(FrozenInstanceError):
        config.segment_bytes = 5  # type: ignore[misc]
    assert config == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))


@given(
    st.builds(
        LogConfig,
        cleanup_policy=st.lists(st.sampled_from(["compact", "delete"]), unique=True).map(tuple),
        retention_bytes=st.integers(-LONG_MAX - 1, LONG_MAX),
        min_cleanable_dirty_ratio=st.floats(0, 1),
        preallocate=st.booleans(),
        compression_type=st.sampled_from(SETTINGS["compression_type"].choices),
        segment_bytes=st.integers(14, INT_MAX),
    )
)
def test_to_properties_round_trips(config: LogConfig) -> None:
    """Text and back is the same config, for any values."""
    properties = config.to_properties()
    assert {each.key for each in SETTINGS.values()} == set(properties)
    assert config == LogConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("policy", "expected"), [(("delete",), 1000), (("compact",), 400), ((), 1000)]
)
def test_max_segment_ms_compaction_lag_limits_only_compacted(
    policy: tuple[str, ...], expected: int
) -> None:
    """Compaction works on closed segments, so its deadline closes them."""
    config = LogConfig(cleanup_policy=policy, segment_ms=1000, max_compaction_lag_ms=400)
    assert expected == config.max_segment_ms


def test_derived_values_follow_their_settings() -> None:
    """Initial size, batch limit, policy flags, codec levels."""
    config = LogConfig(
        preallocate=True,
        segment_bytes=5000,
        batch_bytes=4000,
        max_message_bytes=300,
        message_timestamp_type="LogAppendTime",
        compression_zstd_level=-7,
    )
    assert (5000, 0) == (config.init_file_size, LogConfig().init_file_size)
    assert (300, 65536) == (config.append_batch_bytes, LogConfig().append_batch_bytes)
    assert (True, False) == (config.is_deleted, config.is_compacted)
    assert (True, False) == (config.is_log_append_time, LogConfig().is_log_append_time)
    levels = [config.compression_level(name) for name in ("zstd", "lz4", "gzip", "snappy", "none")]
    assert [-7, 9, -1, None, None] == levels


@pytest.mark.parametrize(("jitter", "segment", "bound"), [(0, 9, 1), (5, 9, 5), (50, 9, 9)])
def test_random_segment_jitter_stays_below_both_bounds(
    jitter: int, segment: int, bound: int
) -> None:
    """Drawn from 0 up to the smaller of the two settings, and every value is drawn."""
    config = LogConfig(segment_jitter_ms=jitter, segment_ms=segment)
    source = random.Random(7)
    assert set(range(bound)) == {config.random_segment_jitter(source) for _ in range(400)}
