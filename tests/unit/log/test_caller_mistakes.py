"""First calls of a new user: accepted if the meaning is plain, else refused with an explanation."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import (
    ConfigError,
    LogConfig,
    ManagerConfig,
    NotALogError,
    Record,
    open_log,
)
from kafkalog.manager_config import CleanerConfig
from tests.support.logs import manual_log


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("compact", ("compact",)),
        ("compact,delete", ("compact", "delete")),
        (" delete , compact ", ("delete", "compact")),
        ("", ()),
        (["compact"], ("compact",)),
    ],
)
def test_log_config_policy_as_text_becomes_a_tuple(policy: Any, expected: tuple[str, ...]) -> None:
    """USE-8: a single policy, or several as in a properties file."""
    assert expected == LogConfig(cleanup_policy=policy).cleanup_policy
    assert expected == LogConfig().replace(cleanup_policy=policy).cleanup_policy


@pytest.mark.parametrize("policy", ["compcat", "c", "compact,,delete", b"compact"])
def test_log_config_unknown_policy_is_refused(policy: Any) -> None:
    """A word is not split into letters, and an empty item between two commas is invalid."""
    with pytest.raises(ConfigError, match=r"cleanup\.policy = .*compact, delete"):
        LogConfig(cleanup_policy=policy)


@pytest.mark.parametrize(
    ("cls", "name", "nearest"),
    [
        (LogConfig, "segment_byte", "segment_bytes"),
        (LogConfig, "segment.bytes", "segment_bytes"),
        (ManagerConfig, "log_dir", "log_dirs"),
        (CleanerConfig, "thread", "threads"),
    ],
)
def test_config_unknown_field_names_the_nearest(cls: Any, name: str, nearest: str) -> None:
    """USE-8: docs/configuration.md promises a ConfigError, and Python raises a TypeError."""
    with pytest.raises(ConfigError, match=rf"unknown field '{name}'; did you mean {nearest}\?"):
        cls(**{name: 1})


def test_config_mapping_instead_of_fields_names_from_properties() -> None:
    """`LogConfig.from_properties` takes a mapping of Kafka's keys."""
    make: Any = LogConfig
    with pytest.raises(ConfigError, match=r"LogConfig\.from_properties"):
        make({"segment.bytes": "1048576"})


def test_config_with_named_fields_is_pickled_and_replaced() -> None:
    """The check of field names is not part of the values."""
    config = LogConfig(segment_bytes=4096)
    assert config == pickle.loads(pickle.dumps(config))
    assert 8192 == config.replace(segment_bytes=8192).segment_bytes


@pytest.mark.parametrize(
    "config",
    [
        {"segment.bytes": "4096", "cleanup.policy": "compact"},
        {"segment.bytes": 4096, "cleanup.policy": ["compact"]},
        LogConfig(segment_bytes=4096, cleanup_policy=("compact",)),
    ],
)
def test_open_log_mapping_of_kafka_keys_becomes_a_config(tmp_path: Path, config: Any) -> None:
    """USE-8: text or typed values have the meaning that from_properties gives them."""
    with open_log(tmp_path / "t-0", config=config) as log:
        assert LogConfig(segment_bytes=4096, cleanup_policy=("compact",)) == log.config


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"segment.byte": 1}, ConfigError, "did you mean segment.bytes"),
        ({"segment.bytes": 1}, ConfigError, "segment.bytes = 1: must be an integer from 14"),
        ({"segment.bytes": 4096.0}, ConfigError, "segment.bytes = 4096.0"),
        ({"min.insync.replicas": 1}, ConfigError, "has no meaning here"),
        ("segment.bytes=1", TypeError, "config must be a LogConfig or a mapping"),
        (5, TypeError, "config must be a LogConfig or a mapping"),
    ],
)
def test_open_log_wrong_config_creates_nothing(
    tmp_path: Path, config: Any, error: type[Exception], text: str
) -> None:
    """USE-8: the error names the key, and comes before the directory is created."""
    with pytest.raises(error, match=text):
        open_log(tmp_path / "t-0", config=config)
    assert [] == list(tmp_path.iterdir())


def test_open_log_create_false_without_log_is_refused(tmp_path: Path) -> None:
    """USE-3: a mistyped path and an empty directory raise an error; nothing is created."""
    (tmp_path / "empty-0").mkdir()
    for name, text in (("oders-0", "no such directory"), ("empty-0", "holds no segment")):
        for settings in ({"create": False}, {"create": False, "read_only": True}):
            with pytest.raises(NotALogError, match=f"No log found at .*{name}: .*{text}"):
                open_log(tmp_path / name, **settings)  # type: ignore[arg-type]
    assert ["empty-0"] == [path.name for path in tmp_path.iterdir()]
    assert [] == list((tmp_path / "empty-0").iterdir())


def test_open_log_create_false_of_existing_log_opens_it(tmp_path: Path) -> None:
    """The log takes appends as with create=True."""
    with manual_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"v")])
    with open_log(tmp_path / "t-0", create=False) as log:
        log.append([Record(value=b"w")])
        assert [b"v", b"w"] == [each.value for each in log.records()]


@pytest.mark.parametrize("value", ["1", 1.0, True, b"1"])
def test_read_offset_of_wrong_type_error_names_the_argument(tmp_path: Path, value: Any) -> None:
    """USE-8: `'<=' not supported between instances of 'int' and 'str'` does not name it."""
    with manual_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"v")] * 3)
        for read in (log.records, log.batches, log.get, log.read):
            with pytest.raises(TypeError, match="offset must be an int, got"):
                read(value)
        for read in (log.records, log.batches):
            with pytest.raises(TypeError, match="end must be an int, got"):
                read(0, value)
        with pytest.raises(TypeError, match="start must be an int, got"):
            log.scan(value)
        with pytest.raises(TypeError, match="end must be an int, got"):
            log.scan(0, value)


def test_read_numpy_offset_is_accepted(tmp_path: Path) -> None:
    """Offsets from an array can be passed on."""
    import numpy as np

    with manual_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"%d" % number) for number in range(3)])
        one: Any = np.int32(1)
        assert [b"1", b"2"] == [each.value for each in log.records(one)]
        assert [b"0"] == [each.value for each in log.records(0, one)]


def test_scan_single_log_equals_scan_of_a_list(tmp_path: Path) -> None:
    """USE-8: a single log has a plain meaning; values that are not logs are refused."""
    with manual_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"v")])
        arrays = kafkalog.scan(log, columns=["offset"]).to_numpy()
        assert [0] == list(arrays["offset"])
        wrong: Any = [tmp_path]
        with pytest.raises(TypeError, match="logs must be open logs, got PosixPath"):
            kafkalog.scan(wrong)
